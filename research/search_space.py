"""Search spaces: config files with choices, ranges and formulas as values.

    [draws]
    head_width = [32, 48, 64]

    [components.tener_ner.model.tok2vec]
    heads = [4, 8]
    width = "= heads * head_width"

    [training.optimizer.learn_rate]
    max_rate = {"low": 0.0001, "high": 0.01, "log": true}

A list is a choice. A section or object with "low" and "high" is a range ("log": uniform on a logarithmic scale;
"step": in steps of this size). A string that begins with "=" is a formula of sampled values, each named by the last
part of its setting. `[draws]` holds variables for formulas that are not settings themselves.
"""

from __future__ import annotations

import ast
import json
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spacy_tener.workbench.composing.compose import wrap_config_errors
from spacy_tener.workbench.composing.files import ConfigError, did_you_mean, find, read_config

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

SPACES = Path(__file__).parent / "spaces"
DRAWS = "draws."
_FORMS = 'Write a list of values, {"low": 1, "high": 9}, or "= a formula"; fixed values belong in an overlay.'
_RANGE = ("high", "log", "low", "step")
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}


@dataclass(frozen=True)
class Space:
    """The settings that a search samples.

    draws: Dotted name -> Optuna's distribution, of sampled settings and of the variables in `[draws]`.
    formulas: Dotted name -> formula.
    """

    draws: Mapping[str, BaseDistribution]
    formulas: Mapping[str, str]

    @property
    def settings(self) -> list[str]:
        """The dotted names of all settings of the space."""
        return [*(name for name in self.draws if not name.startswith(DRAWS)), *self.formulas]

    @property
    def described(self) -> dict[str, Any]:
        """The space as JSON, to compare it with another."""
        from optuna.distributions import distribution_to_json

        draws = {name: json.loads(distribution_to_json(draw)) for name, draw in self.draws.items()}
        return {"draws": draws, "formulas": dict(self.formulas)}

    def values(self, drawn: Mapping[str, Any]) -> dict[str, Any]:
        """Return the value of each setting for the sampled values."""
        named = {_last(name): value for name, value in drawn.items()}
        settings = {name: value for name, value in drawn.items() if not name.startswith(DRAWS)}
        for name, text in self.formulas.items():
            try:
                settings[name] = _evaluate(_parse(text), named)
            except (ArithmeticError, TypeError, ValueError) as error:
                raise ConfigError(f'{name}: "{text}" has no value: {error}', "Correct the formula.") from error
        return settings

    def example(self) -> dict[str, Any]:
        """Return the first of each choice and the lowest of each range."""
        return {name: bounds(draw)[0] for name, draw in self.draws.items()}


def bounds(draw: BaseDistribution) -> tuple[Any, ...]:
    """Return the values of a choice, or the lowest and highest of a range."""
    return getattr(draw, "choices", None) or (getattr(draw, "low"), getattr(draw, "high"))  # noqa: B009


def find_space(config: Path | str) -> Path:
    """Find a search space by its path, or by its name as in `mect`."""
    return find(config, SPACES, "search space")


def read_space(path: Path) -> Space:
    """Read a space from its file. Errors name the file and the setting."""
    try:
        import optuna  # noqa: F401
    except ImportError as error:
        raise ConfigError("A search needs optuna", "pip install -r research/requirements.txt") from error
    draws: dict[str, BaseDistribution] = {}
    formulas: dict[str, str] = {}
    for name, value in _leaves(read_config(path)):
        try:
            if isinstance(value, str) and value.startswith("="):
                formulas[name] = value
                _parse(value)
            else:
                draws[name] = _draw(value)
        except ValueError as error:
            raise ConfigError(f"{path}: {name}: {str(error).removesuffix('.')}", _FORMS) from error
    space = Space(draws, formulas)
    _check(space, path)
    return space


def as_settings(values: Mapping[str, Any]) -> list[str]:
    """Return values as settings for `compose`."""
    return [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in values.items()]


def _leaves(section: Mapping[str, Any], parent: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in section.items():
        if isinstance(value, Mapping) and not {"low", "high"} <= set(value):
            yield from _leaves(value, f"{parent}{key}.")
        else:
            yield f"{parent}{key}", value


def _draw(value: Any) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(value, list):
        unusable = [choice for choice in value if not isinstance(choice, bool | int | float | str | None)]
        if unusable:
            raise ValueError(f"{json.dumps(unusable[0])} is not a number, string, true, false or null")
        if len({json.dumps(choice) for choice in value}) < len(value):
            raise ValueError("a value occurs twice")
        return CategoricalDistribution(value)
    if not isinstance(value, Mapping):
        raise ValueError(f"{json.dumps(value)} is neither a choice nor a range")
    if unknown := sorted(set(value) - set(_RANGE)):
        raise ValueError(f"a range has {', '.join(_RANGE)}, not {unknown[0]}")
    numbers = [number for key, number in value.items() if key != "log" and not (key == "step" and number is None)]
    if not isinstance(value.get("log", False), bool):
        raise ValueError("`log` is true or false")
    if any(isinstance(number, bool) or not isinstance(number, int | float) for number in numbers):
        raise ValueError("`low`, `high` and `step` are numbers")
    if not value["low"] < value["high"]:
        raise ValueError("`low` must be below `high`")
    low, high, log, step = value["low"], value["high"], value.get("log", False), value.get("step")
    if not (isinstance(low, int) and isinstance(high, int)):
        return FloatDistribution(low, high, log=log, step=step)
    if isinstance(step, float):
        raise ValueError("`step` must be an integer in a range of integers")
    return IntDistribution(low, high, log=log, step=1 if step is None else step)


def _check(space: Space, path: Path) -> None:
    """Refuse formulas with unknown names, and variables that no formula uses."""
    if not space.draws:
        raise ConfigError(f"{path}: there is nothing to sample", _FORMS)
    drawn = [_last(name) for name in space.draws]
    names_used = {name for text in space.formulas.values() for name in _names(_parse(text))}
    for setting, text in space.formulas.items():
        for name in _names(_parse(text)):
            if drawn.count(name) != 1:
                problem = "is not sampled" if name not in drawn else "is ambiguous: several sampled values end in it"
                reason = f"{path}: {setting}: '{name}' in \"{text}\" {problem}"
                raise ConfigError(reason, did_you_mean(name, sorted({*drawn} - {name}), "Add it to [draws]."))
    for name in space.draws:
        if name.startswith(DRAWS) and _last(name) not in names_used:
            raise ConfigError(f"{path}: {name}: no formula uses it", "Use it, or remove it.")
    with wrap_config_errors(str(path)):
        space.values(space.example())


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _parse(formula: str) -> ast.expr:
    try:
        return ast.parse(formula[1:].strip(), mode="eval").body
    except SyntaxError as error:
        raise ValueError(f'"{formula}" is not a formula') from error


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
            raise ValueError(f"'{ast.unparse(formula)}' has more than + - * / // of numbers and sampled values")
