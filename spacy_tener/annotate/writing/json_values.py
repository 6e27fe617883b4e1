"""Values of any kind as JSON, and as what UTF-8 can hold."""

from __future__ import annotations

import base64
import json
from typing import Any


def encodable(value: Any) -> Any:
    """A value whose strings can be UTF-8: halves of surrogate pairs are spelled out."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode(errors="backslashreplace").decode()
    if isinstance(value, list):
        return [encodable(each) for each in value]
    if isinstance(value, dict):
        return {encodable(name): encodable(each) for name, each in value.items()}
    return value


def as_json(value: Any) -> str:
    """A value as JSON. Halves of surrogate pairs, which JSON can spell, make the whole of it ASCII."""
    line = json.dumps(value, ensure_ascii=False, default=_plain)
    try:
        line.encode()
    except UnicodeEncodeError:
        return json.dumps(value, default=_plain)
    return line


def _plain(value: Any) -> Any:
    """What JSON has no form for: bytes in base 64, dates and decimals as they print."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
