"""Parse the full JSON export of Label Studio.

A task contains one or more strings in `data` and the regions that annotators labelled in `annotations`:

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
    """Return the annotated texts of a task.

    If a task was annotated several times, the annotation marked as ground truth is used, otherwise the first one.

    note (Note): Function that records omissions.
    names (Sequence[str]): Keys of texts to return even if they contain no entities. Other texts are returned only if
        they contain entities.
    """
    data = expect(record.get("data"), dict, "'data'", "an object")
    # Tasks that are not annotated yet may lack this key. Exports of old versions use the key `completions`.
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
        reason = f"'data' contains none of the texts {', '.join(names)}, but {excerpt(list(texts))}"
        raise RecordError(reason, "Pass the keys of the annotated texts, for example `--texts title,body`.")
    spans = _spans_by_text(texts, (ground_truths or valid_annotations)[0], note)
    named = [key for key in names if key in texts]
    keys = dict.fromkeys([*named, *spans]) or [_text_key(texts, "", [])]
    return [AnnotatedText(texts[key], tuple(spans.get(key, ()))) for key in keys]


def _collect_strings(data: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Return all strings in the data of a task. The key of a nested string is its path, such as `article.body`."""
    found: dict[str, str] = {}
    for key, value in data.items():
        if isinstance(value, str):
            found[prefix + key] = value
        elif isinstance(value, dict):
            found |= _collect_strings(value, f"{prefix}{key}.")
    return found


def _spans_by_text(texts: dict[str, str], annotation: JsonRecord, note: Note) -> dict[str, dict[EntitySpan, None]]:
    """Return the valid entities of an annotation without duplicates, by the key of their text."""
    by_tag: dict[str, list[EntitySpan]] = {}
    for region in expect(annotation.get("result"), list, "'result'", "a list"):
        name = str(expect(region, dict, "a region", "an object").get("to_name", ""))
        by_tag.setdefault(name, []).extend(_parse_region(region))
    keys = {tag: _text_key(texts, tag, spans) for tag, spans in by_tag.items() if spans}
    unnamed = [tag for tag in keys if tag not in texts]
    if len({keys[tag] for tag in unnamed}) < len(unnamed):
        reason = f"there are entities of several texts ({', '.join(unnamed)}), but 'data' has no texts with these keys"
        raise RecordError(reason, "Use the names of the tags in the labelling interface as the keys of the texts.")
    by_text: dict[str, list[EntitySpan]] = {}
    for tag, key in keys.items():
        by_text.setdefault(key, []).extend(by_tag[tag])
    return {key: clean_spans(spans, texts[key], note) for key, spans in by_text.items()}


def _text_key(texts: dict[str, str], tag: str, spans: Sequence[EntitySpan]) -> str:
    """Return the key of the text that contains the regions of a tag in the labelling interface.

    The export contains the name of the tag, but not which text the tag shows. Candidates are the texts that match the
    quoted text of all regions. Among several candidates, the text with the name of the tag is chosen, then the text
    with the key `text`, then the only text at the top level of `data`, then the only text.

    tag (str): Name of the tag (`to_name` of its regions).
    spans (Sequence[EntitySpan]): Regions of the tag.
    """
    quoting = [key for key, text in texts.items() if all(is_quoted(span, text) for span in spans)]
    candidates = quoting or list(texts)
    for key in (tag, "text"):
        if key in candidates:
            return key
    if len(candidates) > 1:
        candidates = [key for key in candidates if "." not in key] or candidates
    if len(candidates) != 1:
        reason = f"'data' has no 'text' but {len(texts)} other strings: {excerpt(list(texts))}"
        raise RecordError(reason, "Pass the keys of the annotated texts, for example `--texts title,body`.")
    return candidates[0]


def _parse_region(region: JsonRecord) -> Iterator[EntitySpan]:
    """Yield the entities of a region. Regions without labels, such as ratings of the whole text, are ignored."""
    kind, value = region.get("type", "labels"), region.get("value")
    if kind in ("hypertextlabels", "paragraphlabels"):
        raise RecordError(
            f"offsets of regions with the type '{kind}' don't refer to the plain text",
            "Use the tags Text and Labels in the labelling interface.",
        )
    if kind == "labels" or (isinstance(value, dict) and "labels" in value):
        yield from read_spans(value)
