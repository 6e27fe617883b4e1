"""Index arithmetic for sequences of different lengths, which are either concatenated or padded.

The layers, the CRF and the pretrained encoders use these functions. They need NumPy only: lengths and indices are
always on the host, even if the floats are on a GPU.

For the lengths `[2, 0, 3]`, the concatenated rows are

    row                             0  1  2  3  4
    sequence                        0  0  2  2  2
    starts([2, 0, 3])               0, 2, 2           the first row of each sequence
    ranges([5, 7, 8], [2, 0, 3])    5  6  8  9  10
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .processes import cached_property
from .types import AnyFloats, BoolArray, IntArray

Lengths = Sequence[int] | IntArray


def as_lengths(lengths: Lengths, n_tokens: int | None = None) -> IntArray:
    """Return lengths of sequences as a checked array. A length of 0 is allowed. *Shape:* (sequences,)

    n_tokens (int | None): The expected sum of the lengths, if the caller knows it.
    """
    array = np.asarray(lengths, dtype=np.int64).reshape(-1)
    if array.size and array.min() < 0:
        raise ValueError(f"lengths of sequences cannot be negative, got {array.min()}")
    if n_tokens is not None and array.sum() != n_tokens:
        raise ValueError(f"lengths must sum to the number of tokens: got {array.sum()} for {n_tokens} tokens")
    return array


def starts(lengths: IntArray) -> IntArray:
    """Return the index of the first row of each sequence in the concatenated rows. *Shape:* (sequences,)"""
    return np.cumsum(lengths) - lengths


def ranges(begins: IntArray, lengths: IntArray) -> IntArray:
    """Return the concatenated ranges `begin, begin + 1, .., begin + length - 1` of all sequences. *Shape:* (tokens,)"""
    return np.arange(lengths.sum()) + np.repeat(begins - starts(lengths), lengths)


@dataclass(frozen=True)
class Packing:
    """The rows of concatenated sequences in the order of time steps, like PyTorch's `PackedSequence`.

    The recursions of the CRF process all sequences at once, one time step after the other. If the sequences are sorted
    by length, the sequences that have not ended are always the first ones at a step. So the computation skips the
    sequences that have ended, and the arrays need no padding.

    *Flat* rows are in the order of the text. *Packed* rows are ordered by time step, and within a step by the length of
    the sequence, longest first:

        lengths [2, 3]      flat      a0 a1 b0 b1 b2
                            packed    b0 a0 | b1 a1 | b2

    lengths (IntArray): Number of tokens in each sequence. A length of 0 is allowed. *Shape:* (sequences,)
    """

    lengths: IntArray

    @classmethod
    def of(cls, lengths: Lengths, n_tokens: int) -> Packing:
        return cls(as_lengths(lengths, n_tokens))

    @property
    def n_sequences(self) -> int:
        return self.lengths.size

    @cached_property
    def offsets(self) -> IntArray:
        """The flat row of the first token of each sequence. *Shape:* (sequences,)"""
        return starts(self.lengths)

    @cached_property
    def filled(self) -> IntArray:
        """The indices of the sequences that are not empty, in the order of the text."""
        return np.flatnonzero(self.lengths)

    @cached_property
    def order(self) -> IntArray:
        """The indices of the sequences that are not empty, longest first."""
        return np.argsort(-self.lengths, kind="stable")[: self.filled.size]

    @cached_property
    def sizes(self) -> list[int]:
        """The number of sequences at each time step that have not ended."""
        running: list[int] = (self.n_sequences - np.cumsum(np.bincount(self.lengths))).tolist()
        return running[:-1]

    @cached_property
    def steps(self) -> list[tuple[int, int]]:
        """The packed rows of each time step, as `(begin, end)`."""
        ends = np.cumsum(self.sizes, dtype=np.int64).tolist()
        return [(end - size, end) for size, end in zip(self.sizes, ends, strict=True)]

    @cached_property
    def _place(self) -> tuple[IntArray, IntArray]:
        """The time step and the sequence of each packed row."""
        sizes = np.asarray(self.sizes, dtype=np.int64)
        step = np.repeat(np.arange(sizes.size), sizes)
        begin = np.cumsum(sizes) - sizes
        return step, self.order[np.arange(step.size) - begin[step]]

    @cached_property
    def forward(self) -> IntArray:
        """The flat row for each packed row, if the time steps go from the first token to the last."""
        step, sequence = self._place
        return self.offsets[sequence] + step

    @cached_property
    def backward(self) -> IntArray:
        """The flat row for each packed row, if the time steps go from the last token to the first."""
        step, sequence = self._place
        return self.offsets[sequence] + self.lengths[sequence] - 1 - step

    @cached_property
    def sequence(self) -> IntArray:
        """The sequence of each flat row."""
        return np.repeat(np.arange(self.n_sequences), self.lengths)

    @cached_property
    def first(self) -> IntArray:
        """The flat row of the first token of each sequence in `filled`."""
        return self.offsets[self.filled]

    @cached_property
    def last(self) -> IntArray:
        """The flat row of the last token of each sequence in `filled`."""
        return self.first + self.lengths[self.filled] - 1

    @cached_property
    def later(self) -> IntArray:
        """The flat rows of all tokens except the first token of each sequence."""
        joined = np.ones(self.sequence.size, dtype=bool)
        joined[self.first] = False
        return np.flatnonzero(joined)

    def sums(self, values: AnyFloats) -> AnyFloats:
        """Sum values over each sequence, in float64. *Shape:* (tokens,) to (sequences,)"""
        totals = np.bincount(self.sequence, weights=values, minlength=self.n_sequences).astype(np.float64)
        return totals


def plan_buckets(costs: IntArray, *, bucket_cost: int, max_cost: int | None = None) -> list[IntArray]:
    """Group sequences into buckets, so that padding all sequences in a bucket to the largest one wastes little.

    The algorithm is greedy. It splits a bucket where the split saves most padding, as long as this saves more than
    `bucket_cost`. In the end no single split saves more than `bucket_cost`, so a bucket of n sequences wastes at most
    `bucket_cost * (1 + ln n)`.

    costs (IntArray): Cost of each sequence, for example its length. Sequences with a cost of 0 are left out. *Shape:*
        (sequences,)
    bucket_cost (int): Cost of an additional bucket.
    max_cost (Optional[int]): Maximum cost of a padded bucket. A single sequence may cost more.
    RETURNS (List[IntArray]): The indices of the sequences in each bucket, the largest first.
    """
    order = np.argsort(-costs, kind="stable")[: np.count_nonzero(costs)]
    buckets = []
    unfinished = [order] if len(order) else []
    while unfinished:
        bucket = unfinished.pop()
        # If the bucket is split before position i, all sequences from i on are padded to the length of sequence i only.
        savings = (costs[bucket[0]] - costs[bucket]) * np.arange(len(bucket), 0, -1)
        cut = int(savings.argmax())
        if savings[cut] > bucket_cost:
            unfinished += [bucket[cut:], bucket[:cut]]
        else:
            size = len(bucket) if max_cost is None else max(1, max_cost // int(costs[bucket[0]]))
            buckets += [bucket[first : first + size] for first in range(0, len(bucket), size)]
    return buckets


def pad_rows(begins: IntArray, lengths: IntArray) -> tuple[IntArray, BoolArray]:
    """Return gather indices that pad sequences to the longest one, and a mask of the positions that are not padding.

    Padded positions repeat the last row of their sequence, so that all indices are valid.

    begins (IntArray): First row of each sequence. *Shape:* (sequences,)
    lengths (IntArray): Number of rows in each sequence, at least 1. *Shape:* (sequences,)
    RETURNS (Tuple[IntArray, BoolArray]): Row index and mask of each position. *Shape:* (sequences, longest) each
    """
    slots = np.arange(lengths.max(initial=0))
    last = lengths[:, None] - 1
    return begins[:, None] + np.minimum(slots, last), slots <= last


def pad_arrays(arrays: Sequence[IntArray]) -> tuple[IntArray, BoolArray]:
    """Stack arrays of different lengths. Return the padded array, and a mask of the positions that are not padding.

    The padding repeats the last number of each array.

    RETURNS (Tuple[IntArray, BoolArray]): *Shape:* (arrays, longest) each
    """
    lengths = np.array([len(array) for array in arrays])
    rows, is_real = pad_rows(starts(lengths), lengths)
    return np.concatenate(arrays)[rows], is_real
