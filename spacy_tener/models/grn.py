"""The gated relation network (Chen et al., 2019): convolutions for local context, gated relations for global."""

from __future__ import annotations

from functools import partial

from ..layers.convolution.grn import GRNConfig, GRNEncoder
from .bridge import EmbedModel, RaggedModel, chain_sized, ragged_layer
from .embed.word_char import build_word_char_embed
from .settings import expand_config


@expand_config()
def build_grn(embed: EmbedModel | None = None, *, config: GRNConfig) -> EmbedModel:
    """GRN, whole: embedder, context layer, relation layer.

    Registered as `spacy_tener.GRN.v1`. The defaults are the paper's.

    embed (Optional[Model[List[Doc], List[Floats2d]]]): The embedder; `spacy_tener.WordCharEmbed.v1` if there is none.
    """
    return chain_sized(embed or build_word_char_embed(), _encoder(config))


@expand_config()
def build_gated_relation_encoder(*, config: GRNConfig) -> RaggedModel:
    """GRN's encoder alone, for any embedder: `Model[List[Floats2d], List[Floats2d]]`.

    Registered as `spacy_tener.GatedRelationEncoder.v1`.
    """
    return _encoder(config)


def _encoder(config: GRNConfig) -> RaggedModel:
    return ragged_layer("gated_relation_encoder", partial(_build, config=config), width_out=config.width)


def _build(*, nI: int, nO: int, config: GRNConfig) -> GRNEncoder:
    return GRNEncoder(config, input_width=nI)
