"""Types that restrict values, and the check of a registered function's arguments.

A config of an encoder has its arguments, with their defaults and meanings. `configured` gives them to the function that
makes the architecture, whose docstring says which paper the defaults are from.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import Parameter, Signature, cleandoc, signature
from typing import Annotated, Any, ParamSpec, TypeVar, get_type_hints

from pydantic import AfterValidator, ConfigDict, Field, PositiveInt, ValidationError, validate_call

from .errors import RemedyError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

STRICT = ConfigDict(strict=True, arbitrary_types_allowed=True, allow_inf_nan=False)
"""A boolean is no number and 128.0 no size, but a rate may be a whole number."""


class SettingError(ValueError):
    """Settings that do not fit together."""


def _check_odd(value: int) -> int:
    if value % 2 == 0:
        raise SettingError("must be odd, so that it has a middle")
    return value


OddInt = Annotated[PositiveInt, AfterValidator(_check_odd)]
Probability = Annotated[float, Field(ge=0.0, lt=1.0)]
"""A probability below 1, as that of dropout."""
Fraction = Annotated[float, Field(gt=0.0, le=1.0)]


def validated(registered: str) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Check the arguments of a registered function by their annotations. Errors begin with the registered name."""

    def decorate(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        parameters, checked = signature(function), validate_call(config=STRICT)(function)

        @wraps(function)
        def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            with name_errors(registered):
                # By name, since errors would number positional arguments.
                return checked(**parameters.bind(*args, **kwargs).arguments)  # type: ignore[call-arg]

        return call

    return decorate


def configured(registered: str, config: type[Any]) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """Give a registered function the fields of a config as arguments, with their defaults and meanings.

    The function itself takes the config, as its last argument; others without a default may be left out, and are None.
    Errors begin with the registered name.
    """
    hints = get_type_hints(config, include_extras=True)
    fields = [
        Parameter(field.name, Parameter.POSITIONAL_OR_KEYWORD, default=_default_of(field), annotation=hints[field.name])
        for field in dataclasses.fields(config)
    ]

    def decorate(function: Callable[..., Result]) -> Callable[..., Result]:
        annotations, checked = get_type_hints(function), validate_call(config=STRICT)(function)
        extra = [
            parameter.replace(annotation=annotations[name], default=_default(parameter))
            for name, parameter in signature(function).parameters.items()
            if name != "config"
        ]
        parameters = Signature([*extra, *fields], return_annotation=annotations["return"])

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Result:
            settings = parameters.bind(*args, **kwargs).arguments
            arguments = {argument.name: settings.pop(argument.name, argument.default) for argument in extra}
            with name_errors(registered):
                return checked(**arguments, config=config(**settings))

        call.__signature__ = parameters  # type: ignore[attr-defined]
        call.__annotations__ = {name: part.annotation for name, part in parameters.parameters.items()}
        call.__annotations__["return"] = parameters.return_annotation
        call.__doc__ = f"{cleandoc(function.__doc__ or '')}\n{_meanings(config)}"
        return call

    return decorate


def _default_of(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _default(parameter: Parameter) -> Any:
    return None if parameter.default is Parameter.empty else parameter.default


def _meanings(config: type[Any]) -> str:
    """Return what the docstrings of a config and its bases say of each field."""
    meanings: dict[str, str] = {}
    for base in config.__mro__[-2::-1]:
        entries = cleandoc(vars(base).get("__doc__") or "").partition("\n\n")[2]
        for entry in re.split(r"\n(?=\w+ \()", entries):
            meanings[entry.partition(" ")[0]] = entry
    return "\n".join(filter(None, meanings.values()))


@contextmanager
def name_errors(registered: str) -> Iterator[None]:
    """Raise errors of settings with the registered name."""
    try:
        yield
        return
    except ValidationError as error:
        problem = "; ".join(map(_describe, error.errors(include_url=False)))
    except SettingError as error:
        problem = str(error)
    raise RemedyError(f"{registered}: {problem}", "Correct the config.")


def _describe(error: Any) -> str:
    """Return the setting, what it must be, and its value."""
    if not error["loc"]:
        return str(error["ctx"]["error"])
    # Of an argument with several types, pydantic adds the type to the place: "layers.constrained-int".
    places = [str(place) for place in error["loc"] if str(place).isidentifier() or isinstance(place, int)]
    name, reason = ".".join(places), error["msg"].removeprefix("Value error, ")
    return f"{name} {reason.replace('Input should be', 'must be')}; got {error['input']!r}"


def check_pieces(window: int, overlap: int) -> None:
    """Raise if windows of pieces are too short for their overlap."""
    shortest = 2 * overlap + 16
    if window < shortest:
        raise SettingError(f"window must be at least {shortest}, twice the overlap and 16 pieces; got {window}")
