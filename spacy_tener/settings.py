"""Settings of encoders and embedders: dataclasses whose annotations restrict the values of their fields.

The functions of `models` that make an architecture explain each field, and say which paper the defaults are from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, get_args, get_origin, get_type_hints

from .errors import RemedyError


class SettingError(ValueError):
    """Invalid value of a setting."""


@contextmanager
def named(registered: str) -> Iterator[None]:
    """Begin messages about a setting with a registered name. Decorates the function that is registered."""
    try:
        yield
    except SettingError as error:
        raise RemedyError(f"{registered}: {error}", "Correct the config.") from None


class Rule(NamedTuple):
    """Condition on the values of a field, and its wording in a message."""

    valid: Callable[[Any], bool]
    needed: str


Size = Annotated[int, Rule(lambda value: value >= 1, "at least 1")]
Count = Annotated[int, Rule(lambda value: value >= 0, "at least 0")]
Weight = Annotated[float, Rule(lambda value: value >= 0.0, "at least 0")]
Positive = Annotated[float, Rule(lambda value: value > 0.0, "above 0")]
Probability = Annotated[float, Rule(lambda value: 0.0 <= value < 1.0, "at least 0 and below 1")]


class Settings:
    """Base of configs: checks each value by its field's annotation, `Literal` or one of those above."""

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self), include_extras=True).items():
            check_each(hint, **{name: getattr(self, name)})


def check_each(kind: Any, /, **settings: object) -> None:
    """Raise if a value is not of a kind, `Literal` or one of those above. None is always valid."""
    for name, value in settings.items():
        if value is not None:
            for rule in _rules(kind):
                check(name, value, rule.valid(value), rule.needed)


def check(name: str, value: object, valid: bool, needed: str) -> None:
    """Raise if a setting's value is not valid. needed: the condition, in words."""
    if not valid:
        raise SettingError(f"{name} must be {needed}; got {value!r}")


def check_window(size: int) -> None:
    """Raise if the window of a convolution is not an odd number."""
    check("window", size, size >= 1 and size % 2 == 1, "an odd number, so that a filter has a middle")


def check_pieces(window: int, overlap: int) -> None:
    """Raise if windows of pieces are too short for their overlap."""
    check_each(Count, overlap=overlap)
    least = 2 * overlap + 16
    check("window", window, window >= least, f"at least {least}, twice the overlap and 16 pieces")


def _rules(hint: Any) -> Iterator[Rule]:
    if get_origin(hint) is Annotated:
        yield from hint.__metadata__
    elif get_origin(hint) is Literal:
        choices = get_args(hint)
        yield Rule(lambda value: value in choices, f"one of {', '.join(map(repr, choices))}")
    elif type(None) in get_args(hint):
        for part in get_args(hint):
            yield from _rules(part)


@dataclass(frozen=True, kw_only=True)
class StackConfig(Settings):
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
        super().__post_init__()
        check("width", self.width, self.width % self.heads == 0, f"a multiple of heads, which is {self.heads}")
        paired, needed = self.width, "even"
        if self.positions_by_head:
            paired, needed = self.head_width, f"an even number times heads, which is {self.heads}"
        check("width", self.width, paired % 2 == 0, f"{needed}, since positions are pairs of sine and cosine")

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


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
class FlatConfig(StackConfig):
    """Sizes and choices of a FLAT encoder: `build_flat`."""

    distances: list[Literal["hh", "ht", "th", "tt"]] | None = None

    n_streams: ClassVar[int] = 1
    crossed: ClassVar[bool] = False
    key_projection: ClassVar[bool] = True
    random_attention: ClassVar[int] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_distances(self.used_distances)

    @property
    def used_distances(self) -> Sequence[str]:
        return self.distances or DISTANCES


@dataclass(frozen=True, kw_only=True)
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
        some = self.k >= 1 or self.selection != "top_k"
        check("k", self.k, some, "at least 1 where the k largest scores are kept")

    @property
    def positions_by_head(self) -> bool:
        return True

    @property
    def selects(self) -> bool:
        return self.selection != "none"


@dataclass(frozen=True, kw_only=True)
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


def check_distances(distances: Sequence[str]) -> None:
    if not distances or len(set(distances)) != len(distances) or not set(distances) <= set(DISTANCES):
        raise ValueError(
            f"The distances between spans must be one or more of {', '.join(DISTANCES)}, each once; "
            f"got {', '.join(distances) or 'none'}."
        )


RelationKind = Literal["gated", "mean", "attention"]

EXPONENT_LIMIT = 40.0
"""Exponents are clipped to this, positive and negative, so that `u v` fits into float32: e^80 = 5.5e34. That changes a
sum `a + b` only where one of the two is beyond 40; and even then it changes the gate only where the other is beyond 20
with the opposite sign: otherwise the gate is 0 or 1 to within e^-20, clipped or not. Context features are between -1
and 1, so with 400 channels and initial weights neither can be above 35, and most are below 2."""


@dataclass(frozen=True, kw_only=True)
class GRNConfig(Settings):
    """Sizes and choices of a gated relation network: `build_grn`."""

    width: Size = 400
    branches: Sequence[int] = (1, 3, 5)
    relation: RelationKind | None = "gated"
    dropout: Probability = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        odd = all(size >= 1 and size % 2 == 1 for size in self.branches)
        check("branches", self.branches, odd, "odd numbers of tokens")
        left, needed = self.relation is not None or bool(self.branches), "one of 'gated', 'mean' and 'attention'"
        check("relation", self.relation, left, f"{needed} where there are no branches")
