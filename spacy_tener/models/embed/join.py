"""Embedders side by side, as one embedder."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import Floats2d

from ..bridge import EmbedModel
from .char import build_char_embed
from .component import build_component_embed


def build_join_embed(first: EmbedModel | None = None, second: EmbedModel | None = None) -> EmbedModel:
    """Embed each token by two embedders, side by side: ours, spaCy's, a transformer's listener.

    Registered as `spacy_tener.JoinEmbed.v1`. For more than two, join joined ones.

    first (Optional[Model[List[Doc], List[Floats2d]]]): `spacy_tener.CharEmbed.v1` if there is none.
    second (Optional[Model[List[Doc], List[Floats2d]]]): `spacy_tener.ComponentEmbed.v1` if there is none.
    """
    return join_embedders(first or build_char_embed(), second or build_component_embed())


def join_embedders(*embedders: EmbedModel) -> EmbedModel:
    """Embed each token by several embedders, side by side.

    Thinc's `concatenate` takes no empty batch, and adds up what the layers' callbacks return, which here are Docs.
    """
    model: EmbedModel = Model(
        "|".join(embedder.name for embedder in embedders),
        _forward,
        init=_init,
        dims={"nO": None},
        layers=embedders,
    )
    _sum_widths(model)
    return model


def _init(model: EmbedModel, X: list[Doc] | None = None, Y: Any = None) -> None:
    for embedder in model.layers:
        embedder.initialize(X)
    _sum_widths(model)


def _sum_widths(model: EmbedModel) -> None:
    if all(embedder.has_dim("nO") for embedder in model.layers):
        model.set_dim("nO", sum(embedder.get_dim("nO") for embedder in model.layers))


def _forward(
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
