"""Sequence encoders, and whole architectures of an embedder and an encoder: TENER, GRN, ID-CNN."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ..runtime import convolution, transformer
from ..settings import GRNConfig, IDCNNConfig, TransformerConfig
from .bridge import EmbedModel, RaggedModel
from .embed.char import build_char_embed, build_word_char_embed
from .parts import chain_layers, ragged_layer
from .settings import expand_config

if TYPE_CHECKING:
    from torch import nn

EncoderConfig = TransformerConfig | GRNConfig | IDCNNConfig


@expand_config()
def build_tener(embed: EmbedModel | None = None, *, config: TransformerConfig) -> EmbedModel:
    """TENER (Yan et al., 2019): an embedder, a linear layer, and a transformer with relative positions in its
    attention, which tell direction and distance.

    Registered as `spacy_tener.TENER.v1`. The defaults are the paper's for Weibo.

    embed (Optional[Model[List[Doc], List[Floats2d]]]): The embedder; `spacy_tener.CharEmbed.v1` if there is none.
    """
    return chain_layers(embed or build_char_embed(), _transformer_encoder(config))


@expand_config(fixed={"adapted": True}, scaled=False)
def build_adapted_transformer_encoder(*, config: TransformerConfig) -> RaggedModel:
    """TENER's encoder without embedder, for any embedder: `Model[List[Floats2d], List[Floats2d]]`.

    Registered as `spacy_tener.AdaptedTransformerEncoder.v1`.
    """
    return _transformer_encoder(config)


@expand_config(fixed={"adapted": False, "key_projection": False, "key_position": False}, scaled=True)
def build_transformer_encoder(*, config: TransformerConfig) -> RaggedModel:
    """The vanilla transformer encoder with sinusoidal positions, the baseline of TENER.

    Registered as `spacy_tener.TransformerEncoder.v1`.
    """
    return _transformer_encoder(config)


def _transformer_encoder(config: TransformerConfig) -> RaggedModel:
    predictor = partial(transformer.TransformerEncoder, config)
    return ragged_layer("transformer_encoder", partial(_build, config=config), predictor, width_out=config.width)


@expand_config()
def build_grn(embed: EmbedModel | None = None, *, config: GRNConfig) -> EmbedModel:
    """The gated relation network (Chen et al., 2019): an embedder, convolutions for local context, and gated relations
    for global context.

    Registered as `spacy_tener.GRN.v1`. The defaults are the paper's.

    embed (Optional[Model[List[Doc], List[Floats2d]]]): The embedder; `spacy_tener.WordCharEmbed.v1` if there is none.
    """
    return chain_layers(embed or build_word_char_embed(), _gated_relation_encoder(config))


@expand_config()
def build_gated_relation_encoder(*, config: GRNConfig) -> RaggedModel:
    """GRN's encoder without embedder, for any embedder: `Model[List[Floats2d], List[Floats2d]]`.

    Registered as `spacy_tener.GatedRelationEncoder.v1`.
    """
    return _gated_relation_encoder(config)


def _gated_relation_encoder(config: GRNConfig) -> RaggedModel:
    predictor = partial(convolution.GRNEncoder, config)
    return ragged_layer("gated_relation_encoder", partial(_build, config=config), predictor, width_out=config.width)


@expand_config()
def build_idcnn_encoder(*, config: IDCNNConfig) -> RaggedModel:
    """Iterated dilated convolutions (Strubell et al., 2017) for any embedder: `Model[List[Floats2d], List[Floats2d]]`.

    Registered as `spacy_tener.IDCNNEncoder.v1`. One convolution projects the input to `width`; then a block of dilated
    convolutions is applied repeatedly with shared weights, each convolution followed by ReLU. With the defaults
    a token sees 13 neighbours on either side.

    Width, window, dilations, and the initialization of the block as the identity are those of the released code, which
    applies its block once to sentences and three times to documents. Unlike there, the only loss is that of the output,
    instead of the mean over all applications of the block, and there is no dropout penalty.
    """
    predictor = partial(convolution.IDCNNEncoder, config)
    return ragged_layer("idcnn_encoder", partial(_build, config=config), predictor, width_out=config.width)


def _build(*, config: EncoderConfig, nI: int, nO: int) -> nn.Module:
    from ..layers.convolution import GRNEncoder, IDCNNEncoder
    from ..layers.transformer import TransformerEncoder

    if isinstance(config, TransformerConfig):
        return TransformerEncoder(config, input_width=nI)
    if isinstance(config, GRNConfig):
        return GRNEncoder(config, input_width=nI)
    return IDCNNEncoder(config, input_width=nI)
