"""Batches: rows of all tokens, arrays of each text, and batches that are too large for a GPU."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

from spacy.tokens import Doc
from thinc.api import Ops
from thinc.types import Floats2d

from ..errors import RemedyError
from ..types import IntArray


class Indices(NamedTuple):
    """Indices that a module needs on its own device. Other arrays stay on the host."""

    array: IntArray


def join_rows(ops: Ops, arrays: Sequence[Floats2d]) -> Floats2d:
    """Join the arrays of a batch. *Shape* [n, w] for each text -> [N, w]"""
    # A transformer's listener does not know how wide the rows of an empty text are.
    filled = [array for array in arrays if len(array)] or list(arrays[:1])
    # Contiguous, since torch crashes on an array with negative strides.
    joined = ops.xp.ascontiguousarray(filled[0]) if len(filled) == 1 else ops.xp.concatenate(filled, axis=0)
    return cast(Floats2d, joined)


def split_rows(array: Floats2d, lengths: Sequence[int]) -> list[Floats2d]:
    """Undo `join_rows`, by views."""
    return [array[end - length : end] for end, length in zip(itertools.accumulate(lengths), lengths, strict=True)]


def in_halves(compute: Callable[[list[Doc]], Any], docs: list[Doc]) -> list[Any]:
    """Compute a batch at once or, if that takes more memory than the GPU has, in halves. Return the result of each."""
    try:
        return [compute(docs)]
    except Exception as error:
        if not _is_out_of_memory(error):
            raise
        if len(docs) < 2:
            raise RemedyError(
                "The GPU's memory is too small to read one text",
                "Lower `window` of tener_ner, and `max_units` with it, or predict on the CPU.",
            ) from error
    # Not inside the handler: there, the error still refers to the tensors of the failed attempt.
    middle = len(docs) // 2
    return in_halves(compute, docs[:middle]) + in_halves(compute, docs[middle:])


@contextlib.contextmanager
def wrap_memory_errors(lengths: Sequence[int]) -> Iterator[None]:
    """Raise out-of-memory errors of a GPU with the size of the batch, and with settings to lower."""
    try:
        yield
    except Exception as error:
        if not _is_out_of_memory(error):
            raise
        tokens = f"{sum(lengths)} tokens, the longest text {max(lengths, default=0)}"
        raise RemedyError(
            f"The GPU's memory is too small to train on {len(lengths)} texts at once ({tokens})",
            "Lower `size` in [training.batcher], or `max_units` of tener_ner. A transformer needs less memory with "
            "mixed_precision.",
        ) from error


def _is_out_of_memory(error: Exception) -> bool:
    """Return True for a GPU's out-of-memory error: torch and CuPy both call it OutOfMemoryError."""
    return any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__)
