"""Settings of TENER and of the vanilla transformer."""

from __future__ import annotations

from pydantic import PositiveInt
from pydantic.dataclasses import dataclass

from ...nn.stack_config import StackConfig
from ...validation import STRICT, Probability


@dataclass(frozen=True, kw_only=True, config=STRICT)
class TransformerConfig(StackConfig):
    """Sizes and choices of a transformer encoder.

    width (int): Width d of the output, shared by the heads. A linear layer brings the input to it.
    ff_width (Optional[int]): Width inside the feed-forward; None for twice the width.
    dropout (float): Inside the feed-forward, and on the attention map unless `attention_dropout` says otherwise.
    adapted (bool): TENER's attention; else the vanilla one, with sinusoidal positions added to its input.
    scaled (Optional[bool]): Divide attention scores by the root of the head's width `sqrt(d_k)`; None for the papers'
        choice: vanilla attention is scaled, adapted is not.
    """

    heads: PositiveInt = 4
    attention_dropout: Probability | None = None
    adapted: bool = True
    scaled: bool | None = None

    usual_ff = 2

    @property
    def positions_by_head(self) -> bool:
        return self.adapted
