"""Index arithmetic for joined sequences of different lengths, and for padded ones, as layers and the CRF need it.

It is NumPy only, since lengths are known on the host, whatever device holds the floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .processes import cached_property
from .types import AnyFloats, BoolArray, IntArray

Lengths = Sequence[int] | IntArray


def as_lengths(lengths: Lengths, n_tokens: int | None = None) -> IntArray:
    """Return lengths as a checked array; 0 is legal. *Shape:* (sequences,)

    n_tokens (int | None): The sum that they must have, if it is known.
    """
    array = np.asarray(lengths, dtype=np.int64).reshape(-1)
    if array.size and array.min() < 0:
        raise ValueError(f"lengths of sequences cannot be negative, got {array.min()}")
    if n_tokens is not None and array.sum() != n_tokens:
        raise ValueError(f"lengths must sum to the number of tokens: got {array.sum()} for {n_tokens} tokens")
    return array


def starts(lengths: IntArray) -> IntArray:
    """Return the index of the first row of each sequence. *Shape:* (sequences,)"""
    return np.cumsum(lengths) - lengths


def ranges(begins: IntArray, lengths: IntArray) -> IntArray:
    """Return `begin, begin + 1, .., begin + length - 1` for each sequence, joined. *Shape:* (tokens,)"""
    return np.arange(lengths.sum()) + np.repeat(begins - starts(lengths), lengths)


@dataclass(frozen=True)
class Packing:
    """Order of the rows of joined sequences by time step, as in PyTorch's `PackedSequence`.

    The CRF's recursions go step by step through all sequences at once. Sorted by length, the sequences that still run
    at a step are always the first few. So a finished sequence costs nothing, and no array has padding.

    *Flat* rows are in reading order; *packed* rows are ordered by time step, then by length, longest sequence first.
    """

    lengths: IntArray
    """Tokens of each sequence; 0 is legal. *Shape:* (sequences,)"""

    @classmethod
    def of(cls, lengths: Lengths, n_tokens: int) -> Packing:
        return cls(as_lengths(lengths, n_tokens))

    @property
    def n_sequences(self) -> int:
        return self.lengths.size

    @cached_property
    def offsets(self) -> IntArray:
        """The flat row at which each sequence begins."""
        return starts(self.lengths)

    @cached_property
    def filled(self) -> IntArray:
        """The sequences that have tokens, in reading order."""
        return np.flatnonzero(self.lengths)

    @cached_property
    def order(self) -> IntArray:
        """The sequences that have tokens, longest first."""
        return np.argsort(-self.lengths, kind="stable")[: self.filled.size]

    @cached_property
    def sizes(self) -> list[int]:
        """Number of sequences that still run at each step."""
        running: list[int] = (self.n_sequences - np.cumsum(np.bincount(self.lengths))).tolist()
        return running[:-1]

    @cached_property
    def steps(self) -> list[tuple[int, int]]:
        """The packed rows of each step, as `(begin, end)`."""
        ends = np.cumsum(self.sizes, dtype=np.int64).tolist()
        return [(end - size, end) for size, end in zip(self.sizes, ends, strict=True)]

    @cached_property
    def _place(self) -> tuple[IntArray, IntArray]:
        """Time step and sequence of each packed row."""
        sizes = np.asarray(self.sizes, dtype=np.int64)
        step = np.repeat(np.arange(sizes.size), sizes)
        begin = np.cumsum(sizes) - sizes
        return step, self.order[np.arange(step.size) - begin[step]]

    @cached_property
    def forward(self) -> IntArray:
        """The flat row that each packed row holds, reading from the first token on."""
        step, sequence = self._place
        return self.offsets[sequence] + step

    @cached_property
    def backward(self) -> IntArray:
        """The flat row that each packed row holds, reading from the last token back."""
        step, sequence = self._place
        return self.offsets[sequence] + self.lengths[sequence] - 1 - step

    @cached_property
    def sequence(self) -> IntArray:
        """The sequence of each flat row."""
        return np.repeat(np.arange(self.n_sequences), self.lengths)

    @cached_property
    def first(self) -> IntArray:
        """The flat row of the first token of each of the `filled` sequences."""
        return self.offsets[self.filled]

    @cached_property
    def last(self) -> IntArray:
        """The flat row of the last token of each of the `filled` sequences."""
        return self.first + self.lengths[self.filled] - 1

    @cached_property
    def later(self) -> IntArray:
        """The flat rows of all tokens but the first of each sequence."""
        joined = np.ones(self.sequence.size, dtype=bool)
        joined[self.first] = False
        return np.flatnonzero(joined)

    def sums(self, values: AnyFloats) -> AnyFloats:
        """Return the sum over each sequence, in float64. *Shape:* (tokens,) to (sequences,)"""
        totals = np.bincount(self.sequence, weights=values, minlength=self.n_sequences).astype(np.float64)
        return totals


def plan_buckets(costs: IntArray, *, price: int, most: int | None = None) -> list[IntArray]:
    """Sort sequences into buckets, in which each is padded to the costliest.

    A bucket is cut in two where that saves most padding, as long as it saves more than `price`. So no cut of a
    finished bucket saves more than `price`, and its padding wastes at most `price * (1 + ln n)`.

    costs (IntArray): Cost of each sequence; those that cost nothing are in no bucket. *Shape:* (sequences,)
    price (int): Cost of one more bucket.
    most (Optional[int]): Maximum cost of a bucket of more than one sequence.
    RETURNS (List[IntArray]): The sequences of each bucket, the costliest first.
    """
    order = np.argsort(-costs, kind="stable")[: np.count_nonzero(costs)]
    buckets = []
    unfinished = [order] if len(order) else []
    while unfinished:
        bucket = unfinished.pop()
        savings = (costs[bucket[0]] - costs[bucket]) * np.arange(len(bucket), 0, -1)
        cut = int(savings.argmax())
        if savings[cut] > price:
            unfinished += [bucket[cut:], bucket[:cut]]
        else:
            size = len(bucket) if most is None else max(1, most // int(costs[bucket[0]]))
            buckets += [bucket[first : first + size] for first in range(0, len(bucket), size)]
    return buckets


def pad_rows(begins: IntArray, lengths: IntArray) -> tuple[IntArray, BoolArray]:
    """Return the row that each slot of padded sequences holds, and whether the slot is no padding.

    Padding holds the last row of its sequence.

    begins (IntArray): First row of each sequence. *Shape:* (sequences,)
    lengths (IntArray): Rows of each sequence, at least one. *Shape:* (sequences,)
    RETURNS (Tuple[IntArray, BoolArray]): *Shape:* (sequences, longest) each
    """
    slots = np.arange(lengths.max(initial=0))
    last = lengths[:, None] - 1
    return begins[:, None] + np.minimum(slots, last), slots <= last


def pad_arrays(arrays: Sequence[IntArray]) -> tuple[IntArray, BoolArray]:
    """Return arrays as rows of one, padded with the last number of each, and whether a slot is no padding.

    RETURNS (Tuple[IntArray, BoolArray]): *Shape:* (arrays, longest) each
    """
    lengths = np.array([len(array) for array in arrays])
    rows, is_real = pad_rows(starts(lengths), lengths)
    return np.concatenate(arrays)[rows], is_real
