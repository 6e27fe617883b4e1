"""The configs of FLAT, FLAT-ATSSA and MECT, which their torch modules and NumPy predictors share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat
from pydantic.dataclasses import dataclass

from ...nn.stack_config import StackConfig
from ...validation import STRICT, SettingError

Distance = Literal["hh", "ht", "th", "tt"]

# The four distances from a query span to a key span (FLAT, section 3.2): head to head, head to tail, tail to head, tail
#     to tail. `SpanPlan.distances` has its columns in this order.
DISTANCES = ("hh", "ht", "th", "tt")

# MECT's random attention is stored in square blocks of this many query positions and key positions.
RANDOM_BLOCK = 16


@dataclass(frozen=True, kw_only=True, config=STRICT)
class FlatConfig(StackConfig):
    """Sizes and options of a FLAT encoder.

    width (int): Hidden size d of the layers and of the output.
    layers (int): Number of layers.
    heads (int): Number of attention heads h, which must divide `width`.
    ff_width (Optional[int]): Feed-forward hidden size. None for three times the width.
    dropout (float): Feed-forward dropout rate.
    attention_dropout (Optional[float]): Attention dropout rate. None for the same as `dropout`.
    distances (Optional[List[Literal["hh", "ht", "th", "tt"]]]): Distances between two spans that the relative position
        embeddings use. None for all four.
    """

    distances: Sequence[Distance] | None = None

    # MectConfig has these options, too. The modules of flat_torch and flat_numpy take either config.
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
        """The distances that the relative position embeddings use: `distances`, or all four."""
        return self.distances or DISTANCES


@dataclass(frozen=True, kw_only=True, config=STRICT)
class AtssaConfig(StackConfig):
    """Sizes and options of FLAT-ATSSA's encoder.

    width (int): Hidden size d of the context layers and of the output.
    layers (int): Number of context layers.
    heads (int): Number of attention heads h of the context layers and of the word fusion.
    ff_width (Optional[int]): Feed-forward hidden size. None for four times the width.
    dropout (float): Feed-forward dropout rate.
    attention_dropout (Optional[float]): Attention dropout rate. None for the same as `dropout`.
    selection (Union[Literal["adaptive", "none"], Callable]): Which keys a query attends to: "adaptive" for those whose
        score reaches its threshold, "none" for all of them, or a class like `SelectiveAttention` of `selection_torch`.
    k (int): Minimum number of keys that the threshold selects.
    alpha (float): Steepness of the threshold's soft step in training.
    tau (float): Temperature of the Gumbel-softmax in training.
    penalty (float): Weight lambda of the number of selected keys in the loss.
    """

    selection: Literal["adaptive", "none"] | Callable[..., Any] = "adaptive"
    k: NonNegativeInt = 3
    alpha: PositiveFloat = 50.0
    tau: PositiveFloat = 1.0
    penalty: NonNegativeFloat = 4e-6

    ff_factor: ClassVar[int] = 4

    @property
    def position_width(self) -> int:
        """Width of the position embeddings of a head: TENER's attention has them per head (TENER, eq. 17)."""
        return self.head_width

    @property
    def selects(self) -> bool:
        """Whether each query attends to selected keys only."""
        return self.selection != "none"


@dataclass(frozen=True, kw_only=True, config=STRICT)
class MectConfig(StackConfig):
    """Sizes and options of a MECT encoder.

    width (int): Hidden size d of each stream and of the output.
    layers (int): Number of layers.
    heads (int): Number of attention heads h, which must divide `width`.
    ff_width (Optional[int]): Feed-forward hidden size. None for three times the width.
    dropout (float): Feed-forward dropout rate.
    attention_dropout (Optional[float]): Attention dropout rate. None for the same as `dropout`.
    random_attention (int): Number of positions with a learned bias for each pair of them. 0 for no biases.
    streams (Optional[Callable]): Another encoder of the streams: a class like `SpanEncoder` of `flat_torch`. None for
        the paper's.
    """

    random_attention: NonNegativeInt = 320
    streams: Callable[..., Any] | None = None

    n_streams: ClassVar[int] = 2

    # The keys are the input itself, without a projection (I in eq. 7).
    key_projection: ClassVar[bool] = False
    # Only the distances from head to head and from tail to tail are used (eq. 11).
    used_distances: ClassVar[Sequence[str]] = ("hh", "tt")
