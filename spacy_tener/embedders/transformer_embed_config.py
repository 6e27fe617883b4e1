"""Settings of the embedder of a pretrained transformer."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass

from ..validation import STRICT, Probability, SettingError, check_pieces


@dataclass(frozen=True, kw_only=True, config=STRICT)
class TransformerEmbedConfig:
    """Settings of the embedder of a pretrained transformer.

    frozen (bool): Do not train the transformer: its weights do not change, its own dropout is off, and no gradient is
        computed.
    pooling (Literal["mean", "first"]): The features of a token: the "mean" of its pieces, or those of the "first" one.
    layers (Union[int, List[int]]): Number of last layers that are averaged, or the layers' own numbers, from 1 on; 0 is
        the layer of embeddings.
    dropout (float): Dropout on the features. In training, a transformer that is not frozen also applies its own.
    window (int): Maximum number of word pieces, with special ones, that are read at once; the transformer's own
        maximum, if that is smaller. Longer texts are read in overlapping windows. `tener_ner` passes windows of 200
        tokens, so that this matters for other components only, and for tokens of very many pieces.
    overlap (int): Word pieces of context on each side of a window's own part.
    mixed_precision (Union[bool, Literal["gpu"]]): Let the transformer compute in bfloat16 where that is safe, which is
        much faster on recent GPUs, but slower on most CPUs. "gpu" does so only on a GPU that supports bfloat16.
    cache (int): For a transformer that is frozen or has frozen layers, maximum size in megabytes of what they compute
        that is kept on its device during training, which reads each text of train and dev again and again. A token
        takes 4 bytes for each feature. 0 keeps none. Nothing is kept after training or loading.
    frozen_layers (int): Number of lowest layers that do not change, and the rows of pieces below them: what they know
        of many languages stays, and they are computed once for each text. For models like BERT, RoBERTa and ELECTRA.
    pieces (Literal["scripts", "texts", "all"]): The rows of pieces of `e5` that a trained pipeline has, as
        `spacy_tener.E5.v1` does. Other transformers have all.
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
        check_pieces(self.window, self.overlap)
        if self.frozen and self.frozen_layers:
            raise SettingError(f"frozen = true trains no layer, so frozen_layers must be 0; got {self.frozen_layers}")
        if isinstance(self.layers, list) and min(self.layers) < self.frozen_layers:
            raise SettingError(f"layers must not be below the frozen_layers {self.frozen_layers}; got {self.layers}")

    @property
    def highest_layer(self) -> int:
        return self.layers if isinstance(self.layers, int) else max(self.layers)
