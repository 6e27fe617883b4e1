"""The gated relation network (Chen et al., 2019): convolutions for local context, gated relations for global."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..runtime.convolution import GRNEncoder
from ..settings import GRNConfig
from .embed.word_char import build_word_char_embed
from .settings import expand_config
from .shims.bridge import EmbedModel, RaggedModel, chain_sized, encoder_layer

if TYPE_CHECKING:
    from torch import nn


@expand_config()
def build_grn(embed: EmbedModel | None = None, *, config: GRNConfig) -> EmbedModel:
    """GRN, whole: embedder, context layer, relation layer.

    Registered as `spacy_tener.GRN.v1`. The defaults are the paper's.

    embed (Optional[Model[List[Doc], List[Floats2d]]]): The embedder; `spacy_tener.WordCharEmbed.v1` if there is none.
    """
    return chain_sized(
        embed or build_word_char_embed(), encoder_layer("gated_relation_encoder", _encoder, GRNEncoder, config)
    )


@expand_config()
def build_gated_relation_encoder(*, config: GRNConfig) -> RaggedModel:
    """GRN's encoder alone, for any embedder: `Model[List[Floats2d], List[Floats2d]]`.

    Registered as `spacy_tener.GatedRelationEncoder.v1`.
    """
    return encoder_layer("gated_relation_encoder", _encoder, GRNEncoder, config)


def _encoder(*, config: GRNConfig, nI: int, nO: int) -> nn.Module:
    from ..layers.convolution import GRNEncoder

    return GRNEncoder(config, input_width=nI)
