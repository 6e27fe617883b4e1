"""Embedders side by side, as one embedder."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import Floats2d

from ..shims.bridge import EmbedModel, cut, flat, token_counts
from .char import build_char_embed
from .radical import build_radical_embed


def build_join_embed(first: EmbedModel | None = None, second: EmbedModel | None = None) -> EmbedModel:
    """Embed each token by two embedders, side by side: ours, spaCy's, a transformer's listener.

    Registered as `spacy_tener.JoinEmbed.v1`. For more than two, join joined ones.

    first (Optional[Model[List[Doc], List[Floats2d]]]): `spacy_tener.CharEmbed.v1` if there is none.
    second (Optional[Model[List[Doc], List[Floats2d]]]): `spacy_tener.RadicalEmbed.v1` if there is none.
    """
    return join_embedders(first or build_char_embed(), second or build_radical_embed())


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
    parts, learners = zip(*(embedder(docs, is_train) for embedder in model.layers), strict=True)
    joined = [flat(model.ops, part) for part in parts]
    columns = list(pairwise(itertools.accumulate((part.shape[1] for part in joined), initial=0)))
    lengths = token_counts(docs)
    outputs = cut(model.ops.xp.concatenate(joined, axis=1), lengths)

    def backprop(dY: list[Floats2d]) -> list[Doc]:
        gradient = flat(model.ops, dY)
        for learn, (begin, end) in zip(learners, columns, strict=True):
            learn(cut(model.ops.xp.ascontiguousarray(gradient[:, begin:end]), lengths))
        return docs

    return outputs, backprop
