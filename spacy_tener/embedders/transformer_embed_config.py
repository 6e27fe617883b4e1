"""The options of `spacy_tener.TransformerEmbed.v1`, as used by the layer and its torch module."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass

from ..validation import STRICT, Probability, SettingError, check_window


@dataclass(frozen=True, kw_only=True, config=STRICT)
class TransformerEmbedConfig:
    """The options of an embedder with a pretrained transformer.

    frozen (bool): Do not train the transformer.
    pooling (Literal["mean", "first"]): How to compute a token's vector from its word pieces.
    layers (Union[int, List[int]]): The layers whose outputs are averaged: a number n for the last n layers, or a list
        with layer numbers.
    dropout (float): Output dropout rate.
    window (int): Maximum number of word pieces in a transformer input, including special tokens.
    overlap (int): Number of word pieces that only provide context, on each side of a window.
    mixed_precision (Union[bool, Literal["gpu"]]): Use bfloat16 for the operations for which this is safe.
    cache (int): Maximum cache size for the outputs of frozen layers, in megabytes.
    frozen_layers (int): Number of layers to freeze, counted from the lowest.
    pieces (Literal["scripts", "texts", "all"]): Which word pieces of `e5` to keep in a trained pipeline.
    """

    frozen: bool = False
    pooling: Literal["mean", "first"] = "mean"
    layers: PositiveInt | Annotated[list[NonNegativeInt], Field(min_length=1)] = 1
    dropout: Probability = 0.1
    window: int = 512
    overlap: NonNegativeInt = 64
    mixed_precision: bool | Literal["gpu"] = False
    cache: NonNegativeInt = 1000
    frozen_layers: NonNegativeInt = 0
    pieces: Literal["scripts", "texts", "all"] = "scripts"

    def __post_init__(self) -> None:
        check_window(self.window, self.overlap)
        if self.frozen and self.frozen_layers:
            raise SettingError(
                f"frozen_layers must be 0 if frozen = true, which freezes all layers; got {self.frozen_layers}"
            )
        if isinstance(self.layers, list) and min(self.layers) < self.frozen_layers:
            raise SettingError(
                f"layers must not contain numbers below frozen_layers ({self.frozen_layers}), since the outputs of "
                f"lower layers are not available; got {self.layers}"
            )

    @property
    def highest_layer(self) -> int:
        """Minimum number of layers that a transformer must have to support these options."""
        return self.layers if isinstance(self.layers, int) else max(self.layers)
