"""TENER: an embedder, and a transformer with relative positions in its attention; and one over the characters of words
(sections 3.1 and 4.4)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ...embedders.char_embed import build_char_embed
from ...embedders.spelling import SpellingConfig, spelling_embedder
from ...nn.compose import chain_layers, ragged_layer
from ...nn.shim import EmbedModel, RaggedModel
from ...validation import configured
from .tener_config import TransformerConfig
from .tener_numpy import TransformerEncoder as TransformerPredictor

if TYPE_CHECKING:
    from ...embedders.spelling_torch import CharacterEncoder
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


@configured("spacy_tener.CharTransformer.v1", SpellingConfig)
def build_char_transformer(
    adapted: bool = True, heads: int = 3, ff_width: int = 60, inner_dropout: float = 0.15, *, config: SpellingConfig
) -> EmbedModel:
    """Embed each token by one transformer layer over its characters.

    Registered as `spacy_tener.CharTransformer.v1`. The defaults are the TENER paper's, with its 6,600 parameters beside
    the characters' rows; 8,460 where `adapted` is false. The attention has 2 x 30 x 30 for queries and values, and 60
    for u and v. The vanilla one has 4 x (30 x 30 + 30) for queries, keys, values and output. The feed-forward has
    3,690, the norms have 120, and the linear layer after the maximum has 930. Characters get rows, and long tokens are
    cut, as in `spacy_tener.CharCNN.v1`.

    adapted (bool): TENER's attention; otherwise vanilla attention.
    heads (int): Number of heads, which share the width of the characters' rows.
    ff_width (int): Width inside the feed-forward.
    inner_dropout (float): Dropout inside the transformer.
    """
    layer = TransformerConfig(
        width=config.char_width, heads=heads, ff_width=ff_width, dropout=inner_dropout, adapted=adapted
    )
    make_encoder = partial(make_char_transformer, layer, config.width)
    return spelling_embedder(make_encoder, partial(TransformerPredictor, layer), config)


def make_char_transformer(layer: TransformerConfig, width: int) -> CharacterEncoder:
    """Return the torch module: a transformer over the characters of words.

    layer (TransformerConfig): The transformer's settings.
    width (int): Width of the output.
    """
    from ...embedders.spelling_torch import CharacterEncoder
    from .tener_torch import TransformerEncoder

    return CharacterEncoder(TransformerEncoder(layer), hidden=layer.width, width=width)
