"""Access control: the API key, and the origins allowed by CORS."""

from __future__ import annotations

import base64
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..errors import RemedyError

VARIABLE = "TENER_API_KEY"
_ORIGIN = re.compile(r"\*|https?://[^/\s]+")


def read_api_key(path: Path | None) -> str:
    """Return the API key from a file, or else from the environment; an empty string if neither gives one."""
    key, place = os.environ.get(VARIABLE, ""), VARIABLE
    if path is not None:
        try:
            key, place = path.read_text(encoding="utf8"), str(path)
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "is not text"
            raise RemedyError(f"{path}: {reason}", "Name a text file that holds only the API key.") from error
    key = key.strip()
    if (path is not None and not key) or not key.isascii() or not key.isprintable() or " " in key:
        raise RemedyError(f"There is no API key in {place}", "A key is one word of ASCII letters, digits and signs.")
    return key


def check_origins(origins: Iterable[str]) -> list[str]:
    """Return the origins, or refuse one that no browser would send."""
    origins = list(origins)
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise RemedyError(
                f"'{origin}' is not an origin", "Write it as https://host or https://host:port, or * for all."
            )
    return origins


def has_key(headers: Mapping[str, str], key: str) -> bool:
    """Check the Authorization header in constant time: `Bearer KEY`, or `Basic` with the key as the password."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        try:
            given = base64.b64decode(given.strip(), validate=True).decode("latin-1").partition(":")[2]
        except ValueError:
            return False
    elif scheme.lower() != "bearer":
        return False
    return secrets.compare_digest(given.strip().encode("latin-1", "replace"), key.encode())
