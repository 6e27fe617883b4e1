"""`StackConfig`, the base class for the configs of transformer encoders.

A config contains the hyperparameters that an encoder's torch module and its NumPy implementation share. An
architecture's config, such as that of TENER, is a subclass with additional fields or different defaults. A subclass's
docstring also describes the inherited fields.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import PositiveInt
from pydantic.dataclasses import dataclass

from ..validation import STRICT, Probability, SettingError


@dataclass(frozen=True, kw_only=True, config=STRICT)
class StackConfig:
    """Hyperparameters for a stack of transformer layers.

    Raise an error if the sizes are inconsistent.

    width (int): Hidden size d of the layers.
    layers (int): Number of layers.
    heads (int): Number of attention heads h. Must divide `width`.
    ff_width (Optional[int]): Hidden size of the feed-forward networks. None for `ff_factor * width`.
    dropout (float): Dropout rate in the feed-forward networks.
    attention_dropout (Optional[float]): Dropout rate for the attention weights. None for the same rate as `dropout`.
    """

    width: PositiveInt = 128
    layers: PositiveInt = 1
    heads: PositiveInt = 8
    ff_width: PositiveInt | None = None
    dropout: Probability = 0.15
    attention_dropout: Probability | None = 0.0

    # Ratio of the feed-forward hidden size to `width`, used if `ff_width` is None.
    ff_factor: ClassVar[int] = 3

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise SettingError(f"width must be a multiple of heads ({self.heads}); got {self.width}")
        # Sinusoidal position embeddings consist of pairs with a sine and a cosine.
        if self.position_width % 2:
            even = "even"
            if self.position_width < self.width:
                even = f"a multiple of 2 * heads ({2 * self.heads})"
            raise SettingError(
                f"width must be {even}, since position embeddings are pairs of sine and cosine; got {self.width}"
            )

    @property
    def head_width(self) -> int:
        """Width d_k of the queries, keys and values of a single attention head."""
        return self.width // self.heads

    @property
    def position_width(self) -> int:
        """Position embedding width."""
        return self.width

    @property
    def hidden_width(self) -> int:
        """Hidden size d_ff of the feed-forward networks."""
        return self.ff_width or self.ff_factor * self.width

    @property
    def attention_dropout_rate(self) -> float:
        """Dropout rate for the attention weights."""
        return self.dropout if self.attention_dropout is None else self.attention_dropout
