"""`StackConfig`, the base class of the configs of transformer encoders in `architectures`.

A config has the sizes and options that the torch module and the NumPy implementation of an encoder share. Both versions
of `TransformerLayer` take the config as an argument. A subclass declares only new fields, and fields with another
default. Its docstring describes all fields.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import PositiveInt
from pydantic.dataclasses import dataclass

from ..validation import STRICT, Probability, SettingError


@dataclass(frozen=True, kw_only=True, config=STRICT)
class StackConfig:
    """Sizes of a stack of transformer layers. Raises an error if they do not fit together.

    width (int): Hidden size d of the layers.
    layers (int): Number of layers.
    heads (int): Number of attention heads h. Must divide `width`.
    ff_width (Optional[int]): Feed-forward hidden size. None for `ff_factor` times `width`.
    dropout (float): Feed-forward dropout rate.
    attention_dropout (Optional[float]): Attention dropout rate. None for the same as `dropout`.
    """

    width: PositiveInt = 128
    layers: PositiveInt = 1
    heads: PositiveInt = 8
    ff_width: PositiveInt | None = None
    dropout: Probability = 0.15
    attention_dropout: Probability | None = 0.0

    # Hidden size of the feed-forward networks if `ff_width` is None, in multiples of `width`.
    ff_factor: ClassVar[int] = 3

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise SettingError(f"width must be a multiple of heads, which is {self.heads}; got {self.width}")
        if self.position_width % 2:
            even = "even"
            if self.position_width < self.width:
                even = f"an even number times heads, which is {self.heads}"
            raise SettingError(f"width must be {even}, since positions are pairs of sine and cosine; got {self.width}")

    @property
    def head_width(self) -> int:
        """Width d_k of a head's queries, keys and values."""
        return self.width // self.heads

    @property
    def position_width(self) -> int:
        """Width of the position embeddings."""
        return self.width

    @property
    def hidden_width(self) -> int:
        """Hidden size d_ff of the feed-forward networks."""
        return self.ff_width or self.ff_factor * self.width

    @property
    def map_dropout(self) -> float:
        """Dropout rate of the attention weights."""
        return self.dropout if self.attention_dropout is None else self.attention_dropout
