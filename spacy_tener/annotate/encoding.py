"""Conversion of arbitrary values, such as dates, NumPy arrays and lone surrogates, to JSON, UTF-8 and msgpack."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable
from typing import Any


def dump_json(value: Any) -> str:
    """Return a value as JSON. NaN and infinity become null, because JSON cannot represent them.

    A value with lone surrogates cannot be encoded as UTF-8. All non-ASCII characters of this value are escaped.
    """
    try:
        line = json.dumps(value, ensure_ascii=False, allow_nan=False, default=_json_value)
    except (TypeError, ValueError):  # a key or a number that JSON cannot represent
        value = _converted(value, _json_value)
        line = json.dumps(value, ensure_ascii=False)
    try:
        line.encode()
    except UnicodeEncodeError:
        return json.dumps(value, default=_json_value)
    return line


def dump_jsonl(records: Iterable[Any]) -> str:
    """Return values as JSONL, with one value on each line."""
    return "".join(f"{dump_json(record)}\n" for record in records)


def encodable(value: Any) -> Any:
    """Return a value whose strings and keys can be encoded as UTF-8. Lone surrogates are escaped."""
    return _converted(value, _encodable)


def packable(value: Any) -> Any:
    """Return a value that msgpack can encode. Other types, such as dates, and integers of more than 64 bits become
    strings."""
    return _converted(value, _packable)


def _converted(value: Any, convert: Callable[[Any], Any]) -> Any:
    """Apply `convert` to all values in nested lists, dicts and NumPy arrays. Keys that JSON cannot represent become
    strings."""
    if isinstance(value, (list, tuple)):
        return [_converted(item, convert) for item in value]
    if isinstance(value, dict):
        return {
            name if isinstance(name, (int, float, type(None))) else convert(str(name)): _converted(item, convert)
            for name, item in value.items()
        }
    return _converted(value.tolist(), convert) if hasattr(value, "tolist") else convert(value)


def _encodable(value: Any) -> Any:
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value


def _packable(value: Any) -> Any:
    # msgpack has integers from -2^63 to 2^64 - 1.
    is_long = isinstance(value, int) and not -(1 << 63) <= value < 1 << 64
    is_packable = isinstance(value, (str, bytes, int, float, type(None))) and not is_long
    return _encodable(value if is_packable else str(value))


def _json_value(value: Any) -> Any:
    """Return a single value as a JSON type. Bytes become base64; other types, such as dates, become strings."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, type(None))) else str(value)
