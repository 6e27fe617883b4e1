"""The hyperparameters of the FLAT, FLAT-ATSSA and MECT encoders.

An encoder's torch and NumPy implementations are both created from the same config.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat
from pydantic.dataclasses import dataclass

from ...nn.stack_config import StackConfig
from ...validation import STRICT, SettingError

Distance = Literal["hh", "ht", "th", "tt"]

# The four distances between two spans (FLAT, section 3.2). A span is a character or a lexicon word. "h" is the span's
# head (first position), and "t" is its tail (last position). `SpanPlan.distances` has a column per distance.
DISTANCES = ("hh", "ht", "th", "tt")

# MECT's random attention stores its biases in square blocks of this size. See `flat_torch.RandomAttention`.
RANDOM_BLOCK = 16


@dataclass(frozen=True, kw_only=True, config=STRICT)
class FlatConfig(StackConfig):
    """Hyperparameters of the FLAT encoder.

    width (int): Hidden size d, which is also the output width.
    layers (int): Number of transformer layers.
    heads (int): Number of attention heads h, which must divide `width`.
    ff_width (Optional[int]): Feed-forward hidden size. None for three times the width.
    dropout (float): Feed-forward dropout rate.
    attention_dropout (Optional[float]): Attention dropout rate. None for the same as `dropout`.
    distances (Optional[List[Literal["hh", "ht", "th", "tt"]]]): Which distances the relative position embeddings
        encode: head to head, head to tail, tail to head and tail to tail. None for all four distances.
    """

    distances: Sequence[Distance] | None = None

    # FLAT has fixed values for these MectConfig options. Both configs are passed to the same modules.
    n_streams: ClassVar[int] = 1
    streams: ClassVar[None] = None
    key_projection: ClassVar[bool] = True
    random_attention: ClassVar[int] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.distances is not None and not self.distances:
            raise SettingError(
                f"distances must not be empty; list at least one of {', '.join(DISTANCES)}, or set distances = null to "
                "use all of them"
            )
        if len(set(self.used_distances)) < len(self.used_distances):
            raise SettingError(f"distances must not contain duplicates; got {self.distances}")

    @property
    def used_distances(self) -> Sequence[str]:
        """The distances that the relative position embeddings encode. Defaults to all four distances."""
        return DISTANCES if self.distances is None else self.distances


@dataclass(frozen=True, kw_only=True, config=STRICT)
class AtssaConfig(StackConfig):
    """Hyperparameters of the FLAT-ATSSA encoder.

    width (int): Hidden size d, which is also the output width.
    layers (int): Number of transformer layers.
    heads (int): Number of attention heads h, in the transformer layers and in the word fusion.
    ff_width (Optional[int]): Feed-forward hidden size. None for four times the width.
    dropout (float): Feed-forward dropout rate.
    attention_dropout (Optional[float]): Attention dropout rate. None for the same as `dropout`.
    selection (Union[Literal["adaptive", "none"], Callable]): How keys are selected: "adaptive" for keys whose score
        reaches the query's threshold, "none" for all keys, or an attention class with the same interface as
        `selection_torch.SelectiveAttention`.
    k (int): Minimum number of selected keys per query.
    alpha (float): Slope of the sigmoid that replaces the step function at the threshold during training.
    tau (float): Temperature of the Gumbel-softmax that samples the selected keys during training.
    penalty (float): Weight lambda of the penalty on the number of selected keys, which is added to the loss.
    """

    selection: Literal["adaptive", "none"] | Callable[..., Any] = "adaptive"
    k: NonNegativeInt = 3
    alpha: PositiveFloat = 50.0
    tau: PositiveFloat = 1.0
    penalty: NonNegativeFloat = 4e-6

    ff_factor: ClassVar[int] = 4

    @property
    def position_width(self) -> int:
        """Position embedding width. As in TENER, it is the width of an attention head (TENER, eq. 17)."""
        return self.head_width

    @property
    def selects(self) -> bool:
        """Whether queries attend to selected keys only, instead of all keys."""
        return self.selection != "none"


@dataclass(frozen=True, kw_only=True, config=STRICT)
class MectConfig(StackConfig):
    """Hyperparameters of the MECT encoder, which has a stream for characters and words and a stream for radicals.

    width (int): Hidden size d, which is also the output width.
    layers (int): Number of transformer layers.
    heads (int): Number of attention heads h, which must divide `width`.
    ff_width (Optional[int]): Feed-forward hidden size. None for three times the width.
    dropout (float): Feed-forward dropout rate.
    attention_dropout (Optional[float]): Attention dropout rate. None for the same as `dropout`.
    random_attention (int): Number of positions with random attention, which adds a learned bias to the attention score
        for each pair of positions. 0 for no random attention.
    streams (Optional[Callable]): A custom encoder class with the same interface as `flat_torch.SpanEncoder`. None for
        the paper's encoder.
    """

    random_attention: NonNegativeInt = 320
    streams: Callable[..., Any] | None = None

    n_streams: ClassVar[int] = 2

    # MECT has no key projection. The attention layer's input is used as keys (identity matrix I in eq. 7).
    key_projection: ClassVar[bool] = False
    # The relative position embeddings encode two distances: head to head and tail to tail (eq. 11).
    used_distances: ClassVar[Sequence[str]] = ("hh", "tt")
