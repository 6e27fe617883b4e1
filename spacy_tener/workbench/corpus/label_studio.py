"""Label Studio's full export: tasks with texts, and the regions that annotators marked in them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from .decisions import DecisionOptions, combine
from .json_records import Note, read_spans
from .records import AnnotatedText, EntitySpan, Event, JsonRecord, RecordError, excerpt, expect


def parse_label_studio(record: JsonRecord, note: Note, decisions: DecisionOptions) -> list[AnnotatedText]:
    data = expect(record.get("data"), dict, "'data'", "an object")
    # A task that nobody has annotated so far may have none, or predictions of a model.
    annotations = expect(record.get("annotations", record.get("completions", [])), list, "'annotations'", "a list")
    live = [each for each in annotations if not expect(each, dict, "an annotation", "an object").get("was_cancelled")]
    if not live:
        note(Event.LEFT_OUT, "no annotation, or cancelled ones only")
        return []
    if len(live) > 1:
        truth = [each for each in live if each.get("ground_truth")][:1]
        if not truth and decisions.annotators == "error":
            remedy = "Mark one as ground truth, or choose what to read by `--annotators`."
            raise RecordError(f"{len(live)} annotations of one text", remedy)
        note(Event.SEVERAL, f"{len(live)} annotations; read: {'ground truth' if truth else decisions.annotators}")
        live = truth or (live[:1] if decisions.annotators == "first" else live)
    read = [_texts_of_annotation(data, each, note) for each in live]
    keys = dict.fromkeys(chain.from_iterable(read))
    return [combine(data[key], [texts.get(key, []) for texts in read], decisions.annotators) for key in keys]


def _texts_of_annotation(data: dict[str, Any], annotation: JsonRecord, note: Note) -> dict[str, list[EntitySpan]]:
    """Return the spans of each text of a task, by its key in `data`."""
    spans: dict[str, list[EntitySpan]] = {}
    for region in expect(annotation.get("result"), list, "'result'", "a list"):
        name = str(expect(region, dict, "a region", "an object").get("to_name", ""))
        if region.get("type") == "relation":
            note(Event.RELATIONS, f"{region.get('from_id')} to {region.get('to_id')}")
        spans.setdefault(name, []).extend(_region(region))
    # A region names the part of the interface that it is in, which mostly has the name of a text of the task.
    parts = {name: found for name, found in spans.items() if found} or {"": []}
    unnamed = [name for name in parts if not isinstance(data.get(name), str)]
    if len(unnamed) > 1:
        reason = f"entities of several texts ({', '.join(unnamed)}), which 'data' does not have under these names"
        raise RecordError(reason, "Give the texts the names of their tags in the labelling interface.")
    by_text: dict[str, list[EntitySpan]] = {}
    for name, found in parts.items():
        by_text.setdefault(_text_key(data, name), []).extend(found)
    return by_text


def _text_key(data: dict[str, Any], name: str) -> str:
    """Return the key of the text of this name in a Label Studio task: itself, `text`, or that of the only string."""
    texts = [key for key, value in data.items() if isinstance(value, str)]
    for key in (name, "text"):
        if key in texts:
            return key
    if len(texts) != 1:
        reason = f"'data' has no 'text', and {len(texts)} other strings: {excerpt(list(data))}"
        raise RecordError(reason, "Name the labelled text 'text' in the export.")
    return texts[0]


def _region(region: JsonRecord) -> Iterator[EntitySpan]:
    kind, value = region.get("type", "labels"), region.get("value")
    if kind in ("hypertextlabels", "paragraphlabels"):
        raise RecordError(f"a region of '{kind}', whose offsets are not the text's", "Annotate and export plain text.")
    if kind == "labels" or (isinstance(value, dict) and "labels" in value):
        yield from read_spans(value)
