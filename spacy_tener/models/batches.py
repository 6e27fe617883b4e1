"""Batches between layers: one array per text, or one of all tokens."""

from __future__ import annotations

import contextlib
import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar, cast

from spacy.tokens import Doc
from thinc.api import Ops
from thinc.types import Floats2d

from ..errors import RemedyError
from ..types import IntArray

Item = TypeVar("Item")
Result = TypeVar("Result")

EmbedOutput = tuple[list[Floats2d], Callable[[list[Floats2d]], list[Doc]]]
RaggedOutput = tuple[list[Floats2d], Callable[[list[Floats2d]], list[Floats2d]]]
"""Rows for each text, and the backprop: from their gradient to that of the input."""


class Indices(NamedTuple):
    """Indices that a module needs on its own device. Other arrays stay on the host."""

    array: IntArray


class RowViews(list[Floats2d]):
    """The rows of each text as views of one joined array."""

    def __init__(self, joined: Floats2d, lengths: Sequence[int]) -> None:
        ends = itertools.accumulate(lengths)
        super().__init__(joined[end - length : end] for end, length in zip(ends, lengths, strict=True))
        self._joined = joined
        self._views = tuple(self)

    @property
    def joined(self) -> Floats2d | None:
        """The joined array; None if the list was changed."""
        same = len(self) == len(self._views) and all(map(operator.is_, self, self._views))
        return self._joined if same else None


def join_rows(ops: Ops, arrays: Sequence[Floats2d]) -> Floats2d:
    """Join the arrays of a batch. Copies nothing if they are still views of a layer's joined output.

    *Shape* [n, w] for each text -> [N, w]
    """
    whole = arrays.joined if isinstance(arrays, RowViews) else None
    if whole is not None and whole.flags.c_contiguous:
        return whole
    # A transformer's listener does not know how wide the rows of an empty text are.
    filled = [array for array in arrays if len(array)] or list(arrays[:1])
    # Contiguous, since torch crashes on an array with negative strides.
    joined = ops.xp.ascontiguousarray(filled[0]) if len(filled) == 1 else ops.xp.concatenate(filled, axis=0)
    return cast(Floats2d, joined)


def split_rows(array: Floats2d, lengths: Sequence[int]) -> list[Floats2d]:
    """Undo `join_rows`, by views."""
    return RowViews(array, lengths)


def token_counts(docs: Sequence[Doc]) -> list[int]:
    """Return the number of tokens of each Doc."""
    return [len(doc) for doc in docs]


def no_backprop(dY: list[Floats2d]) -> list[Floats2d]:
    """Raise, since a prediction has no gradient."""
    raise ValueError("Cannot backpropagate through a prediction. Call begin_update() instead of predict().")


def in_halves(compute: Callable[[list[Item]], list[Result]], items: list[Item]) -> list[Result]:
    """Compute a batch at once or, if that takes more memory than the GPU has, in two halves."""
    try:
        return compute(items)
    except Exception as error:
        if not _is_out_of_memory(error):
            raise
        if len(items) < 2:
            raise RemedyError(
                "The GPU's memory is too small to read one text",
                "Lower `window` of tener_ner, and `max_units` with it, or predict on the CPU.",
            ) from error
    # Not inside the handler: there, the error still refers to the tensors of the failed attempt.
    middle = len(items) // 2
    return in_halves(compute, items[:middle]) + in_halves(compute, items[middle:])


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
