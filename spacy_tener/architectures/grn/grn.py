"""GRN: an embedder, convolutions for local context, and gated relations between all tokens."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ...embedders.char_embed import build_word_char_embed
from ...nn.compose import chain_layers, ragged_layer
from ...nn.shim import EmbedModel, RaggedModel
from ...validation import configured
from .grn_config import GRNConfig
from .grn_numpy import GRNEncoder as GRNPredictor

if TYPE_CHECKING:
    from .grn_torch import GRNEncoder


@configured("spacy_tener.GRN.v1", GRNConfig)
def build_grn(embed: EmbedModel | None, config: GRNConfig) -> EmbedModel:
    """The gated relation network (Chen et al., 2019): an embedder, convolutions for local context, and gated relations
    for global context.

    Registered as `spacy_tener.GRN.v1`. The defaults are the paper's.

    embed (Optional[Model[List[Doc], List[Floats2d]]]): The embedder; `spacy_tener.WordCharEmbed.v1` if there is none.
    """
    return chain_layers(embed or build_word_char_embed(), build_gated_relation_encoder(**vars(config)))


@configured("spacy_tener.GatedRelationEncoder.v1", GRNConfig)
def build_gated_relation_encoder(config: GRNConfig) -> RaggedModel:
    """GRN's encoder without embedder, for any embedder: `Model[List[Floats2d], List[Floats2d]]`.

    Registered as `spacy_tener.GatedRelationEncoder.v1`.
    """
    predictor = None if callable(config.relation) else partial(GRNPredictor, config)
    build = partial(_build_grn, config=config)
    return ragged_layer("gated_relation_encoder", build, predictor, width_out=config.width)


def _build_grn(*, config: GRNConfig, nI: int, nO: int) -> GRNEncoder:
    from .grn_torch import GRNEncoder

    return GRNEncoder(config, input_width=nI)
