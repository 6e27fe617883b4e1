"""Corpora with character offsets, as annotation tools write them: one JSON object a line, or a JSON list of objects.

* `jsonl`: `text` (or `data`) beside `spans`, `entities`, `labels` or `label`, a list of `[start, end, label]` or of
  objects with `start`/`start_offset`, `end`/`end_offset` and `label`/`labels`. So write doccano, Prodigy, the JSON-MIN
  export of Label Studio and many scripts.
* `labelstudio`: Label Studio's full export, `data` beside `annotations`.
* `cluener`: `label` holds `{type: {entity: [[first, last], ...]}}`, with the last character included.

A record that its annotator rejected, ignored or cancelled, or that nobody has annotated, says nothing about its
entities; it is left out and counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, TypeVar

from ...errors import RemedyError
from .offsets import RawSpan, RawText
from .records import CorpusError, Event

Record = dict[str, Any]
Note = Callable[[Event, str], None]

_T = TypeVar("_T")
_SEE_HELP = "`python -m spacy tener convert --help` names the formats."
_DECODER = json.JSONDecoder()
_BETWEEN_VALUES = re.compile(r"[\s,]*")
_SPAN_KEYS = ("spans", "entities", "labels", "label")
# What an export of finished annotations puts into every record, also into one in which no entity was found.
_DONE_KEYS = ("answer", "annotation_id")


class RecordError(RemedyError):
    """A record that is not of the shape that its format has."""

    def __init__(self, reason: str, remedy: str = _SEE_HELP) -> None:
        super().__init__(reason, remedy)


def read_records(lines: Iterable[tuple[int, str]], *, source: str) -> Iterator[tuple[int, Record]]:
    """The JSON objects of a file, with the lines that they begin on.

    A file that begins with an object on one line is read line by line; one that begins with a list, or with an object
    over several lines, is read whole.
    """
    numbered: Iterator[tuple[int, str]] = ((number, line) for number, line in lines if line.strip())
    first = next(numbered, None)
    if first is None:
        return
    numbered = chain([first], numbered)
    for number, value in _by_line(numbered, source) if _is_object(first[1]) else _whole(_joined(numbered), source):
        if not isinstance(value, dict):
            remedy = "Each record is an object with a text and its entities."
            raise CorpusError(source, "the record is not a JSON object", remedy, line=number)
        yield number, value


def _joined(numbered: Iterable[tuple[int, str]]) -> str:
    """The lines as one text, with the blank lines between them, so that the text's lines can be counted."""
    text: list[str] = []
    for number, line in numbered:
        text += [""] * (number - 1 - len(text)) + [line]
    return "\n".join(text)


def _is_object(line: str) -> bool:
    try:
        return isinstance(_DECODER.decode(line), dict)
    except (json.JSONDecodeError, RecursionError):
        return False


def _by_line(numbered: Iterable[tuple[int, str]], source: str) -> Iterator[tuple[int, object]]:
    for number, line in numbered:
        try:
            yield number, _DECODER.decode(line)
        except (json.JSONDecodeError, RecursionError) as error:
            raise _not_json(error, source, number) from error


def _whole(text: str, source: str) -> Iterator[tuple[int, object]]:
    """The elements of a JSON list, or the JSON values that follow each other."""
    position = _next(text, 0)
    in_list = text.startswith("[", position)
    position = _next(text, position + in_list)
    line, counted = 1, 0
    while position < len(text) and not (in_list and text[position] == "]"):
        line, counted = line + text.count("\n", counted, position), position
        try:
            value, end = _DECODER.raw_decode(text, position)
        except (json.JSONDecodeError, RecursionError) as error:
            raise _not_json(error, source, getattr(error, "lineno", line)) from error
        yield line, value
        position = _next(text, end)
    if in_list and text[position:].strip() != "]":
        line += text.count("\n", counted, position)
        raise CorpusError(source, "the JSON list does not end here as it should", "Is the file whole?", line=line)


def _next(text: str, position: int) -> int:
    match = _BETWEEN_VALUES.match(text, position)
    return match.end() if match else position


def _not_json(error: Exception, source: str, line: int) -> CorpusError:
    reason = f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else "nested too deeply"
    remedy = "Each record is a JSON object on a line of its own, or the file is a JSON list of them."
    return CorpusError(source, f"not valid JSON: {reason}", remedy, line=line)


def detect(record: Record) -> str:
    """The name of the format that a record is in."""
    if isinstance(record.get("data"), dict):
        return "labelstudio"
    return "cluener" if isinstance(record.get("label"), dict) else "jsonl"


def parse_flat(record: Record, note: Note) -> RawText | None:
    if (answer := record.get("answer", "accept")) != "accept":
        note(Event.LEFT_OUT, f"its answer is '{answer}'")
        return None
    text = _expect(record.get("text", record.get("data")), str, "'text'", "a string")
    key = next((key for key in _SPAN_KEYS if isinstance(record.get(key), list)), None)
    if key is None and not any(done in record for done in _DONE_KEYS):
        reason = f"no list of entities under any of: {', '.join(_SPAN_KEYS)}"
        raise RecordError(reason, 'A text without entities says so with an empty list: "label": [].')
    return RawText(text, tuple(span for item in record.get(key or "", []) for span in _spans(item)))


def parse_label_studio(record: Record, note: Note) -> RawText | None:
    text = _task_text(_expect(record.get("data"), dict, "'data'", "an object"))
    annotations = _expect(record.get("annotations", record.get("completions")), list, "'annotations'", "a list")
    live = [each for each in annotations if not _expect(each, dict, "an annotation", "an object").get("was_cancelled")]
    if not live:
        note(Event.LEFT_OUT, "no annotation, or cancelled ones only")
        return None
    if len(live) > 1:
        note(Event.SEVERAL, f"{len(live)} annotations; the ground truth, or else the first, was read")
    annotation = next((each for each in live if each.get("ground_truth")), live[0])
    regions = _expect(annotation.get("result"), list, "'result'", "a list")
    return RawText(text, tuple(span for region in regions for span in _region(region)))


def parse_cluener(record: Record, note: Note) -> RawText | None:
    text = _expect(record.get("text"), str, "'text'", "a string")
    if not isinstance(labels := record.get("label"), dict):
        raise RecordError(f"'label' is not an object: {_excerpt(labels)}", 'A text without entities says "label": {}.')
    spans = []
    for label, entities in labels.items():
        for name, places in _expect(entities, dict, f"'{label}'", "an object of places by entity").items():
            for place in _expect(places, list, f"'{name}'", "a list of [first, last]"):
                if not isinstance(place, list) or len(place) != 2:
                    raise RecordError(f"'{name}' has a place that is not [first, last]: {_excerpt(place)}")
                spans.append(RawSpan(_offset(place[0]), _offset(place[1]) + 1, label, name))
    return RawText(text, tuple(spans))


PARSERS: dict[str, Callable[[Record, Note], RawText | None]] = {
    "jsonl": parse_flat,
    "labelstudio": parse_label_studio,
    "cluener": parse_cluener,
}


def _task_text(data: dict[str, Any]) -> str:
    """The text of a Label Studio task: `text`, or the only string there is, as a project may name it as it likes."""
    texts = [value for value in data.values() if isinstance(value, str)]
    if isinstance(data.get("text"), str):
        return str(data["text"])
    if len(texts) != 1:
        reason = f"'data' has no 'text', and {len(texts)} other strings: {_excerpt(list(data))}"
        raise RecordError(reason, "Name the labelled text 'text' in the export.")
    return texts[0]


def _region(region: object) -> Iterator[RawSpan]:
    region = _expect(region, dict, "a region", "an object")
    kind = region.get("type", "labels")
    if kind == "hypertextlabels":
        raise RecordError("a region of hypertext, whose offsets count in HTML", "Annotate and export plain text.")
    if kind == "labels":
        yield from _spans(region.get("value"))


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
        raise RecordError(f"an entity is not [start, end, label]: {_excerpt(item)}")
    labels = labels or [""]
    for label in labels if isinstance(labels, list) else [labels]:
        quotation = quoted if isinstance(quoted, str) else None
        yield RawSpan(_offset(start), _offset(end), _expect(label, str, "a label", "a string"), quotation)


def _offset(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise RecordError(f"an offset is not a whole number: {_excerpt(value)}")
    return value


def _expect(value: object, kind: type[_T], what: str, shape: str) -> _T:
    if not isinstance(value, kind):
        raise RecordError(f"{what} is not {shape}: {_excerpt(value)}")
    return value


def _excerpt(value: object) -> str:
    return "missing" if value is None else json.dumps(value, ensure_ascii=False)[:60]
