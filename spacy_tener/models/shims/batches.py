"""Batches as they cross between layers: one array per text, or one of all tokens."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple, cast

from spacy.tokens import Doc
from thinc.api import Ops
from thinc.types import Floats2d

from ...types import IntArray


class Indices(NamedTuple):
    """Indices that a module needs where it computes: other arrays are read on the host."""

    array: IntArray


def flat(ops: Ops, arrays: Sequence[Floats2d]) -> Floats2d:
    """The arrays of a batch as one."""
    # A transformer's listener does not know how wide the rows of an empty text are.
    filled = [array for array in arrays if len(array)] or list(arrays[:1])
    # Contiguous, since torch ends the process on an array that runs backwards.
    joined = ops.xp.ascontiguousarray(filled[0]) if len(filled) == 1 else ops.xp.concatenate(filled, axis=0)
    return cast(Floats2d, joined)


def cut(array: Floats2d, lengths: Sequence[int]) -> list[Floats2d]:
    """The reverse of `flat`, by views."""
    ends = itertools.accumulate(lengths)
    return [array[end - length : end] for end, length in zip(ends, lengths, strict=True)]


def token_counts(docs: Sequence[Doc]) -> list[int]:
    return [len(doc) for doc in docs]
