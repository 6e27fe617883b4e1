"""Settings: types that restrict values, the check of a registered function's arguments, and configs of encoders.

The functions of `models` that make an architecture explain each field, and say which paper the defaults are from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from inspect import signature
from typing import Annotated, Any, ClassVar, Literal, ParamSpec, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, ValidationError, validate_call
from pydantic.dataclasses import dataclass

from .errors import RemedyError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

STRICT = ConfigDict(strict=True, arbitrary_types_allowed=True, allow_inf_nan=False)
"""A boolean is no number and 128.0 no size, but a rate may be a whole number."""


class SettingError(ValueError):
    """Settings that do not fit together."""


def _check_odd(size: int) -> int:
    if size % 2 == 0:
        raise SettingError("must be odd, so that it has a middle")
    return size


Size = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
OddSize = Annotated[Size, AfterValidator(_check_odd)]
Weight = Annotated[float, Field(ge=0.0)]
Positive = Annotated[float, Field(gt=0.0)]
Share = Annotated[float, Field(gt=0.0, le=1.0)]
Probability = Annotated[float, Field(ge=0.0, lt=1.0)]


def validated(registered: str) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Check the arguments of a registered function by their annotations. Errors begin with the registered name."""

    def decorate(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        parameters, checked = signature(function), validate_call(config=STRICT)(function)

        @wraps(function)
        def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            try:
                # By name, since errors would number positional arguments.
                return checked(**parameters.bind(*args, **kwargs).arguments)  # type: ignore[call-arg]
            except ValidationError as error:
                problem = "; ".join(map(_describe, error.errors(include_url=False)))
            except SettingError as error:
                problem = str(error)
            raise RemedyError(f"{registered}: {problem}", "Correct the config.")

        return call

    return decorate


def _describe(error: Any) -> str:
    """Return the setting, what it must be, and its value."""
    if not error["loc"]:
        return str(error["ctx"]["error"])
    name, reason = ".".join(map(str, error["loc"])), error["msg"].removeprefix("Value error, ")
    return f"{name} {reason.replace('Input should be', 'must be')}; got {error['input']!r}"


def check_pieces(window: int, overlap: int) -> None:
    """Raise if windows of pieces are too short for their overlap."""
    shortest = 2 * overlap + 16
    if window < shortest:
        raise SettingError(f"window must be at least {shortest}, twice the overlap and 16 pieces; got {window}")


@dataclass(frozen=True, kw_only=True, config=STRICT)
class StackConfig:
    """Settings of encoders that are stacks of transformer layers."""

    width: Size = 128
    layers: Size = 1
    heads: Size = 8
    ff_width: Size | None = None
    dropout: Probability = 0.15
    attention_dropout: Probability | None = 0.0

    usual_ff: ClassVar[int] = 3
    """Width of the feed-forward in widths of the model, where `ff_width` is None."""

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise SettingError(f"width must be a multiple of heads, which is {self.heads}; got {self.width}")
        position, needed = self.width, "even"
        if self.positions_by_head:
            position, needed = self.head_width, f"an even number times heads, which is {self.heads}"
        if position % 2:
            reason = "since positions are pairs of sine and cosine"
            raise SettingError(f"width must be {needed}, {reason}; got {self.width}")

    @property
    def positions_by_head(self) -> bool:
        """Return True if a position is as wide as a head, False if as the model."""
        return False

    @property
    def head_width(self) -> int:
        return self.width // self.heads

    @property
    def map_dropout(self) -> float:
        """Dropout on the attention map."""
        return self.dropout if self.attention_dropout is None else self.attention_dropout


@dataclass(frozen=True, kw_only=True, config=STRICT)
class TransformerConfig(StackConfig):
    """Sizes and choices of a transformer encoder: `build_tener`."""

    heads: Size = 4
    attention_dropout: Probability | None = None
    adapted: bool = True
    scaled: bool | None = None

    usual_ff = 2

    @property
    def positions_by_head(self) -> bool:
        return self.adapted


DISTANCES = ("hh", "ht", "th", "tt")
"""From query to key: head to head, head to tail, tail to head, tail to tail. The order of `SpanPlan.distances`."""

RANDOM_BLOCK = 16
"""Positions of queries, and of keys, in a block of MECT's random attention."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class FlatConfig(StackConfig):
    """Sizes and choices of a FLAT encoder: `build_flat`."""

    distances: Sequence[Literal["hh", "ht", "th", "tt"]] | None = None

    n_streams: ClassVar[int] = 1
    crossed: ClassVar[bool] = False
    key_projection: ClassVar[bool] = True
    random_attention: ClassVar[int] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(set(self.used_distances)) < len(self.used_distances):
            raise SettingError(f"distances must have each distance once; got {self.distances}")

    @property
    def used_distances(self) -> Sequence[str]:
        return self.distances or DISTANCES


@dataclass(frozen=True, kw_only=True, config=STRICT)
class AtssaConfig(StackConfig):
    """Sizes and choices of FLAT-ATSSA's encoder: `build_flat_atssa`."""

    selection: Literal["adaptive", "top_k", "none"] = "adaptive"
    k: Count = 3
    alpha: Positive = 50.0
    tau: Positive = 1.0
    penalty: Weight = 4e-6
    threshold: Literal["adaptive", "fixed"] = "adaptive"

    usual_ff = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.selection == "top_k" and self.k == 0:
            raise SettingError("k must be at least 1 where the k largest scores are kept; got 0")

    @property
    def positions_by_head(self) -> bool:
        return True

    @property
    def selects(self) -> bool:
        return self.selection != "none"


@dataclass(frozen=True, kw_only=True, config=STRICT)
class MectConfig(StackConfig):
    """Sizes and choices of a MECT encoder: `build_mect`."""

    streams: Literal["cross", "parallel", "single"] = "cross"
    random_attention: Count = 320

    key_projection: ClassVar[bool] = False
    """Keys are the input itself: I in eq. 7."""
    used_distances: ClassVar[Sequence[str]] = ("hh", "tt")
    """Head to head and tail to tail only (eq. 11)."""

    @property
    def n_streams(self) -> int:
        return 1 if self.streams == "single" else 2

    @property
    def crossed(self) -> bool:
        """Return True if the queries of each stream are computed from the other."""
        return self.streams == "cross"


RelationKind = Literal["gated", "mean", "attention"]

EXPONENT_LIMIT = 40.0
"""Exponents are clipped to this, positive and negative, so that `u v` fits into float32: e^80 = 5.5e34. That changes a
sum `a + b` only where one of the two is beyond 40; and even then it changes the gate only where the other is beyond 20
with the opposite sign: otherwise the gate is 0 or 1 to within e^-20, clipped or not. Context features are between -1
and 1, so with 400 channels and initial weights neither can be above 35, and most are below 2."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class GRNConfig:
    """Sizes and choices of a gated relation network: `build_grn`."""

    width: Size = 400
    branches: Sequence[OddSize] = (1, 3, 5)
    relation: RelationKind | None = "gated"
    dropout: Probability = 0.5

    def __post_init__(self) -> None:
        if self.relation is None and not self.branches:
            raise SettingError("relation must be 'gated', 'mean' or 'attention' where there are no branches; got None")
