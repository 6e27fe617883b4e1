"""TENER (Yan et al., 2019): a transformer encoder whose attention knows direction and distance."""

from __future__ import annotations

from functools import partial

from ..layers.attention.transformer import TransformerConfig, TransformerEncoder
from .bridge import EmbedModel, RaggedModel, chain_sized, ragged_layer
from .embed.char import build_char_embed
from .settings import expand_config


@expand_config()
def build_tener(embed: EmbedModel | None = None, *, config: TransformerConfig) -> EmbedModel:
    """TENER, whole: embedder, linear layer, transformer encoder.

    Registered as `spacy_tener.TENER.v1`. The defaults are the paper's for Weibo.

    embed (Optional[Model[List[Doc], List[Floats2d]]]): The embedder; `spacy_tener.CharEmbed.v1` if there is none.
    """
    return chain_sized(embed or build_char_embed(), _encoder(config))


@expand_config(fixed={"adapted": True}, scaled=False)
def build_adapted_transformer_encoder(*, config: TransformerConfig) -> RaggedModel:
    """TENER's encoder alone, for any embedder: `Model[List[Floats2d], List[Floats2d]]`.

    Registered as `spacy_tener.AdaptedTransformerEncoder.v1`.
    """
    return _encoder(config)


@expand_config(fixed={"adapted": False, "key_projection": False, "key_position": False}, scaled=True)
def build_transformer_encoder(*, config: TransformerConfig) -> RaggedModel:
    """The vanilla transformer encoder, with sinusoidal positions: what TENER is compared with.

    Registered as `spacy_tener.TransformerEncoder.v1`.
    """
    return _encoder(config)


def _encoder(config: TransformerConfig) -> RaggedModel:
    return ragged_layer("transformer_encoder", partial(_build, config=config), width_out=config.width)


def _build(*, nI: int, nO: int, config: TransformerConfig) -> TransformerEncoder:
    return TransformerEncoder(config, input_width=nI)
