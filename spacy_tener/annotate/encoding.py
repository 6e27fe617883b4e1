"""Convert values of any type to JSON, UTF-8 or msgpack.

Records can contain values that these formats do not support, for example dates, NumPy arrays and lone surrogates.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable
from typing import Any


def dump_json(value: Any) -> str:
    """Serialize a value as JSON.

    NaN and infinity become null, because JSON does not support them. If the value contains lone surrogates, which UTF-8
    cannot encode, all non-ASCII characters are escaped.
    """
    try:
        line = json.dumps(value, ensure_ascii=False, allow_nan=False, default=_json_value)
    except (TypeError, ValueError):  # raised for NaN, infinity and keys of unsupported types
        value = _converted(value, _json_value)
        line = json.dumps(value, ensure_ascii=False)
    try:
        line.encode()
    except UnicodeEncodeError:
        return json.dumps(value, default=_json_value)
    return line


def dump_jsonl(records: Iterable[Any]) -> str:
    """Serialize values as JSONL, with one value per line."""
    return "".join(f"{dump_json(record)}\n" for record in records)


def encodable(value: Any) -> Any:
    """Escape lone surrogates in all strings in a value, so that the value can be encoded as UTF-8."""
    return _converted(value, _encodable)


def packable(value: Any) -> Any:
    """Convert a value so that msgpack can serialize it.

    Values of unsupported types, such as dates, are converted to strings. So are integers with more than 64 bits.
    """
    return _converted(value, _packable)


def _converted(value: Any, convert: Callable[[Any], Any]) -> Any:
    """Apply `convert` to each value in nested lists, dicts and NumPy arrays.

    Dict keys are converted to strings, unless they are numbers or None, which `json.dumps` supports as keys.
    """
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
    # msgpack's integer types range from -2^63 to 2^64 - 1.
    is_long = isinstance(value, int) and not -(1 << 63) <= value < 1 << 64
    is_packable = isinstance(value, (str, bytes, int, float, type(None))) and not is_long
    return _encodable(value if is_packable else str(value))


def _json_value(value: Any) -> Any:
    """Convert a single value to a type that JSON supports.

    Bytes are encoded as base64. Values of other unsupported types, such as dates, are converted to strings.
    """
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, type(None))) else str(value)
