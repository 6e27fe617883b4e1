"""Validate the arguments of registered functions. Error messages contain the function's and the argument's name.

Decorate a registered function with `validated` to check its arguments against the type annotations, as pydantic's
`validate_call` does:

    @validated("spacy_tener.TENER.v1")
    def build_tener(embed: EmbedModel | None = None, width: PositiveInt = 128, ...) -> EmbedModel:

    build_tener(width=0)    UserError: spacy_tener.TENER.v1: width must be greater than 0; got 0

For constraints on numbers, annotate arguments with pydantic's types, such as `PositiveInt`, or with the types in this
module. For constraints on several arguments, raise a `SettingError` in the function or in the `__post_init__` of its
config.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import signature
from typing import Annotated, Any, ParamSpec, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, PositiveInt, ValidationError, validate_call

from .errors import UserError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

# Strict mode: an argument of type float accepts an integer, but no boolean. An argument of type int accepts neither
# floats nor booleans. NaN and infinity are invalid.
STRICT = ConfigDict(strict=True, arbitrary_types_allowed=True, allow_inf_nan=False)


class SettingError(ValueError):
    """Raised for invalid combinations of arguments. `validated` adds the function's registered name to the message."""


def _check_odd(value: int) -> int:
    """Raise a SettingError if the number is even."""
    if value % 2 == 0:
        raise SettingError("must be odd, so that there is a central position")
    return value


# A positive odd number, for window sizes. An odd window has a central position.
OddInt = Annotated[PositiveInt, AfterValidator(_check_odd)]
# A probability from 0 to less than 1, such as a dropout rate.
Probability = Annotated[float, Field(ge=0.0, lt=1.0)]
# A fraction greater than 0 and at most 1.
Fraction = Annotated[float, Field(gt=0.0, le=1.0)]


def validated(registered: str) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Return a decorator that validates the arguments of a registered function against its type annotations.

    registered (str): The function's registered name, for error messages.
    """

    def decorate(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        parameters = signature(function)
        checked = validate_call(config=STRICT)(function)

        @wraps(function)
        def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            with name_errors(registered):
                # Pass arguments by keyword. For positional arguments, pydantic's errors contain the index instead of
                # the name.
                return checked(**parameters.bind(*args, **kwargs).arguments)  # type: ignore[call-arg]

        return call

    return decorate


@contextmanager
def name_errors(registered: str) -> Iterator[None]:
    """Convert a pydantic `ValidationError` or a `SettingError` to a `UserError`.

    registered (str): The registered name to put at the beginning of the message.
    """
    try:
        yield
    except ValidationError as error:
        problem = "; ".join(map(_describe, error.errors(include_url=False)))
    except SettingError as error:
        problem = str(error)
    else:
        return
    raise UserError(f"{registered}: {problem}", "Correct the setting.")


def _describe(error: Any) -> str:
    """Convert a pydantic error to a message with the argument's name, the problem and the invalid value."""
    # A `SettingError` from the `__post_init__` of a config has no argument name.
    if not error["loc"]:
        return str(error["ctx"]["error"])
    # Remove type names from the location. For an argument with a union type, the location also contains the name of the
    # failed type: "layers.constrained-int".
    names = [str(part) for part in error["loc"] if str(part).isidentifier() or isinstance(part, int)]
    # Use the same wording for all errors: pydantic's messages start with "Input should be" or "List should have", and
    # `SettingError` messages with "must".
    reason = re.sub(r"^\w+ should", "must", error["msg"].removeprefix("Value error, "))
    return f"{'.'.join(names)} {reason}; got {error['input']!r}"


def check_window(window: int, overlap: int) -> None:
    """Raise a SettingError if a window has too few word pieces between its overlaps with adjacent windows.

    window (int): Number of word pieces in a window.
    overlap (int): Number of word pieces at each end of a window that only serve as context.
    """
    minimum = 2 * overlap + 16
    if window < minimum:
        raise SettingError(
            f"window must be at least {minimum} (twice the overlap plus 16 subword tokens); got {window}"
        )
