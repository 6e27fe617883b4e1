"""What a random search draws from: a file with choices and ranges at the places of a config's settings.

    [draws]
    head_width = [32, 48, 64]

    [components.tener_ner.model.tok2vec]
    heads = [4, 8]
    width = "= heads * head_width"

    [training.optimizer.learn_rate]
    max_rate = {"low": 0.0001, "high": 0.01, "log": true}

A list is a choice of one of its values, a section or value with "low" and "high" a range ("log": even on a logarithmic
scale; "step": only every so many). A string that begins with "=" is a formula over what is drawn, which is known by the
last part of its name. `[draws]` has what is no setting itself, and serves formulas only.
"""

from __future__ import annotations

import ast
import json
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .compose import explained
from .files import ConfigError, did_you_mean, read_config

DRAWS = "draws"
_FORMS = 'Write a list of values, {"low": 1, "high": 9}, or "= a formula"; what is fixed belongs into an overlay.'
_RANGE = {"low", "high", "log", "step"}
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
Scalar = bool | int | float | str | None


@dataclass(frozen=True)
class Choice:
    """One of some values."""

    values: tuple[Scalar, ...]


@dataclass(frozen=True)
class Range:
    """A number between two, these included; a whole one if they are whole.

    log: evenly on a logarithmic scale.
    step: only each so many from the lowest.
    """

    low: float
    high: float
    log: bool = False
    step: float | None = None

    @property
    def whole(self) -> bool:
        return all(isinstance(number, int) for number in (self.low, self.high))


@dataclass(frozen=True)
class Space:
    """Where settings are drawn from.

    draws: by the setting's dotted name; those in `[draws]` are no settings.
    formulas: by the setting's dotted name.
    """

    draws: Mapping[str, Choice | Range]
    formulas: Mapping[str, str]

    @property
    def settings(self) -> list[str]:
        """The dotted names of all settings that the space decides."""
        return [*(name for name in self.draws if not _is_draw(name)), *self.formulas]

    def values(self, drawn: Mapping[str, Any]) -> dict[str, Any]:
        """The value of each setting, from those of all draws."""
        named = {_last(name): value for name, value in drawn.items()}
        settings = {name: value for name, value in drawn.items() if not _is_draw(name)}
        for name, text in self.formulas.items():
            try:
                settings[name] = _evaluate(_parse(text), named)
            except (ArithmeticError, TypeError, ValueError) as error:
                raise ConfigError(f'{name}: "{text}" has no value: {error}', "Mend the formula.") from error
        return settings

    def example(self) -> dict[str, Any]:
        """The first of each choice, and the lowest of each range."""
        return {name: draw.values[0] if isinstance(draw, Choice) else draw.low for name, draw in self.draws.items()}


def read_space(path: Path) -> Space:
    """A space from its file. What is wrong in it is said with the file's and the setting's name."""
    draws: dict[str, Choice | Range] = {}
    formulas: dict[str, str] = {}
    for name, value in _leaves(read_config(path)):
        try:
            if isinstance(value, str) and value.startswith("="):
                formulas[name] = value
                _parse(value)
            else:
                draws[name] = _draw(value)
        except ValueError as error:
            raise ConfigError(f"{path}: {name}: {error}", _FORMS) from error
    space = Space(draws, formulas)
    _check(space, path)
    return space


def as_settings(values: Mapping[str, Any]) -> list[str]:
    """Values as `compose` takes them."""
    return [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in values.items()]


def _leaves(section: Mapping[str, Any], parent: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in section.items():
        if isinstance(value, Mapping) and not {"low", "high"} <= set(value):
            yield from _leaves(value, f"{parent}{key}.")
        else:
            yield f"{parent}{key}", value


def _draw(value: Any) -> Choice | Range:
    if isinstance(value, list):
        return _choice(value)
    if isinstance(value, Mapping):
        return _range(value)
    raise ValueError(f"{json.dumps(value)} is nothing to draw from")


def _choice(values: list[Any]) -> Choice:
    if not values:
        raise ValueError("a choice of nothing")
    odd = [value for value in values if value is not None and not isinstance(value, bool | int | float | str)]
    if odd:
        raise ValueError(f"{json.dumps(odd[0])} is no number, string, true, false or null")
    if len({json.dumps(value) for value in values}) < len(values):
        raise ValueError("a value stands there twice")
    return Choice(tuple(values))


def _range(value: Mapping[str, Any]) -> Range:
    unknown = sorted(set(value) - _RANGE)
    if unknown:
        raise ValueError(f"a range has {', '.join(sorted(_RANGE))}, not {unknown[0]}")
    log, numbers = value.get("log", False), [value["low"], value["high"], value.get("step") or 1]
    if not isinstance(log, bool):
        raise ValueError("`log` is true or false")
    if any(isinstance(number, bool) or not isinstance(number, int | float) for number in numbers):
        raise ValueError("`low`, `high` and `step` are numbers")
    made = Range(value["low"], value["high"], log, value.get("step"))
    if not made.low < made.high:
        raise ValueError("`low` must be below `high`")
    if made.log and (made.low <= 0 or made.step is not None):
        raise ValueError("a range with `log` begins above 0 and has no `step`")
    if made.step is not None and (made.step <= 0 or (made.whole and not isinstance(made.step, int))):
        raise ValueError("`step` must be above 0, and whole where the range is")
    return made


def _check(space: Space, path: Path) -> None:
    """Refuse formulas over nothing, and draws that no formula asks for."""
    if not space.draws:
        raise ConfigError(f"{path}: there is nothing to draw from", _FORMS)
    drawn = [_last(name) for name in space.draws]
    asked = {name for text in space.formulas.values() for name in _names(_parse(text))}
    for setting, text in space.formulas.items():
        for name in _names(_parse(text)):
            if drawn.count(name) != 1:
                how_many = "nothing" if name not in drawn else "more than one thing"
                reason = f"{path}: {setting}: '{name}' in \"{text}\" is the name of {how_many} that is drawn"
                raise ConfigError(reason, did_you_mean(name, sorted({*drawn} - {name}), "Draw it in [draws]."))
    for name in space.draws:
        if _is_draw(name) and _last(name) not in asked:
            raise ConfigError(f"{path}: {name}: no formula asks for it", "Use it, or take it out.")
    with explained(str(path)):
        space.values(space.example())


def _is_draw(name: str) -> bool:
    return name.partition(".")[0] == DRAWS


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _parse(formula: str) -> ast.expr:
    try:
        return ast.parse(formula[1:].strip(), mode="eval").body
    except SyntaxError as error:
        raise ValueError(f'"{formula}" is no formula') from error


def _names(formula: ast.expr) -> list[str]:
    return [node.id for node in ast.walk(formula) if isinstance(node, ast.Name)]


def _evaluate(formula: ast.expr, drawn: Mapping[str, Any]) -> Any:
    match formula:
        case ast.Name(id=name):
            return drawn[name]
        case ast.Constant(value=value):
            return value
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_evaluate(left, drawn), _evaluate(right, drawn))
        case ast.Dict(keys=keys, values=values) if all(keys):
            pairs = zip(keys, values, strict=True)
            return {_evaluate(key, drawn): _evaluate(value, drawn) for key, value in pairs if key}
        case _:
            raise ValueError(
                f"'{ast.unparse(formula)}' is not sums, differences, products and quotients of what is drawn"
            )
