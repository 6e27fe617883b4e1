"""Settings of encoders that are stacks of transformer layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from .settings import Probability, Settings, Size, check


@dataclass(frozen=True, kw_only=True)
class StackConfig(Settings):
    """What all encoders that are stacks of transformer layers have in common.

    width: Width d of the output, shared by the heads.
    layers: Number of layers.
    heads: Number of heads h; each is `width / heads` wide.
    dropout: Inside the feed-forward.
    attention_dropout: On the attention map; None for the same as `dropout`.
    norm: Normalise after each sum ("post", as the papers), or before each part and once at the end ("pre").
    """

    width: Size = 128
    layers: Size = 1
    heads: Size = 8
    ff_width: Size | None = None
    dropout: Probability = 0.15
    attention_dropout: Probability | None = 0.0
    norm: Literal["post", "pre"] = "post"

    usual_ff: ClassVar[int] = 3
    """How many times as wide as the model the feed-forward is, where `ff_width` is None."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check("width", self.width, self.width % self.heads == 0, f"a multiple of heads, which is {self.heads}")
        paired, needed = self.width, "even"
        if self.positions_by_head:
            paired, needed = self.head_width, f"an even number times heads, which is {self.heads}"
        check("width", self.width, paired % 2 == 0, f"{needed}, since positions are pairs of sine and cosine")

    @property
    def positions_by_head(self) -> bool:
        """Whether a position is as wide as a head, or as the model."""
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
    """Sizes and choices of a transformer encoder. The defaults are TENER's for Weibo.

    width: Width d of the output, shared by the heads. A linear layer brings the input to it.
    ff_width: Width inside the feed-forward; None for twice the width.
    dropout: Inside the feed-forward, and on the attention map unless `attention_dropout` says otherwise.
    adapted: TENER's attention; else the vanilla one, with sinusoidal positions added to its input.
    scaled: Divide attention scores by the root of the head's width `sqrt(d_k)`; None for the papers' choice: vanilla
        attention is scaled, adapted is not.
    key_projection: Give the keys of adapted attention a projection, as the released code does and the paper does not.
    key_position: Give adapted attention the released code's third term, `k_j . r_{t-j}`.
    """

    heads: Size = 4
    attention_dropout: Probability | None = None
    adapted: bool = True
    scaled: bool | None = None
    key_projection: bool = False
    key_position: bool = False

    usual_ff = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("key_projection", "key_position"):
            value = getattr(self, name)
            check(name, value, self.adapted or not value, "False with vanilla attention, which has no use for it")

    @property
    def positions_by_head(self) -> bool:
        return self.adapted
