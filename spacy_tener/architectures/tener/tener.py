"""TENER: an embedder, and a transformer with relative positions in its attention."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ...embedders.char_embed import build_char_embed
from ...nn.compose import chain_layers, ragged_layer
from ...nn.shim import EmbedModel, RaggedModel
from ...validation import configured
from .tener_config import TransformerConfig
from .tener_numpy import TransformerEncoder as TransformerPredictor

if TYPE_CHECKING:
    from .tener_torch import TransformerEncoder


@configured("spacy_tener.TENER.v1", TransformerConfig)
def build_tener(embed: EmbedModel | None, config: TransformerConfig) -> EmbedModel:
    """TENER (Yan et al., 2019): an embedder, a linear layer, and a transformer with relative positions in its
    attention, which tell direction and distance.

    Registered as `spacy_tener.TENER.v1`. The defaults are the paper's for Weibo.

    embed (Optional[Model[List[Doc], List[Floats2d]]]): The embedder; `spacy_tener.CharEmbed.v1` if there is none.
    """
    return chain_layers(embed or build_char_embed(), build_transformer_encoder(**vars(config)))


@configured("spacy_tener.TransformerEncoder.v1", TransformerConfig)
def build_transformer_encoder(config: TransformerConfig) -> RaggedModel:
    """TENER's encoder without embedder, for any embedder: `Model[List[Floats2d], List[Floats2d]]`; or the vanilla
    transformer encoder, its baseline.

    Registered as `spacy_tener.TransformerEncoder.v1`.
    """
    build, predictor = partial(_build_transformer, config=config), partial(TransformerPredictor, config)
    return ragged_layer("transformer_encoder", build, predictor, width_out=config.width)


def _build_transformer(*, config: TransformerConfig, nI: int, nO: int) -> TransformerEncoder:
    from .tener_torch import TransformerEncoder

    return TransformerEncoder(config, input_width=nI)
