"""Batches as they cross between layers: one array per text, or one of all tokens."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

from spacy.tokens import Doc
from thinc.api import Ops
from thinc.types import Floats2d

from ..types import IntArray

EmbedOutput = tuple[list[Floats2d], Callable[[list[Floats2d]], list[Doc]]]
RaggedOutput = tuple[list[Floats2d], Callable[[list[Floats2d]], list[Floats2d]]]
"""Rows for each text, and the backprop: from their gradient to that of the input."""


class Indices(NamedTuple):
    """Indices that a module needs where it computes: other arrays are read on the host."""

    array: IntArray


def join_rows(ops: Ops, arrays: Sequence[Floats2d]) -> Floats2d:
    """Join the arrays of a batch. *Shape* [n, w] for each text -> [N, w]"""
    # A transformer's listener does not know how wide the rows of an empty text are.
    filled = [array for array in arrays if len(array)] or list(arrays[:1])
    # Contiguous, since torch ends the process on an array that runs backwards.
    joined = ops.xp.ascontiguousarray(filled[0]) if len(filled) == 1 else ops.xp.concatenate(filled, axis=0)
    return cast(Floats2d, joined)


def split_rows(array: Floats2d, lengths: Sequence[int]) -> list[Floats2d]:
    """Undo `join_rows`, by views."""
    ends = itertools.accumulate(lengths)
    return [array[end - length : end] for end, length in zip(ends, lengths, strict=True)]


def token_counts(docs: Sequence[Doc]) -> list[int]:
    """Return the number of tokens of each Doc."""
    return [len(doc) for doc in docs]


def no_backprop(dY: list[Floats2d]) -> list[Floats2d]:
    """Refuse the gradient of a prediction."""
    raise ValueError("Cannot backpropagate through a prediction. Call begin_update() instead of predict().")
