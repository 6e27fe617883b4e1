"""The embedder of words: each token's own row, joined with what its characters say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ...runtime.dense import Projection as Projecting
from ...settings import check
from ..settings import expand_config
from ..shims.bridge import EmbedModel, chain_sized, ragged_layer
from .char import CharEmbedConfig, char_embed
from .char_encoders import build_char_cnn
from .join import join_embedders

if TYPE_CHECKING:
    from torch import nn


@expand_config(
    fixed={"bigram_width": 0, "bigram_dropout": 0.0, "bigram_vectors": None},
    width=100,
    lower=True,
    digits=True,
    dropout=0.5,
)
def build_word_char_embed(
    config: CharEmbedConfig, chars: EmbedModel | Literal["cnn"] | None = "cnn", project_to: int | None = None
) -> EmbedModel:
    """Embed each token by its own row, joined with what its characters say.

    Registered as `spacy_tener.WordCharEmbed.v1`. A word gets a row of its own when it is first seen in training, or
    where it has a pretrained vector; all others share the unknown row, which word dropout trains. Words are read in
    lower case unless `lower` is false: "London" and "LONDON" share the row, and the vector, of "london". Characters
    keep their case, and have a dropout of their own.

    chars (Optional[Union[Model[List[Doc], List[Floats2d]], str]]): What the rows are joined with: an encoder of
        characters (`spacy_tener.CharCNN.v1`, `spacy_tener.CharBiLSTM.v1`, `spacy_tener.CharTransformer.v1`), or any
        other embedder; "cnn" for the first of them with its defaults; None for nothing.
    project_to (Optional[int]): Width to which a linear layer brings the result, for encoders whose input must be as
        wide as their output, as spaCy's; None for no such layer.
    """
    check("project_to", project_to, project_to is None or project_to >= 1, "at least 1")
    embed = char_embed(config)
    if chars is not None:
        embed = join_embedders(embed, build_char_cnn() if chars == "cnn" else chars)
    return (
        embed
        if project_to is None
        else chain_sized(embed, ragged_layer("project", _build, Projecting, width_out=project_to))
    )


def _build(*, nI: int, nO: int) -> nn.Module:
    from ...layers.dense import Projection

    return Projection(width_in=nI, width_out=nO)
