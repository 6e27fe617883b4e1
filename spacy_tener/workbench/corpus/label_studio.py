"""Label Studio's full export: tasks with texts, and the regions that annotators marked in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from .decisions import DecisionOptions, combine
from .json_records import Note, read_spans
from .records import AnnotatedText, EntitySpan, Event, JsonRecord, RecordError, excerpt, expect, is_quoted


def parse_label_studio(record: JsonRecord, note: Note, decisions: DecisionOptions) -> list[AnnotatedText]:
    data = expect(record.get("data"), dict, "'data'", "an object")
    # A task that is not annotated yet may lack this key, or have predictions only.
    annotations = expect(record.get("annotations", record.get("completions", [])), list, "'annotations'", "a list")
    live = [each for each in annotations if not expect(each, dict, "an annotation", "an object").get("was_cancelled")]
    if not live:
        note(Event.LEFT_OUT, "no annotation, or cancelled ones only")
        return []
    if len(live) > 1:
        truth = [each for each in live if each.get("ground_truth")][:1]
        if not truth and decisions.annotators == "error":
            remedy = "Mark one as ground truth, or choose how to read them by `--annotators`."
            raise RecordError(f"{len(live)} annotations of one text", remedy)
        note(Event.SEVERAL, f"{len(live)} annotations; read: {'ground truth' if truth else decisions.annotators}")
        live = truth or (live[:1] if decisions.annotators == "first" else live)
    texts = _strings(data)
    if decisions.texts and texts.keys().isdisjoint(decisions.texts):
        reason = f"'data' has none of the texts {', '.join(decisions.texts)}, but {excerpt(list(texts))}"
        raise RecordError(reason, "Name the annotated ones, as in `--texts title,body`.")
    read = [_spans_by_text(texts, each, note) for each in live]
    named = [key for key in decisions.texts if key in texts]
    keys = dict.fromkeys(chain(named, *read)) or {_text_key(texts, "", []): None}
    return [combine(texts[key], [spans.get(key, []) for spans in read], decisions.annotators) for key in keys]


def _strings(data: dict[str, Any]) -> dict[str, str]:
    """Return the strings of a task by key. Nested ones have paths, as in labelling interfaces: `article.body`."""
    found: dict[str, str] = {}
    objects = [("", data)]
    for prefix, each in objects:  # to which those inside are added
        for key, value in each.items():
            if isinstance(value, str):
                found[prefix + key] = value
            elif isinstance(value, dict):
                objects.append((f"{prefix}{key}.", value))
    return found


def _spans_by_text(texts: dict[str, str], annotation: JsonRecord, note: Note) -> dict[str, list[EntitySpan]]:
    """Return the spans of an annotation by the key of their text."""
    by_tag: dict[str, list[EntitySpan]] = {}
    for region in expect(annotation.get("result"), list, "'result'", "a list"):
        name = str(expect(region, dict, "a region", "an object").get("to_name", ""))
        if region.get("type") == "relation":
            note(Event.RELATIONS, f"{region.get('from_id')} to {region.get('to_id')}")
        by_tag.setdefault(name, []).extend(_region(region))
    keys = {tag: _text_key(texts, tag, spans) for tag, spans in by_tag.items() if spans}
    unnamed = [tag for tag in keys if tag not in texts]
    if len({keys[tag] for tag in unnamed}) < len(unnamed):
        reason = f"entities of several texts ({', '.join(unnamed)}), which 'data' does not have under these names"
        raise RecordError(reason, "Give the texts the names of their tags in the labelling interface.")
    by_text: dict[str, list[EntitySpan]] = {}
    for tag, key in keys.items():
        by_text.setdefault(key, []).extend(by_tag[tag])
    return by_text


def _text_key(texts: dict[str, str], tag: str, spans: Sequence[EntitySpan]) -> str:
    """Return the key of the text that the regions of a tag are in.

    Of the texts that contain the regions' quotations, it is the one with the tag's name, or `text`, or the only one not
    nested in an object, or the only one at all.
    """
    quoting = [key for key, text in texts.items() if all(is_quoted(span, text) for span in spans)]
    candidates = quoting or list(texts)
    for key in (tag, "text"):
        if key in candidates:
            return key
    if len(candidates) > 1:
        candidates = [key for key in candidates if "." not in key] or candidates
    if len(candidates) != 1:
        reason = f"'data' has no 'text', and {len(texts)} other strings: {excerpt(list(texts))}"
        raise RecordError(reason, "Name those that were annotated, as in `--texts title,body`.")
    return candidates[0]


def _region(region: JsonRecord) -> Iterator[EntitySpan]:
    kind, value = region.get("type", "labels"), region.get("value")
    if kind in ("hypertextlabels", "paragraphlabels"):
        raise RecordError(f"a region of '{kind}', whose offsets are not the text's", "Annotate and export plain text.")
    if kind == "labels" or (isinstance(value, dict) and "labels" in value):
        yield from read_spans(value)
