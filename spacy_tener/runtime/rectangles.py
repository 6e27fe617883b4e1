"""Sequences of different lengths as rectangles of slots, each computed by itself while it is in a core's own cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ..batching.sequences import Lengths, as_lengths, cuts_by_cost, starts
from ..types import BoolArray, FloatArray, IntArray

PAIRS_PER_TOKEN = 160
PAIRS_PER_RECTANGLE = 8192
"""What a slot, and what one more rectangle costs, in pairs of slots."""
SLOTS = 512
"""At most so many in a rectangle of more than one sequence."""


@dataclass(frozen=True)
class Rectangle:
    """n sequences of like length in n * L slots.

    lengths: tokens of each sequence, at least one. *Shape: [n]*
    real: which slots are no padding; None where all are. *Shape: [n, L]*
    """

    lengths: IntArray
    real: BoolArray | None

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.lengths), int(self.lengths.max())

    def means(self, x: FloatArray) -> FloatArray:
        """The mean of each sequence, at each of its slots. *Shape: [n L, d]*"""
        slots = x.reshape(*self.shape, x.shape[1])
        total = slots.sum(axis=1) if self.real is None else np.einsum("nld,nl->nd", slots, self.real.astype(np.float32))
        return np.repeat(total / self.lengths[:, None].astype(np.float32), self.shape[1], axis=0)


def in_rectangles(
    given: Lengths, x: FloatArray, width: int, compute: Callable[[FloatArray, Rectangle], FloatArray]
) -> FloatArray:
    """What `compute` makes of each rectangle's slots, *[n L, d]* to *[n L, width]*. *Shape: [N, d] -> [N, width]*"""
    lengths = as_lengths(given, len(x))
    if len(lengths) == 1 and len(x):
        return compute(x, Rectangle(lengths, None))
    made = np.empty((len(x), width), np.float32)
    for tokens, rectangle in _rectangles(lengths):
        computed = compute(x[tokens], rectangle)
        if rectangle.real is None:
            made[tokens] = computed
        else:
            real = rectangle.real.reshape(-1)
            made[tokens[real]] = computed[real]
    return made


def _rectangles(lengths: IntArray) -> Iterator[tuple[IntArray, Rectangle]]:
    """Together they hold every sequence that has tokens. With each comes the row of each of its slots, *Shape: [n L]*:
    padding reads its sequence's last token.
    """
    order, begins = np.argsort(-lengths, kind="stable")[: np.count_nonzero(lengths)], starts(lengths)
    longest_first = lengths[order]
    costs = longest_first * (longest_first + PAIRS_PER_TOKEN)
    for begin, end in pairwise(cuts_by_cost(costs, PAIRS_PER_RECTANGLE)):
        n_parts = -(-(end - begin) // max(1, SLOTS // int(longest_first[begin])))
        for sequences in np.array_split(order[begin:end], n_parts):
            own = lengths[sequences, None]
            column = np.arange(own[0, 0])
            tokens, real = begins[sequences, None] + np.minimum(column, own - 1), column < own
            yield tokens.reshape(-1), Rectangle(own[:, 0], None if real.all() else real)
