"""Sequences of different lengths as a few rectangles, and back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ..plans.sequences import Lengths, as_lengths, bucket_cuts, ranges, starts
from ..types import BoolArray, FloatArray, IntArray

PAIRS_PER_BUCKET = 4096
"""What one more rectangle costs, in pairs of tokens."""


@dataclass(frozen=True)
class Bucket:
    """Sequences of like length.

    tokens: the row of each slot; padding reads its sequence's last token. *Shape: [n, L]*
    real: which slots are no padding; None where all are. *Shape: [n, L]*
    rows: where the rows lie, if they lie side by side in reading order.
    """

    tokens: IntArray
    real: BoolArray | None
    rows: slice | None

    def pad(self, x: FloatArray) -> FloatArray:
        """x: *Shape: [N, ..]*. Returns *Shape: [n, L, ..]*"""
        padded = x[self.tokens] if self.rows is None else x[self.rows].reshape(*self.tokens.shape, *x.shape[1:])
        return padded

    def write(self, padded: FloatArray, flat: FloatArray) -> None:
        """The inverse of `pad`, without the padding. padded: *Shape: [n, L, ..]*; flat: *Shape: [N, ..]*"""
        if self.rows is not None:
            flat[self.rows].reshape(padded.shape)[:] = padded
        elif self.real is None:
            flat[self.tokens] = padded
        else:
            flat[self.tokens[self.real]] = padded[self.real]

    def parts(self, size: int) -> Iterator[Bucket]:
        """Some sequences at a time."""
        if size >= len(self.tokens):
            yield self
            return
        length = self.tokens.shape[1]
        for begin in range(0, len(self.tokens), size):
            tokens, rows = self.tokens[begin : begin + size], None
            if self.rows is not None:
                first = self.rows.start + begin * length
                rows = slice(first, first + tokens.size)
            yield Bucket(tokens, None if self.real is None else self.real[begin : begin + size], rows)


@dataclass(frozen=True)
class Buckets:
    """A batch of sequences.

    lengths: tokens of each sequence; 0 is legal. *Shape: [n]*
    positions: each token's position in its sequence. *Shape: [N]*
    buckets: the rectangles; sequences of no token are in none of them.
    """

    lengths: IntArray
    positions: IntArray
    buckets: tuple[Bucket, ...]

    @classmethod
    def of(cls, given: Lengths, n_tokens: int) -> Buckets:
        lengths = as_lengths(given, n_tokens)
        positions = ranges(np.zeros_like(lengths), lengths)
        if len(lengths) == 1 and n_tokens:
            return cls(lengths, positions, (Bucket(positions[None], None, slice(0, n_tokens)),))
        order, begins = np.argsort(-lengths, kind="stable")[: np.count_nonzero(lengths)], starts(lengths)
        cuts = bucket_cuts(lengths[order], PAIRS_PER_BUCKET)
        made = [_bucket(order[begin:end], lengths, begins) for begin, end in pairwise(cuts)]
        return cls(lengths, positions, tuple(made))

    @property
    def longest(self) -> int:
        return int(self.lengths.max(initial=0))


def _bucket(sequences: IntArray, lengths: IntArray, begins: IntArray) -> Bucket:
    own = lengths[sequences, None]
    column = np.arange(own[0, 0])
    real = column < own
    return Bucket(begins[sequences, None] + np.minimum(column, own - 1), None if real.all() else real, None)
