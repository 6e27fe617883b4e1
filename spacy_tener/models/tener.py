"""TENER (Yan et al., 2019): a transformer encoder whose attention knows direction and distance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..runtime.transformer import TransformerEncoder
from ..settings import TransformerConfig
from .embed.char import build_char_embed
from .settings import expand_config
from .shims.bridge import EmbedModel, RaggedModel, chain_sized, encoder_layer

if TYPE_CHECKING:
    from torch import nn


@expand_config()
def build_tener(embed: EmbedModel | None = None, *, config: TransformerConfig) -> EmbedModel:
    """TENER, whole: embedder, linear layer, transformer encoder.

    Registered as `spacy_tener.TENER.v1`. The defaults are the paper's for Weibo.

    embed (Optional[Model[List[Doc], List[Floats2d]]]): The embedder; `spacy_tener.CharEmbed.v1` if there is none.
    """
    return chain_sized(
        embed or build_char_embed(), encoder_layer("transformer_encoder", _encoder, TransformerEncoder, config)
    )


@expand_config(fixed={"adapted": True}, scaled=False)
def build_adapted_transformer_encoder(*, config: TransformerConfig) -> RaggedModel:
    """TENER's encoder alone, for any embedder: `Model[List[Floats2d], List[Floats2d]]`.

    Registered as `spacy_tener.AdaptedTransformerEncoder.v1`.
    """
    return encoder_layer("transformer_encoder", _encoder, TransformerEncoder, config)


@expand_config(fixed={"adapted": False, "key_projection": False, "key_position": False}, scaled=True)
def build_transformer_encoder(*, config: TransformerConfig) -> RaggedModel:
    """The vanilla transformer encoder, with sinusoidal positions: what TENER is compared with.

    Registered as `spacy_tener.TransformerEncoder.v1`.
    """
    return encoder_layer("transformer_encoder", _encoder, TransformerEncoder, config)


def _encoder(*, config: TransformerConfig, nI: int, nO: int) -> nn.Module:
    from ..layers.transformer import TransformerEncoder

    return TransformerEncoder(config, input_width=nI)
