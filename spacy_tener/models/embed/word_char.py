"""The embedder of words: each token's own row, joined with what its characters say."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from spacy.tokens import Doc
from thinc.api import Model, chain
from thinc.types import Floats2d

from ...layers.projection import Projection
from ..bridge import EmbedModel, RaggedModel, ragged_layer
from .char import build_char_embed
from .char_encoders import build_char_cnn
from .vocabulary import check_rates


def build_word_char_embed(
    width: int = 100,
    lower: bool = True,
    digits: bool = True,
    dropout: float = 0.5,
    word_dropout: float = 0.01,
    vectors: str | Path | None = None,
    normalize_vectors: bool = True,
    whiten_vectors: bool = False,
    chars: Model[list[Doc], list[Floats2d]] | Literal["cnn"] | None = "cnn",
    project_to: int | None = None,
) -> EmbedModel:
    """Embed each token by its own row, joined with what its characters say.

    Registered as `spacy_tener.WordCharEmbed.v1`. A word gets a row of its own when it is first seen in training, or
    where it has a pretrained vector; all others share the unknown row, which word dropout trains.

    width (int): Width of the words' rows.
    lower (bool): Read words in lower case: "London" and "LONDON" share the row, and the vector, of "london". Characters
        keep their case.
    digits (bool): Read every digit of a word as 0.
    dropout (float): Dropout on the words' rows; `chars` has its own.
    word_dropout (float): Probability that a word is read as unknown in training.
    vectors (Optional[Union[str, Path]]): Pretrained rows for words: a word2vec or GloVe text file (plain, gz, bz2, xz)
        or a directory that `spacy init vectors` made. Read by `initialize` only, fine-tuned, saved with the model.
    normalize_vectors (bool): Scale pretrained rows to unit length, which random rows have on average, as the released
        code of TENER does.
    whiten_vectors (bool): Before that, take off what they have in common, as for `spacy_tener.CharEmbed.v1`.
    chars (Optional[Union[Model[List[Doc], List[Floats2d]], str]]): What the rows are joined with: an encoder of
        characters (`spacy_tener.CharCNN.v1`, `spacy_tener.CharBiLSTM.v1`, `spacy_tener.CharTransformer.v1`), or any
        other embedder; "cnn" for the first of them with its defaults; None for nothing.
    project_to (Optional[int]): Width to which a linear layer brings the result, for encoders whose input must be as
        wide as their output, as spaCy's; None for no such layer.
    """
    for name, size in (("width", width), ("project_to", project_to)):
        if size is not None and size < 1:
            raise ValueError(f"WordCharEmbed needs a {name} of at least 1, but got {size}.")
    check_rates("WordCharEmbed", dropout=dropout, word_dropout=word_dropout)
    embed = build_char_embed(
        width=width,
        bigram_width=0,
        digits=digits,
        lower=lower,
        dropout=dropout,
        word_dropout=word_dropout,
        vectors=vectors,
        normalize_vectors=normalize_vectors,
        whiten_vectors=whiten_vectors,
    )
    if chars is not None:
        embed = join_embedders(embed, build_char_cnn() if chars == "cnn" else chars)
    return embed if project_to is None else chain(embed, _project(embed, project_to))


def _project(embed: EmbedModel, width: int) -> RaggedModel:
    width_in = embed.get_dim("nO") if embed.has_dim("nO") else None
    return ragged_layer("project", _build_projection, width_in=width_in, width_out=width)


def _build_projection(*, nI: int, nO: int) -> Projection:
    return Projection(width_in=nI, width_out=nO)


def join_embedders(*embedders: EmbedModel) -> EmbedModel:
    """Embed each token by several embedders, side by side.

    Thinc's `concatenate` takes no empty batch, and adds up what the layers' callbacks return, which here are Docs.
    """
    model: EmbedModel = Model(
        "|".join(embedder.name for embedder in embedders),
        _forward_joined,
        init=_init_joined,
        dims={"nO": None},
        layers=embedders,
    )
    _sum_widths(model)
    return model


def _init_joined(model: EmbedModel, X: list[Doc] | None = None, Y: Any = None) -> None:
    for embedder in model.layers:
        embedder.initialize(X)
    _sum_widths(model)


def _sum_widths(model: EmbedModel) -> None:
    if all(embedder.has_dim("nO") for embedder in model.layers):
        model.set_dim("nO", sum(embedder.get_dim("nO") for embedder in model.layers))


def _forward_joined(
    model: EmbedModel, docs: list[Doc], is_train: bool
) -> tuple[list[Floats2d], Callable[[list[Floats2d]], list[Doc]]]:
    if not docs:
        return [], lambda dY: docs
    xp = model.ops.xp
    parts, learners = zip(*(embedder(docs, is_train) for embedder in model.layers), strict=True)
    columns = list(pairwise(np.cumsum([0, *map(_width, parts)]).tolist()))
    empty = xp.zeros((0, columns[-1][1]), dtype="f")
    outputs = [xp.concatenate(rows, axis=1) if len(rows[0]) else empty for rows in zip(*parts, strict=True)]

    def backprop(dY: list[Floats2d]) -> list[Doc]:
        for learn, (begin, end) in zip(learners, columns, strict=True):
            learn([xp.ascontiguousarray(dy[:, begin:end]) for dy in dY])
        return docs

    return outputs, backprop


def _width(part: list[Floats2d]) -> int:
    """How wide rows are. A transformer's listener knows it of no empty text."""
    return next((rows for rows in part if len(rows)), part[0]).shape[1]
