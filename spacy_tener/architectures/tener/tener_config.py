"""The config of TENER's transformer encoder, which its torch module and its NumPy predictor share."""

from __future__ import annotations

from typing import ClassVar

from pydantic import PositiveInt
from pydantic.dataclasses import dataclass

from ...nn.stack_config import StackConfig
from ...validation import STRICT, Probability


@dataclass(frozen=True, kw_only=True, config=STRICT)
class TransformerConfig(StackConfig):
    """Sizes and options of TENER's transformer encoder, or of the vanilla one that its paper compares with it.

    width (int): Hidden size d of the layers and of the output.
    layers (int): Number of layers.
    heads (int): Number of attention heads h, which must divide `width`.
    ff_width (Optional[int]): Feed-forward hidden size. None for twice the width.
    dropout (float): Feed-forward dropout rate.
    attention_dropout (Optional[float]): Attention dropout rate. None for the same as `dropout`.
    adapted (bool): Use TENER's adapted attention, with relative positions, rather than vanilla attention, with
        sinusoidal positions added to its input.
    scaled (Optional[bool]): Divide attention scores by `sqrt(d_k)`. None to scale vanilla attention only.
    """

    heads: PositiveInt = 4
    attention_dropout: Probability | None = None
    adapted: bool = True
    scaled: bool | None = None

    ff_factor: ClassVar[int] = 2

    @property
    def position_width(self) -> int:
        """Width of the position embeddings: of a head in adapted attention (eq. 17), or of the input (eq. 8, 9)."""
        return self.head_width if self.adapted else self.width

    @property
    def is_scaled(self) -> bool:
        """Whether attention scores are divided by `sqrt(d_k)`."""
        return not self.adapted if self.scaled is None else self.scaled
