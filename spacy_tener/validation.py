"""Checks of the arguments of registered functions, with errors that name the function and the argument.

A function with `validated` checks its arguments by their annotations, as pydantic's `validate_call` does:

    @validated("spacy_tener.TENER.v1")
    def build_tener(embed: EmbedModel | None = None, width: PositiveInt = 128, ...) -> EmbedModel:

    build_tener(width=0)    RemedyError: spacy_tener.TENER.v1: width must be greater than 0; got 0

Arguments that do not fit together raise a `SettingError`, in the function or in the `__post_init__` of a config, which
gets the name of the registered function too. Annotate numbers with pydantic's types, such as `PositiveInt`, or with
those below.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import signature
from typing import Annotated, Any, ParamSpec, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, PositiveInt, ValidationError, validate_call

from .errors import RemedyError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

# pydantic's settings for configs and registered functions. Integers are accepted for floats, but neither booleans nor
# floats for integers.
STRICT = ConfigDict(strict=True, arbitrary_types_allowed=True, allow_inf_nan=False)


class SettingError(ValueError):
    """Raised for arguments that do not fit together. `validated` adds the name of the registered function."""


def _check_odd(value: int) -> int:
    """Raise an error for an even number."""
    if value % 2 == 0:
        raise SettingError("must be odd, so that it has a middle")
    return value


# A window size, which must be odd so that the window has a middle.
OddInt = Annotated[PositiveInt, AfterValidator(_check_odd)]
# A probability below 1, such as a dropout rate.
Probability = Annotated[float, Field(ge=0.0, lt=1.0)]
# A fraction above 0 and up to 1.
Fraction = Annotated[float, Field(gt=0.0, le=1.0)]


def validated(registered: str) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Decorate a registered function, so that calls check the arguments by their annotations.

    registered (str): The registered name, with which errors begin.
    """

    def decorate(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        parameters = signature(function)
        checked = validate_call(config=STRICT)(function)

        @wraps(function)
        def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            with name_errors(registered):
                # Arguments are passed by name, since pydantic's errors give positional arguments a number.
                return checked(**parameters.bind(*args, **kwargs).arguments)  # type: ignore[call-arg]

        return call

    return decorate


@contextmanager
def name_errors(registered: str) -> Iterator[None]:
    """Convert errors of pydantic, and `SettingError`s, to a `RemedyError` that begins with the registered name."""
    try:
        yield
    except ValidationError as error:
        problem = "; ".join(map(_describe, error.errors(include_url=False)))
    except SettingError as error:
        problem = str(error)
    else:
        return
    raise RemedyError(f"{registered}: {problem}", "Correct the config.")


def _describe(error: Any) -> str:
    """Describe an error of pydantic: the argument's name, what is wrong, and its value."""
    if not error["loc"]:  # a `SettingError` of a config's `__post_init__`
        return str(error["ctx"]["error"])
    # For an argument with several types, pydantic adds the type to its name: "layers.constrained-int".
    names = [str(part) for part in error["loc"] if str(part).isidentifier() or isinstance(part, int)]
    # pydantic's messages begin with "Input should be" or "List should have", and those of a `SettingError` with "must".
    reason = re.sub(r"^\w+ should", "must", error["msg"].removeprefix("Value error, "))
    return f"{'.'.join(names)} {reason}; got {error['input']!r}"


def check_window(window: int, overlap: int) -> None:
    """Raise an error if a window of word pieces is too short for its overlap."""
    minimum = 2 * overlap + 16
    if window < minimum:
        raise SettingError(f"window must be at least {minimum}, twice the overlap and 16 pieces; got {window}")
