"""JSON values of a file, one a line, in a list or one after the other, with the lines that they begin on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from .records import RecordError

JsonRecord = dict[str, Any]

SEE_HELP = "`python -m spacy tener convert --help` names the formats."
_DECODER = json.JSONDecoder()
_BETWEEN_VALUES = re.compile(r"[\s,]*")


def read_records(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, object]]:
    """The JSON values of a file, or what is wrong with them, with the lines that they begin on.

    A file that begins with an object or a pair on one line is read line by line; one that begins with a list, or with
    an object over several lines, is read whole.
    """
    numbered: Iterator[tuple[int, str]] = ((number, line) for number, line in lines if line.strip())
    first = next(numbered, None)
    if first is None:
        return iter(())
    numbered = chain([first], numbered)
    return _by_line(numbered) if _is_record(first[1]) else _whole(_joined(numbered))


def check_record(value: object) -> JsonRecord:
    if isinstance(value, RecordError):
        raise value
    if _is_pair(value):
        value = {"text": value[0], **value[1]}  # type: ignore[index]
    if not isinstance(value, dict):
        raise RecordError("the record is not a JSON object", "Each record is an object with a text and its entities.")
    _check_strings(value)
    return value


def _check_strings(value: JsonRecord) -> None:
    """Refuse halves of surrogate pairs, which JSON can escape: no Doc can hold them, and no message can be printed."""
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):x}"
        reason = f"the record holds half of a surrogate pair ({half})"
        raise RecordError(reason, "Write its text as valid JSON.") from None
    except RecursionError as error:
        raise _not_json(error) from None


def _joined(numbered: Iterable[tuple[int, str]]) -> str:
    """The lines as one text, with the blank lines between them, so that the text's lines can be counted."""
    text: list[str] = []
    for number, line in numbered:
        text += [""] * (number - 1 - len(text)) + [line]
    return "\n".join(text)


def _is_record(line: str) -> bool:
    try:
        value = _DECODER.decode(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) or _is_pair(value)


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and [type(part) for part in value] == [str, dict]


def _by_line(numbered: Iterable[tuple[int, str]]) -> Iterator[tuple[int, object]]:
    for number, line in numbered:
        try:
            yield number, _DECODER.decode(line)
        except (ValueError, RecursionError) as error:
            yield number, _not_json(error)


def _whole(text: str) -> Iterator[tuple[int, object]]:
    """The elements of a JSON list, or the JSON values that follow each other."""
    position = _next(text, 0)
    in_list = text.startswith("[", position)
    position = _next(text, position + in_list)
    line, counted = 1, 0
    while position < len(text) and not (in_list and text[position] == "]"):
        line, counted = line + text.count("\n", counted, position), position
        try:
            value, end = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            yield getattr(error, "lineno", line), _not_json(error)
            return
        yield line, value
        position = _next(text, end)
    if in_list and text[position:].strip() != "]":
        line += text.count("\n", counted, position)
        yield line, RecordError("the JSON list does not end here as it should", "Is the file whole?")


def _next(text: str, position: int) -> int:
    match = _BETWEEN_VALUES.match(text, position)
    return match.end() if match else position


def _not_json(error: Exception) -> RecordError:
    if isinstance(error, json.JSONDecodeError):
        reason = f"{error.msg} at column {error.colno}"
    else:
        reason = "nested too deeply" if isinstance(error, RecursionError) else "a number of more than 4,000 digits"
    remedy = "Each record is a JSON object on a line of its own, or the file is a JSON list of them."
    return RecordError(f"not valid JSON: {reason}", remedy)


def is_strings(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(part, str) for part in value)


def excerpt(value: object) -> str:
    return "missing" if value is None else json.dumps(value, ensure_ascii=False)[:60]
