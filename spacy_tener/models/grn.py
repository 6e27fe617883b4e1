"""The gated relation network (Chen et al., 2019): convolutions for local context, gated relations for global."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal

from spacy.tokens import Doc
from thinc.api import Model, chain
from thinc.types import Floats2d

from ..layers.convolution.grn import GRNConfig, GRNEncoder
from .bridge import RaggedModel, ragged_layer
from .embed.word_char import build_word_char_embed


def build_grn(
    embed: Model[list[Doc], list[Floats2d]] | None = None,
    width: int = 400,
    branches: Sequence[int] = (1, 3, 5),
    relation: Literal["gated", "mean", "attention"] | None = "gated",
    dropout: float = 0.5,
) -> Model[list[Doc], list[Floats2d]]:
    """GRN, whole: embedder, context layer, relation layer.

    Registered as `spacy_tener.GRN.v1`. The defaults are the paper's.

    embed (Optional[Model[List[Doc], List[Floats2d]]]): The embedder; `spacy_tener.WordCharEmbed.v1` if there is none.

    The other settings are those of `spacy_tener.GatedRelationEncoder.v1`.
    """
    config = _config(width, branches, relation, dropout)
    embed = embed or build_word_char_embed()
    encoder = _encoder(config, embed.get_dim("nO") if embed.has_dim("nO") else None)
    model: Model[list[Doc], list[Floats2d]] = chain(embed, encoder)
    model.set_dim("nO", width)
    return model


def build_gated_relation_encoder(
    width: int = 400,
    branches: Sequence[int] = (1, 3, 5),
    relation: Literal["gated", "mean", "attention"] | None = "gated",
    dropout: float = 0.5,
) -> RaggedModel:
    """GRN's encoder alone, for any embedder: `Model[List[Floats2d], List[Floats2d]]`.

    Registered as `spacy_tener.GatedRelationEncoder.v1`.

    width (int): Width of the output.
    branches (Sequence[int]): Windows of the context layer's convolutions, odd numbers of tokens: each convolution's
        output goes through tanh, and the largest is taken in each channel. `[3]` is the paper's "branch 3". `[]` leaves
        the context layer out: the relation layer reads the input itself, which the paper has as wide as the output;
        input of another width is brought to `width` by a linear layer.
    relation (Optional[str]): How tokens are related: `gated` has one gate for each pair of tokens and each channel;
        `mean` takes the mean of what the gates are made of (the paper's DFN); `attention` has one gate for each pair
        (its GAttN); None leaves the relation layer out.
    dropout (float): Dropout on what the context layer gives, before the relation layer.
    """
    return _encoder(_config(width, branches, relation, dropout))


def _config(
    width: int,
    branches: Sequence[int],
    relation: Literal["gated", "mean", "attention"] | None,
    dropout: float,
) -> GRNConfig:
    return GRNConfig(width=width, branches=tuple(branches), relation=relation, dropout=dropout)


def _encoder(config: GRNConfig, width_in: int | None = None) -> RaggedModel:
    build = partial(_build_encoder, config=config)
    return ragged_layer("gated_relation_encoder", build, width_in=width_in, width_out=config.width)


def _build_encoder(*, nI: int, nO: int, config: GRNConfig) -> GRNEncoder:
    return GRNEncoder(config, input_width=nI)
