"""Settings of encoders and embedders: dataclasses whose annotations say which values their fields may have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints


class SettingError(ValueError):
    """A value that a setting cannot have. Which architecture it was given to, `expand_config` puts in front."""


class Rule(NamedTuple):
    """What is true of the values that a field may have, and how a message says so."""

    valid: Callable[[Any], bool]
    needed: str


Size = Annotated[int, Rule(lambda value: value >= 1, "at least 1")]
Count = Annotated[int, Rule(lambda value: value >= 0, "at least 0")]
Weight = Annotated[float, Rule(lambda value: value >= 0.0, "at least 0")]
Positive = Annotated[float, Rule(lambda value: value > 0.0, "above 0")]
Probability = Annotated[float, Rule(lambda value: 0.0 <= value < 1.0, "at least 0 and below 1")]


class Settings:
    """What a config inherits: each value is checked by its field's annotation, `Literal` or one of those above."""

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self), include_extras=True).items():
            value = getattr(self, name)
            if value is not None:
                for rule in _rules(hint):
                    check(name, value, rule.valid(value), rule.needed)


def check(name: str, value: object, valid: bool, needed: str) -> None:
    if not valid:
        raise SettingError(f"{name} must be {needed}; got {value!r}.")


def check_window(size: int) -> None:
    """A window over the characters or components of a token has a middle."""
    check("window", size, size >= 1 and size % 2 == 1, "an odd number, so that a filter has a middle")


def _rules(hint: Any) -> Iterator[Rule]:
    if get_origin(hint) is Annotated:
        yield from hint.__metadata__
    elif get_origin(hint) is Literal:
        choices = get_args(hint)
        yield Rule(lambda value: value in choices, f"one of {', '.join(map(repr, choices))}")
    elif type(None) in get_args(hint):
        for part in get_args(hint):
            yield from _rules(part)
