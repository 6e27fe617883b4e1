"""Text that could not be read from its file."""

from __future__ import annotations

from typing import Any


class Damaged(str):
    """What was read of a text, as far as it could be, and why it was not read in full."""

    reason: str

    def __new__(cls, text: str, reason: str) -> Damaged:
        new = super().__new__(cls, text)
        new.reason = reason
        return new

    def __reduce__(self) -> tuple[Any, ...]:
        return Damaged, (str(self), self.reason)


def checked(text: str, where: str, encoding: str) -> str:
    """A text that was decoded with bad bytes as halves of surrogate pairs: damaged if there are any."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return Damaged(text, f"{where}: the text is not {encoding.upper()}")
    return text
