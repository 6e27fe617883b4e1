"""Label Studio's full export: tasks with texts, and the regions that annotators marked in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .annotation import (
    AnnotatedText,
    EntitySpan,
    Event,
    JsonRecord,
    Note,
    RecordError,
    cleaned,
    excerpt,
    expect,
    is_quoted,
)
from .json_records import read_spans


def parse_label_studio(record: JsonRecord, note: Note, names: Sequence[str]) -> list[AnnotatedText]:
    """Return the annotated texts of a task. names: Those to read without entities, too."""
    data = expect(record.get("data"), dict, "'data'", "an object")
    # A task that is not annotated yet may lack this key, or have predictions only.
    annotations = expect(record.get("annotations", record.get("completions", [])), list, "'annotations'", "a list")
    live = [
        annotation
        for annotation in annotations
        if not expect(annotation, dict, "an annotation", "an object").get("was_cancelled")
    ]
    if not live:
        note(Event.LEFT_OUT, "no annotation, or cancelled ones only")
        return []
    truth = [annotation for annotation in live if annotation.get("ground_truth")]
    if len(live) > 1:
        note(Event.SEVERAL, f"{len(live)} annotations; read: {'ground truth' if truth else 'the first'}")
    texts = _strings(data)
    if names and texts.keys().isdisjoint(names):
        reason = f"'data' has none of the texts {', '.join(names)}, but {excerpt(list(texts))}"
        raise RecordError(reason, "Name the annotated ones, as in `--texts title,body`.")
    spans = _spans_by_text(texts, (truth or live)[0], note)
    named = [key for key in names if key in texts]
    keys = dict.fromkeys([*named, *spans]) or [_text_key(texts, "", [])]
    return [AnnotatedText(texts[key], tuple(spans.get(key, ()))) for key in keys]


def _strings(data: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Return the strings of a task by key. Nested ones have paths, as in labelling interfaces: `article.body`."""
    found: dict[str, str] = {}
    for key, value in data.items():
        if isinstance(value, str):
            found[prefix + key] = value
        elif isinstance(value, dict):
            found |= _strings(value, f"{prefix}{key}.")
    return found


def _spans_by_text(texts: dict[str, str], annotation: JsonRecord, note: Note) -> dict[str, dict[EntitySpan, None]]:
    """Return the spans of an annotation, checked and once each, by the key of their text."""
    by_tag: dict[str, list[EntitySpan]] = {}
    for region in expect(annotation.get("result"), list, "'result'", "a list"):
        name = str(expect(region, dict, "a region", "an object").get("to_name", ""))
        by_tag.setdefault(name, []).extend(_region(region))
    keys = {tag: _text_key(texts, tag, spans) for tag, spans in by_tag.items() if spans}
    unnamed = [tag for tag in keys if tag not in texts]
    if len({keys[tag] for tag in unnamed}) < len(unnamed):
        reason = f"entities of several texts ({', '.join(unnamed)}), which 'data' does not have under these names"
        raise RecordError(reason, "Give the texts the names of their tags in the labelling interface.")
    by_text: dict[str, list[EntitySpan]] = {}
    for tag, key in keys.items():
        by_text.setdefault(key, []).extend(by_tag[tag])
    return {key: cleaned(spans, texts[key], note) for key, spans in by_text.items()}


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
