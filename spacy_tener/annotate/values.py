"""Conversion of any values to JSON, to UTF-8 and to msgpack."""

from __future__ import annotations

import base64
import json
from typing import Any


def dump_json(value: Any) -> str:
    """Return a value as JSON. If it has lone surrogates, all of it is escaped to ASCII, where JSON can spell them."""
    try:
        line = json.dumps(value, ensure_ascii=False, default=_plain)
        line.encode()
    except TypeError:  # a key of a type that JSON does not have
        return json.dumps(encodable(value), default=_plain)
    except UnicodeEncodeError:
        return json.dumps(value, default=_plain)
    return line


def encodable(value: Any) -> Any:
    """Return a value that can be written as UTF-8: lone surrogates in its strings and keys are escaped."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode(errors="backslashreplace").decode()
    if isinstance(value, (list, tuple)):
        return [encodable(each) for each in value]
    if isinstance(value, dict):
        return {_key(name): encodable(each) for name, each in value.items()}
    return value.tolist() if hasattr(value, "tolist") else value  # arrays and numbers of numpy


def packable(value: Any) -> Any:
    """Return a value that msgpack can hold. Other types, such as dates and integers over 64 bits, become strings."""
    if isinstance(value, (list, tuple)):
        return [packable(each) for each in value]
    if isinstance(value, dict):
        return {_key(name): packable(each) for name, each in value.items()}
    if hasattr(value, "tolist"):
        return packable(value.tolist())
    is_long = isinstance(value, int) and not -(1 << 63) <= value < 1 << 64
    return encodable(value) if isinstance(value, (str, bytes, int, float, type(None))) and not is_long else str(value)


def _key(name: Any) -> Any:
    """Return a key that JSON can hold: keys of other types become strings."""
    return name if isinstance(name, (int, float, type(None))) else encodable(str(name))


def _plain(value: Any) -> Any:
    """Return a value that JSON lacks a type for: bytes as base64, others such as dates and decimals as strings."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
