"""TENER (Yan et al., 2019): a transformer encoder whose attention knows direction and distance."""

from functools import partial
from typing import Literal

from spacy.tokens import Doc
from thinc.api import Model, chain
from thinc.types import Floats2d

from ..layers.attention.transformer import TransformerConfig, TransformerEncoder
from .bridge import RaggedModel, ragged_layer
from .embed.char import build_char_embed


def build_tener(
    embed: Model[list[Doc], list[Floats2d]] | None = None,
    width: int = 128,
    layers: int = 1,
    heads: int = 4,
    ff_width: int | None = None,
    dropout: float = 0.15,
    attention_dropout: float | None = None,
    adapted: bool = True,
    scaled: bool | None = None,
    norm: Literal["post", "pre"] = "post",
    key_projection: bool = False,
    key_position: bool = False,
) -> Model[list[Doc], list[Floats2d]]:
    """TENER, whole: embedder, linear layer, transformer encoder.

    Registered as `spacy_tener.TENER.v1`. The defaults are the paper's for Weibo.

    embed (Optional[Model[List[Doc], List[Floats2d]]]): The embedder; `spacy_tener.CharEmbed.v1` if there is none.

    The other settings are those of `spacy_tener.AdaptedTransformerEncoder.v1` and `spacy_tener.TransformerEncoder.v1`;
    `adapted = false` chooses the second.
    """
    embed = embed or build_char_embed()
    config = TransformerConfig(
        width=width,
        n_layers=layers,
        n_heads=heads,
        ff_width=ff_width,
        dropout=dropout,
        attention_dropout=attention_dropout,
        norm=norm,
        adapted=adapted,
        scaled=scaled,
        key_projection=key_projection,
        key_position=key_position,
    )
    encoder = _encoder(config, embed.get_dim("nO") if embed.has_dim("nO") else None)
    model: Model[list[Doc], list[Floats2d]] = chain(embed, encoder)
    model.set_dim("nO", width)
    return model


def build_adapted_transformer_encoder(
    width: int = 128,
    layers: int = 1,
    heads: int = 4,
    ff_width: int | None = None,
    dropout: float = 0.15,
    attention_dropout: float | None = None,
    scaled: bool = False,
    norm: Literal["post", "pre"] = "post",
    key_projection: bool = False,
    key_position: bool = False,
) -> RaggedModel:
    """TENER's encoder alone, for any embedder: `Model[List[Floats2d], List[Floats2d]]`.

    Registered as `spacy_tener.AdaptedTransformerEncoder.v1`.

    width (int): Width of the output; each head has its share of it. A linear layer brings the input to it.
    layers (int): Number of layers.
    heads (int): Number of heads.
    ff_width (Optional[int]): Width inside the feed-forward; twice the width if there is none.
    dropout (float): Inside the feed-forward, and on the attention map unless `attention_dropout` says otherwise.
    attention_dropout (Optional[float]): On the attention map.
    scaled (bool): Divide attention scores by the root of the head's width. The paper finds it better not to.
    norm (str): Normalise after each sum (`post`, as the paper), or before each part (`pre`).
    key_projection (bool): Give keys a projection, as the released code does and the paper does not.
    key_position (bool): Add the released code's third term, between a key and its distance.
    """
    return _encoder(
        TransformerConfig(
            width=width,
            n_layers=layers,
            n_heads=heads,
            ff_width=ff_width,
            dropout=dropout,
            attention_dropout=attention_dropout,
            norm=norm,
            scaled=scaled,
            key_projection=key_projection,
            key_position=key_position,
        )
    )


def build_transformer_encoder(
    width: int = 128,
    layers: int = 1,
    heads: int = 4,
    ff_width: int | None = None,
    dropout: float = 0.15,
    attention_dropout: float | None = None,
    scaled: bool = True,
    norm: Literal["post", "pre"] = "post",
) -> RaggedModel:
    """The vanilla transformer encoder, with sinusoidal positions: what TENER is compared with.

    Registered as `spacy_tener.TransformerEncoder.v1`. Its settings mean what they mean for
    `spacy_tener.AdaptedTransformerEncoder.v1`.
    """
    return _encoder(
        TransformerConfig(
            width=width,
            n_layers=layers,
            n_heads=heads,
            ff_width=ff_width,
            dropout=dropout,
            attention_dropout=attention_dropout,
            norm=norm,
            adapted=False,
            scaled=scaled,
        )
    )


def _encoder(config: TransformerConfig, width_in: int | None = None) -> RaggedModel:
    build = partial(_build_encoder, config=config)
    return ragged_layer("transformer_encoder", build, width_in=width_in, width_out=config.width)


def _build_encoder(*, nI: int, nO: int, config: TransformerConfig) -> TransformerEncoder:
    return TransformerEncoder(config, input_width=nI)
