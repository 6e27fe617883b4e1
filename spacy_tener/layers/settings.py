"""Checks of an encoder's sizes and choices, with the same messages for all.

what: whose settings they are, as in "MECT's".
optional: settings that may be None, where the config has a rule of its own for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def check(what: str, name: str, value: object, valid: bool, needed: str) -> None:
    if not valid:
        raise ValueError(f"{what} {name} must be {needed}; got {value!r}.")


def check_sizes(what: str, config: Any, names: Sequence[str], optional: Sequence[str] = ()) -> None:
    for name, value in _given(config, names, optional):
        check(what, name, value, value >= 1, "at least 1")


def check_dropouts(what: str, config: Any, names: Sequence[str], optional: Sequence[str] = ()) -> None:
    for name, value in _given(config, names, optional):
        check(what, name, value, 0.0 <= value < 1.0, "at least 0 and below 1")


def check_choices(what: str, config: Any, choices: Mapping[str, Sequence[str]]) -> None:
    for name, allowed in choices.items():
        value = getattr(config, name)
        check(what, name, value, value in allowed, f"one of {', '.join(map(repr, allowed))}")


def _given(config: Any, names: Sequence[str], optional: Sequence[str]) -> Iterator[tuple[str, Any]]:
    for name in (*names, *optional):
        value = getattr(config, name)
        if value is not None or name not in optional:
            yield name, value
