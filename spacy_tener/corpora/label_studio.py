"""Parse Label Studio's full JSON export.

The export is a list of tasks. A task contains one or more texts in `data`, and their annotations in `annotations`. A
region is a labelled span in a text. `to_name` refers to the text by its name in the labelling interface:

    {"data": {"title": "...", "body": "..."},
     "annotations": [{"result": [{"type": "labels", "to_name": "title",
                                  "value": {"start": 0, "end": 4, "labels": ["PER"]}}]}]}
"""

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
    clean_spans,
    excerpt,
    expect,
    is_quoted,
)
from .json_records import read_spans


def parse_label_studio(record: JsonRecord, note: Note, names: Sequence[str]) -> list[AnnotatedText]:
    """Parse a Label Studio task.

    If the task has several annotations, use the annotation that is marked as ground truth, or else the first
    annotation.

    record (JsonRecord): The task.
    note (Note): Function that counts omissions.
    names (Sequence[str]): Keys of texts to return even if they contain no entities.
    RETURNS (list[AnnotatedText]): All texts that contain entities, and the texts in `names`.
    """
    data = expect(record.get("data"), dict, "'data'", "an object")
    # `annotations` is missing if the task is not annotated yet. Exports from old versions use the key `completions`.
    annotations = expect(record.get("annotations", record.get("completions", [])), list, "'annotations'", "a list")
    valid_annotations = [
        annotation
        for annotation in annotations
        if not expect(annotation, dict, "an annotation", "an object").get("was_cancelled")
    ]
    if not valid_annotations:
        note(Event.LEFT_OUT, "no annotation, or only cancelled annotations")
        return []
    ground_truths = [annotation for annotation in valid_annotations if annotation.get("ground_truth")]
    if len(valid_annotations) > 1:
        note(
            Event.SEVERAL,
            f"{len(valid_annotations)} annotations; read: {'ground truth' if ground_truths else 'the first'}",
        )
    texts = _collect_strings(data)
    if names and texts.keys().isdisjoint(names):
        reason = (
            f"'data' contains none of the keys {', '.join(names)}; the keys of its texts are {excerpt(list(texts))}"
        )
        raise RecordError(reason, "Pass the keys of the annotated texts, for example `--texts title,body`.")
    spans = _spans_by_text(texts, (ground_truths or valid_annotations)[0], note)
    named = [key for key in names if key in texts]
    keys = dict.fromkeys([*named, *spans]) or [_text_key(texts, "", [])]
    return [AnnotatedText(texts[key], tuple(spans.get(key, ()))) for key in keys]


def _collect_strings(data: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Return all strings in a task's data by their keys. A nested string's key is its path, such as `article.body`."""
    found: dict[str, str] = {}
    for key, value in data.items():
        if isinstance(value, str):
            found[prefix + key] = value
        elif isinstance(value, dict):
            found |= _collect_strings(value, f"{prefix}{key}.")
    return found


def _spans_by_text(texts: dict[str, str], annotation: JsonRecord, note: Note) -> dict[str, dict[EntitySpan, None]]:
    """Return the valid entities in an annotation, grouped by the key of their text."""
    by_tag: dict[str, list[EntitySpan]] = {}
    for region in expect(annotation.get("result"), list, "'result'", "a list"):
        name = str(expect(region, dict, "a region", "an object").get("to_name", ""))
        by_tag.setdefault(name, []).extend(_parse_region(region))
    keys = {tag: _text_key(texts, tag, spans) for tag, spans in by_tag.items() if spans}
    unnamed = [tag for tag in keys if tag not in texts]
    if len({keys[tag] for tag in unnamed}) < len(unnamed):
        reason = f"the entities refer to several texts ({', '.join(unnamed)}), but 'data' has no texts with these keys"
        fix = "Rename the keys of the texts in 'data' to these names, which are tag names in the labelling interface."
        raise RecordError(reason, fix)
    by_text: dict[str, list[EntitySpan]] = {}
    for tag, key in keys.items():
        by_text.setdefault(key, []).extend(by_tag[tag])
    return {key: clean_spans(spans, texts[key], note) for key, spans in by_text.items()}


def _text_key(texts: dict[str, str], tag: str, spans: Sequence[EntitySpan]) -> str:
    """Return the key of the text in a task's data that regions refer to.

    The regions contain the name of a tag in the labelling interface, but not the key of the text that the tag displays.
    Therefore, the candidates are all texts that match the regions' quoted text, or all texts if none matches. Return
    the first of these that exists: the candidate whose key is the tag's name, the candidate with the key `text`, the
    only candidate at the top level of `data`, or the only candidate. Raise a RecordError if none of these exists.

    texts (dict[str, str]): All texts in the task's data.
    tag (str): Tag name, which is the regions' `to_name`.
    spans (Sequence[EntitySpan]): The regions.
    RETURNS (str): Key of the text.
    """
    quoting = [key for key, text in texts.items() if all(is_quoted(span, text) for span in spans)]
    candidates = quoting or list(texts)
    for key in (tag, "text"):
        if key in candidates:
            return key
    if len(candidates) > 1:
        candidates = [key for key in candidates if "." not in key] or candidates
    if len(candidates) != 1:
        reason = f"'data' has no key 'text'; the keys of its texts are {excerpt(list(texts))}"
        raise RecordError(reason, "Pass the keys of the annotated texts, for example `--texts title,body`.")
    return candidates[0]


def _parse_region(region: JsonRecord) -> Iterator[EntitySpan]:
    """Yield a region's entities, one for each label. Other annotation, such as ratings, is ignored."""
    kind, value = region.get("type", "labels"), region.get("value")
    if kind in ("hypertextlabels", "paragraphlabels"):
        raise RecordError(
            f"offsets of regions with the type '{kind}' don't refer to the plain text",
            "Use the tags Text and Labels in the labelling interface.",
        )
    if kind == "labels" or (isinstance(value, dict) and "labels" in value):
        yield from read_spans(value)
