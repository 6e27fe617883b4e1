"""The config of `spacy_tener.TransformerEmbed.v1`, which its torch module shares."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass

from ..validation import STRICT, Probability, SettingError, check_window


@dataclass(frozen=True, kw_only=True, config=STRICT)
class TransformerEmbedConfig:
    """Options of an embedder with a pretrained transformer.

    frozen (bool): Do not train the transformer.
    pooling (Literal["mean", "first"]): How a token's vector is computed from those of its word pieces.
    layers (Union[int, List[int]]): Number of last layers to average, or the numbers of the layers to average.
    dropout (float): Dropout rate of the output.
    window (int): Maximum number of word pieces, special ones included, in an input of the transformer.
    overlap (int): Number of word pieces of context on each side of a window's core.
    mixed_precision (Union[bool, Literal["gpu"]]): Compute in bfloat16 where that is safe.
    cache (int): Maximum size of the cached output of frozen layers, in megabytes.
    frozen_layers (int): Number of lowest layers that are not trained.
    pieces (Literal["scripts", "texts", "all"]): Which word pieces of `e5` a trained pipeline keeps.
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
            raise SettingError(f"frozen = true trains no layer, so frozen_layers must be 0; got {self.frozen_layers}")
        if isinstance(self.layers, list) and min(self.layers) < self.frozen_layers:
            raise SettingError(f"layers must not be below the frozen_layers {self.frozen_layers}; got {self.layers}")

    @property
    def highest_layer(self) -> int:
        """The minimum number of layers that the transformer must have."""
        return self.layers if isinstance(self.layers, int) else max(self.layers)
