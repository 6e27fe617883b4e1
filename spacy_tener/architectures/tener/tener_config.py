"""Hyperparameters of TENER's transformer encoder, used by the torch module and by the NumPy implementation."""

from __future__ import annotations

from typing import ClassVar

from pydantic import PositiveInt
from pydantic.dataclasses import dataclass

from ...nn.stack_config import StackConfig
from ...validation import STRICT, Probability


@dataclass(frozen=True, kw_only=True, config=STRICT)
class TransformerConfig(StackConfig):
    """Hyperparameters of TENER's transformer encoder.

    width (int): Hidden size d, which is also the output width.
    layers (int): Number of layers.
    heads (int): Number of attention heads h. Must divide `width`.
    ff_width (Optional[int]): Feed-forward hidden size. None for twice the width.
    dropout (float): Feed-forward dropout rate.
    attention_dropout (Optional[float]): Attention dropout rate. None for the same as `dropout`.
    adapted (bool): If True, use TENER's adapted attention with relative positions. If False, use vanilla attention with
        sinusoidal positions.
    scaled (Optional[bool]): Whether to divide the attention scores by `sqrt(d_k)`. None to scale only vanilla
        attention.
    """

    heads: PositiveInt = 4
    attention_dropout: Probability | None = None
    adapted: bool = True
    scaled: bool | None = None

    ff_factor: ClassVar[int] = 2

    @property
    def position_width(self) -> int:
        """Return the position embedding width.

        Adapted attention uses relative position embeddings with the width of a head (TENER, eq. 17). Vanilla attention
        adds position embeddings to the input, so they have the input width (eq. 8, 9).
        """
        return self.head_width if self.adapted else self.width

    @property
    def is_scaled(self) -> bool:
        """Return whether the attention scores are divided by `sqrt(d_k)`."""
        return not self.adapted if self.scaled is None else self.scaled
