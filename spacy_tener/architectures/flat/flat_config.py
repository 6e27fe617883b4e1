"""Settings of FLAT, FLAT-ATSSA and MECT."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat
from pydantic.dataclasses import dataclass

from ...nn.stack_config import StackConfig
from ...validation import STRICT, SettingError

DISTANCES = ("hh", "ht", "th", "tt")
"""From query to key: head to head, head to tail, tail to head, tail to tail. The order of `SpanPlan.distances`."""

RANDOM_BLOCK = 16
"""Positions of queries, and of keys, in a block of MECT's random attention."""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class FlatConfig(StackConfig):
    """Sizes and choices of a FLAT encoder.

    distances (Optional[List[Literal["hh", "ht", "th", "tt"]]]): Distances between two spans that the attention uses, of
        "hh", "ht", "th" and "tt" (head to head, head to tail, ..); None for all, as in the paper. The released code and
        MECT use "hh" and "tt".
    """

    distances: Sequence[Literal["hh", "ht", "th", "tt"]] | None = None

    n_streams: ClassVar[int] = 1
    streams: ClassVar[None] = None
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
    """Sizes and choices of FLAT-ATSSA's encoder.

    width (int): Width d of the context layers and of the output, shared by the heads.
    layers (int): Number of context layers.
    heads (int): Number of heads h, of the context layers and of the word fusion.
    ff_width (Optional[int]): Width inside the feed-forward; None for four times the width, the smallest that the paper
        searched.
    selection (Union[Literal["adaptive", "none"], Callable]): Keys that a query keeps: those above its threshold, which
        is computed for each query and head from the sentence ("adaptive", ATSSA), or all ("none", the paper's
        "- Selective SA"). A registered function may give another rule: a class as `SelectiveAttention`.
    k (int): With a threshold, minimum number of keys that are kept; 0 for the paper's "- top-k".
    alpha (float): With a threshold, how steep the step at it is in training; 1 for the paper's "- AF".
    tau (float): With a threshold, temperature of the Gumbel-softmax in training.
    penalty (float): With a threshold, weight lambda of the number of keys kept, a mean over the sentences, in the loss.
    """

    selection: Literal["adaptive", "none"] | Callable[..., Any] = "adaptive"
    k: NonNegativeInt = 3
    alpha: PositiveFloat = 50.0
    tau: PositiveFloat = 1.0
    penalty: NonNegativeFloat = 4e-6

    ff_factor = 4

    @property
    def position_width(self) -> int:
        return self.head_width

    @property
    def selects(self) -> bool:
        return self.selection != "none"


@dataclass(frozen=True, kw_only=True, config=STRICT)
class MectConfig(StackConfig):
    """Sizes and choices of a MECT encoder.

    width (int): Width d of each stream and of the output, shared by the heads.
    layers (int): Number of layers; the paper has one.
    ff_width (Optional[int]): Width inside the feed-forwards; None for three times the width.
    random_attention (int): Number of positions of a sentence, its characters' and then its words', that have a learned
        bias of the attention score for each pair; 0 for none, the paper's "- RA". Later positions have none, so that
        sentences may be longer.
    streams (Optional[Callable]): Encoder of the streams; None for the paper's two, whose queries are computed from
        each other. A registered function may give another one: a class as `SpanEncoder`.
    """

    random_attention: NonNegativeInt = 320
    streams: Callable[..., Any] | None = None

    n_streams: ClassVar[int] = 2

    key_projection: ClassVar[bool] = False
    """Keys are the input itself: I in eq. 7."""
    used_distances: ClassVar[Sequence[str]] = ("hh", "tt")
    """Head to head and tail to tail only (eq. 11)."""
