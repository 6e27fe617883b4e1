"""Values of any kind as JSON, and as what UTF-8 and msgpack can hold."""

from __future__ import annotations

import base64
import json
from typing import Any


def dump_json(value: Any) -> str:
    """Return a value as JSON. Halves of surrogate pairs, which JSON can spell, make the whole of it ASCII."""
    try:
        line = json.dumps(value, ensure_ascii=False, default=_plain)
        line.encode()
    except TypeError:  # keys of no kind that JSON knows
        return json.dumps(encodable(value), default=_plain)
    except UnicodeEncodeError:
        return json.dumps(value, default=_plain)
    return line


def encodable(value: Any) -> Any:
    """Return a value whose strings, names of columns too, can be UTF-8: halves of surrogate pairs are spelled out."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode(errors="backslashreplace").decode()
    if isinstance(value, (list, tuple)):
        return [encodable(each) for each in value]
    if isinstance(value, dict):
        return {_key(name): encodable(each) for name, each in value.items()}
    return value.tolist() if hasattr(value, "tolist") else value  # arrays and numbers of numpy


def packable(value: Any) -> Any:
    """Return a value that msgpack can hold. Dates, numbers of over 64 bits and the like are as printed."""
    if isinstance(value, (list, tuple)):
        return [packable(each) for each in value]
    if isinstance(value, dict):
        return {_key(name): packable(each) for name, each in value.items()}
    if hasattr(value, "tolist"):
        return packable(value.tolist())
    is_long = isinstance(value, int) and not -(1 << 63) <= value < 1 << 64
    return encodable(value) if isinstance(value, (str, bytes, int, float, type(None))) and not is_long else str(value)


def _key(name: Any) -> Any:
    """Return the key of a dict in JSON: keys of other kinds are as printed."""
    return name if isinstance(name, (int, float, type(None))) else encodable(str(name))


def _plain(value: Any) -> Any:
    """Return what stands for a value that JSON has no form for: bytes in base 64, dates and decimals as they print."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
