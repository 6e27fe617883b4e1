"""Corpora as JSON: one object a line, or a JSON list of objects, as annotation tools write them.

* `jsonl`: `text` (or `data`) beside lists of `[start, end, label]` or of objects with `start`/`start_offset`,
  `end`/`end_offset` and `label`/`labels`, under `spans`, `entities`, `labels`, `label` or any other name. So write
  doccano, Prodigy, the JSON-MIN export of Label Studio and many scripts. `["text", {"entities": [...]}]`, which spaCy 2
  was trained with, is read as such an object.
* `labelstudio`: Label Studio's full export, `data` beside `annotations`.
* `cluener`: `label` holds `{type: {entity: [[first, last], ...]}}`, with the last character included.
* `tokens`: see `tokens.py`.

A record that its annotator rejected, ignored or cancelled, or that nobody has annotated, says nothing about its
entities; it is left out and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, TypeVar

from .json_values import SEE_HELP, JsonRecord, excerpt
from .offsets import RawSpan, RawText
from .records import Event, RecordError
from .tokens import TOKENS, has_tokens

Note = Callable[[Event, str], None]

_T = TypeVar("_T")
_SPAN_KEYS = ("spans", "entities", "labels", "label")
# What an export of finished annotations puts into every record, also into one in which no entity was found.
_DONE_KEYS = ("answer", "annotation_id")


def detect(record: JsonRecord) -> str:
    """The name of the format that a record is in."""
    if isinstance(record.get("data"), dict):
        return "labelstudio"
    if has_tokens(record):
        return TOKENS
    return "cluener" if isinstance(record.get("label"), dict) else "jsonl"


def parse_flat(record: JsonRecord, note: Note) -> list[RawText]:
    if (answer := record.get("answer", "accept")) != "accept":
        note(Event.LEFT_OUT, f"its answer is '{answer}'")
        return []
    text = _expect(record.get("text", record.get("data")), str, "'text'", "a string")
    lists = {key: value for key, value in record.items() if isinstance(value, list)}
    found = [value for key, value in lists.items() if _holds_spans(value, key in _SPAN_KEYS)]
    known = [lists[key] for key in _SPAN_KEYS if key in lists]
    if not found and not known and not any(done in record for done in _DONE_KEYS):
        reason = f"no list of entities under any of: {', '.join(_SPAN_KEYS)}"
        raise RecordError(reason, 'A text without entities says so with an empty list: "label": [].')
    # Without a span anywhere, the list that should have them says what is wrong with its first.
    items = chain.from_iterable(found or sorted(known, key=len)[-1:])
    return [RawText(text, tuple(span for item in items for span in _spans(item)))]


def _holds_spans(items: list[object], expected: bool) -> bool:
    """Whether a list is one of spans: where they are expected already if one of its items is."""
    return bool(items) and (any if expected else all)(_is_span(item, expected) for item in items)


def _is_span(item: object, expected: bool) -> bool:
    if isinstance(item, list):
        return [type(part) for part in item[:2]] == [int, int] and len(item) == 3
    keys = item.keys() if isinstance(item, dict) else set()
    placed = {"start", "end"} <= keys or {"start_offset", "end_offset"} <= keys
    # Prodigy's tokens have places too.
    return placed and (expected or not keys.isdisjoint(("label", "labels")))


def parse_label_studio(record: JsonRecord, note: Note) -> list[RawText]:
    data = _expect(record.get("data"), dict, "'data'", "an object")
    # What only a model has annotated so far has no more than predictions.
    none: list[object] | None = [] if "predictions" in record else None
    annotations = _expect(record.get("annotations", record.get("completions", none)), list, "'annotations'", "a list")
    live = [each for each in annotations if not _expect(each, dict, "an annotation", "an object").get("was_cancelled")]
    if not live:
        note(Event.LEFT_OUT, "no annotation, or cancelled ones only")
        return []
    if len(live) > 1:
        note(Event.SEVERAL, f"{len(live)} annotations; the ground truth, or else the first, was read")
    annotation = next((each for each in live if each.get("ground_truth")), live[0])
    spans: dict[str, list[RawSpan]] = {}
    for region in _expect(annotation.get("result"), list, "'result'", "a list"):
        name = str(_expect(region, dict, "a region", "an object").get("to_name", ""))
        spans.setdefault(name, []).extend(_region(region))
    # A region names the part of the interface that it is in, which mostly has the name of a text of the task.
    parts = {name: found for name, found in spans.items() if found} or {"": []}
    unnamed = [name for name in parts if not isinstance(data.get(name), str)]
    if len(unnamed) > 1:
        reason = f"entities of several texts ({', '.join(unnamed)}), which 'data' does not have under these names"
        raise RecordError(reason, "Give the texts the names of their tags in the labelling interface.")
    by_text: dict[str, list[RawSpan]] = {}
    for name, found in parts.items():
        by_text.setdefault(_text_key(data, name), []).extend(found)
    return [RawText(data[key], tuple(found)) for key, found in by_text.items()]


def parse_cluener(record: JsonRecord, note: Note) -> list[RawText]:
    text = _expect(record.get("text"), str, "'text'", "a string")
    if not isinstance(labels := record.get("label"), dict):
        raise RecordError(f"'label' is not an object: {excerpt(labels)}", 'A text without entities says "label": {}.')
    spans = []
    for label, entities in labels.items():
        for name, places in _expect(entities, dict, f"'{label}'", "an object of places by entity").items():
            for place in _expect(places, list, f"'{name}'", "a list of [first, last]"):
                if not isinstance(place, list) or len(place) != 2:
                    raise RecordError(f"'{name}' has a place that is not [first, last]: {excerpt(place)}", SEE_HELP)
                spans.append(RawSpan(_offset(place[0]), _offset(place[1]) + 1, label, name))
    return [RawText(text, tuple(spans))]


PARSERS: dict[str, Callable[[JsonRecord, Note], list[RawText]]] = {
    "jsonl": parse_flat,
    "labelstudio": parse_label_studio,
    "cluener": parse_cluener,
}


def _text_key(data: dict[str, Any], name: str) -> str:
    """Where a Label Studio task has the text of this name: under it, under `text`, or as the only string there is."""
    texts = [key for key, value in data.items() if isinstance(value, str)]
    for key in (name, "text"):
        if key in texts:
            return key
    if len(texts) != 1:
        reason = f"'data' has no 'text', and {len(texts)} other strings: {excerpt(list(data))}"
        raise RecordError(reason, "Name the labelled text 'text' in the export.")
    return texts[0]


def _region(region: JsonRecord) -> Iterator[RawSpan]:
    kind, value = region.get("type", "labels"), region.get("value")
    if kind in ("hypertextlabels", "paragraphlabels"):
        raise RecordError(f"a region of '{kind}', whose offsets are not the text's", "Annotate and export plain text.")
    if kind == "labels" or (isinstance(value, dict) and "labels" in value):
        yield from _spans(value)


def _spans(item: object) -> Iterator[RawSpan]:
    quoted = None
    if isinstance(item, list) and len(item) == 3:
        start, end, labels = item
    elif isinstance(item, dict):
        start = item.get("start", item.get("start_offset"))
        end = item.get("end", item.get("end_offset"))
        labels = item.get("label", item.get("labels"))
        quoted = item.get("text")
    else:
        raise RecordError(f"an entity is not [start, end, label]: {excerpt(item)}", SEE_HELP)
    labels = labels or [""]
    for label in labels if isinstance(labels, list) else [labels]:
        quotation = quoted if isinstance(quoted, str) else None
        yield RawSpan(_offset(start), _offset(end), _expect(label, str, "a label", "a string"), quotation)


def _offset(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise RecordError(f"an offset is not a whole number: {excerpt(value)}", SEE_HELP)
    return value


def _expect(value: object, kind: type[_T], what: str, shape: str) -> _T:
    if not isinstance(value, kind):
        raise RecordError(f"{what} is not {shape}: {excerpt(value)}", SEE_HELP)
    return value
