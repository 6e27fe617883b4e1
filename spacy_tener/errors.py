"""User-facing errors, each with a remedy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class RemedyError(ValueError):
    """Error that says where, why, and what to do about it.

    reason: without a full stop at its end, and without the place.
    remedy: one or more whole sentences.
    place: the file and line where it was found, if it was found in one.
    """

    def __init__(self, reason: str, remedy: str, *, place: str = "") -> None:
        self.reason = reason
        self.remedy = remedy
        self.place = place
        super().__init__(f"{place}: {reason}. {remedy}" if place else f"{reason}. {remedy}")

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions cross from one process to another by pickle, which would call __init__ with the message alone.
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[RemedyError], args: tuple[Any, ...], state: dict[str, Any]) -> RemedyError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class InputError(RemedyError):
    """Error in a file that a user names, or in its place.

    source: the file's name, or what stands for it.
    line: where in the file, counted from 1.
    """

    def __init__(self, source: str, reason: str, remedy: str, *, line: int | None = None) -> None:
        self.source = source
        self.line = line
        super().__init__(reason, remedy, place=source if line is None else f"{source}:{line}")


class MissingPackageError(ImportError):
    """Error that says what a package is needed for that is not installed, and how to install it.

    reason, remedy: as of `RemedyError`.
    """

    def __init__(self, reason: str, remedy: str) -> None:
        self.reason = reason
        self.remedy = remedy
        super().__init__(f"{reason}. {remedy}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason, self.remedy)


def check_choice(what: str, value: str, choices: Iterable[str]) -> None:
    """Refuse a value that is none of the choices. what: its kind, as `metric`."""
    choices = list(choices)
    if value not in choices:
        raise RemedyError(f"Unknown {what} '{value}'", f"Use one of: {', '.join(choices)}.")
