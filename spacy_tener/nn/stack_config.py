"""The settings and checks that all stacks of transformer layers have in common."""

from __future__ import annotations

from typing import ClassVar

from pydantic import PositiveInt
from pydantic.dataclasses import dataclass

from ..validation import STRICT, Probability, SettingError


@dataclass(frozen=True, kw_only=True, config=STRICT)
class StackConfig:
    """Settings of encoders that are stacks of transformer layers.

    width (int): Width d of the output, shared by the heads.
    layers (int): Number of layers.
    heads (int): Number of heads h; each is `width / heads` wide.
    ff_width (Optional[int]): Width inside the feed-forward; None for three times the width.
    dropout (float): Inside the feed-forward.
    attention_dropout (Optional[float]): On the attention map; None for the same as `dropout`.
    """

    width: PositiveInt = 128
    layers: PositiveInt = 1
    heads: PositiveInt = 8
    ff_width: PositiveInt | None = None
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
        """Return True if a position is as wide as a head, False if it is as wide as the model."""
        return False

    @property
    def head_width(self) -> int:
        return self.width // self.heads

    @property
    def map_dropout(self) -> float:
        """Dropout on the attention map."""
        return self.dropout if self.attention_dropout is None else self.attention_dropout
