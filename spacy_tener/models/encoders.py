"""Sequence encoders, and whole architectures of an embedder and an encoder: TENER, GRN."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ..runtime import convolution, transformer
from ..settings import GRNConfig, TransformerConfig, configured
from .compose import chain_layers, ragged_layer
from .embed.char import build_char_embed, build_word_char_embed
from .shim import EmbedModel, RaggedModel

if TYPE_CHECKING:
    from ..layers.convolution import GRNEncoder
    from ..layers.transformer import TransformerEncoder


@configured("spacy_tener.TENER.v1", TransformerConfig)
def build_tener(embed: EmbedModel | None, config: TransformerConfig) -> EmbedModel:
    """TENER (Yan et al., 2019): an embedder, a linear layer, and a transformer with relative positions in its
    attention, which tell direction and distance.

    Registered as `spacy_tener.TENER.v1`. The defaults are the paper's for Weibo.

    embed (Optional[Model[List[Doc], List[Floats2d]]]): The embedder; `spacy_tener.CharEmbed.v1` if there is none.
    """
    return chain_layers(embed or build_char_embed(), _transformer_encoder(config))


@configured("spacy_tener.TransformerEncoder.v1", TransformerConfig)
def build_transformer_encoder(config: TransformerConfig) -> RaggedModel:
    """TENER's encoder without embedder, for any embedder: `Model[List[Floats2d], List[Floats2d]]`; or the vanilla
    transformer encoder, its baseline.

    Registered as `spacy_tener.TransformerEncoder.v1`.
    """
    return _transformer_encoder(config)


def _transformer_encoder(config: TransformerConfig) -> RaggedModel:
    build, predictor = partial(_build_transformer, config=config), partial(transformer.TransformerEncoder, config)
    return ragged_layer("transformer_encoder", build, predictor, width_out=config.width)


def _build_transformer(*, config: TransformerConfig, nI: int, nO: int) -> TransformerEncoder:
    from ..layers.transformer import TransformerEncoder

    return TransformerEncoder(config, input_width=nI)


@configured("spacy_tener.GRN.v1", GRNConfig)
def build_grn(embed: EmbedModel | None, config: GRNConfig) -> EmbedModel:
    """The gated relation network (Chen et al., 2019): an embedder, convolutions for local context, and gated relations
    for global context.

    Registered as `spacy_tener.GRN.v1`. The defaults are the paper's.

    embed (Optional[Model[List[Doc], List[Floats2d]]]): The embedder; `spacy_tener.WordCharEmbed.v1` if there is none.
    """
    return chain_layers(embed or build_word_char_embed(), _gated_relation_encoder(config))


@configured("spacy_tener.GatedRelationEncoder.v1", GRNConfig)
def build_gated_relation_encoder(config: GRNConfig) -> RaggedModel:
    """GRN's encoder without embedder, for any embedder: `Model[List[Floats2d], List[Floats2d]]`.

    Registered as `spacy_tener.GatedRelationEncoder.v1`.
    """
    return _gated_relation_encoder(config)


def _gated_relation_encoder(config: GRNConfig) -> RaggedModel:
    build, predictor = partial(_build_grn, config=config), partial(convolution.GRNEncoder, config)
    return ragged_layer("gated_relation_encoder", build, predictor, width_out=config.width)


def _build_grn(*, config: GRNConfig, nI: int, nO: int) -> GRNEncoder:
    from ..layers.convolution import GRNEncoder

    return GRNEncoder(config, input_width=nI)
