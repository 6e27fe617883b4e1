"""Index arithmetic for batches of variable-length sequences, which are either concatenated or padded.

The layers, the CRF and the pretrained encoders use these functions. Lengths and indices are always NumPy arrays in CPU
memory, even if the hidden states are on a GPU.

Example with three sequences, which have the lengths 2, 0 and 3. The concatenated array has five rows:

    row                             0  1  2  3  4
    sequence index                  0  0  2  2  2
    starts([2, 0, 3])               0, 2, 2           first row of each sequence
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
    """Convert sequence lengths to an array, and check that they are valid.

    Raises a ValueError if a length is negative, or if the lengths don't sum to `n_tokens`.

    lengths (Lengths): Length of each sequence. A length may be 0.
    n_tokens (int | None): Expected total length. None skips the check.
    RETURNS (IntArray): The lengths. *Shape:* (sequences,)
    """
    array = np.asarray(lengths, dtype=np.int64).reshape(-1)
    if array.size and array.min() < 0:
        raise ValueError(f"lengths of sequences cannot be negative, got {array.min()}")
    if n_tokens is not None and array.sum() != n_tokens:
        raise ValueError(f"lengths must sum to the number of tokens: got {array.sum()} for {n_tokens} tokens")
    return array


def starts(lengths: IntArray) -> IntArray:
    """Return each sequence's offset in the concatenated array. *Shape:* (sequences,)"""
    # The exclusive prefix sum of the lengths.
    return np.cumsum(lengths) - lengths


def ranges(begins: IntArray, lengths: IntArray) -> IntArray:
    """Return the concatenation of `np.arange(begin, begin + length)` for all sequences. *Shape:* (sum of lengths,)"""
    # Vectorized: number all rows consecutively, and shift each sequence to its `begin`.
    return np.arange(lengths.sum()) + np.repeat(begins - starts(lengths), lengths)


@dataclass(frozen=True)
class Packing:
    """Indices to process variable-length sequences time step by time step, like PyTorch's `PackedSequence`.

    The CRF's forward and backward recursions process one token of each sequence at each time step. For that, *packed*
    rows are ordered by time step, whereas *flat* rows are the concatenated sequences:

        lengths [2, 3]      flat      a0 a1 b0 b1 b2
                            packed    b0 a0 | b1 a1 | b2

    Within a time step, longer sequences come first. The sequences that are still running are therefore always a prefix,
    so that each time step is a slice and no padding is needed.

    lengths (IntArray): Number of tokens in each sequence. A length may be 0. *Shape:* (sequences,)
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
        """Return the flat row of each sequence's first token. *Shape:* (sequences,)"""
        return starts(self.lengths)

    @cached_property
    def filled(self) -> IntArray:
        """Return the indices of all non-empty sequences, in input order."""
        return np.flatnonzero(self.lengths)

    @cached_property
    def order(self) -> IntArray:
        """Return the indices of all non-empty sequences, sorted by descending length."""
        return np.argsort(-self.lengths, kind="stable")[: self.filled.size]

    @cached_property
    def sizes(self) -> list[int]:
        """Return the number of tokens at each time step, like `PackedSequence.batch_sizes`."""
        # A sequence runs at time step t if its length is greater than t. The last entry, at t = max length, is 0 and is
        # removed.
        running: list[int] = (self.n_sequences - np.cumsum(np.bincount(self.lengths))).tolist()
        return running[:-1]

    @cached_property
    def steps(self) -> list[tuple[int, int]]:
        """Return the slice `(begin, end)` of packed rows for each time step."""
        ends = np.cumsum(self.sizes, dtype=np.int64).tolist()
        return [(end - size, end) for size, end in zip(self.sizes, ends, strict=True)]

    @cached_property
    def _place(self) -> tuple[IntArray, IntArray]:
        """Return the time step and the sequence index of each packed row."""
        sizes = np.asarray(self.sizes, dtype=np.int64)
        step = np.repeat(np.arange(sizes.size), sizes)
        begin = np.cumsum(sizes) - sizes
        return step, self.order[np.arange(step.size) - begin[step]]

    @cached_property
    def forward(self) -> IntArray:
        """Return gather indices from flat to packed rows, for a forward pass.

        At time step t, the forward pass processes the t-th token of each sequence.
        """
        step, sequence = self._place
        return self.offsets[sequence] + step

    @cached_property
    def backward(self) -> IntArray:
        """Return gather indices from flat to packed rows, for a backward pass.

        At time step t, the backward pass processes the t-th token from the end of each sequence.
        """
        step, sequence = self._place
        return self.offsets[sequence] + self.lengths[sequence] - 1 - step

    @cached_property
    def sequence(self) -> IntArray:
        """Return the sequence index of each flat row."""
        return np.repeat(np.arange(self.n_sequences), self.lengths)

    @cached_property
    def first(self) -> IntArray:
        """Return the index of each non-empty sequence's first token in the concatenated batch."""
        return self.offsets[self.filled]

    @cached_property
    def last(self) -> IntArray:
        """Return the index of each non-empty sequence's last token in the concatenated batch."""
        return self.first + self.lengths[self.filled] - 1

    @cached_property
    def later(self) -> IntArray:
        """Return the indices of all tokens that have a predecessor in their sequence, in the concatenated batch."""
        joined = np.ones(self.sequence.size, dtype=bool)
        joined[self.first] = False
        return np.flatnonzero(joined)

    def sums(self, values: AnyFloats) -> AnyFloats:
        """Sum the token values of each sequence in float64. Empty sequences have the sum 0.

        values (AnyFloats): Value of each token. *Shape:* (tokens,)
        RETURNS (AnyFloats): Sum of each sequence. *Shape:* (sequences,)
        """
        totals = np.bincount(self.sequence, weights=values, minlength=self.n_sequences).astype(np.float64)
        return totals


def plan_buckets(costs: IntArray, *, bucket_cost: int, max_cost: int | None = None) -> list[IntArray]:
    """Group sequences with similar sizes into buckets, to reduce padding.

    All sequences in a bucket are padded to the cost of the largest sequence. The greedy algorithm starts with a single
    bucket, and splits it recursively where the split removes the most padding. It stops if no split removes more
    padding than `bucket_cost`.

    The total padding in a bucket of n sequences is at most `bucket_cost * (1 + ln n)`. Proof: a split before position i
    would remove the padding of the n - i remaining sequences. This padding is at most `bucket_cost`, so each position
    has at most `bucket_cost / (n - i)`. The sum over all positions is a harmonic series.

    costs (IntArray): Cost of each sequence, for example its length. Sequences with a cost of 0 are not included in any
        bucket. *Shape:* (sequences,)
    bucket_cost (int): Fixed cost of processing a bucket, in the same unit as `costs`.
    max_cost (Optional[int]): Maximum cost of a bucket including padding. A bucket with a single sequence may exceed it.
    RETURNS (List[IntArray]): Sequence indices in each bucket, by descending cost.
    """
    order = np.argsort(-costs, kind="stable")[: np.count_nonzero(costs)]
    buckets = []
    unfinished = [order] if len(order) else []
    while unfinished:
        bucket = unfinished.pop()
        # Sequences are sorted by descending cost. A split at position i reduces the padded cost of positions i, i + 1,
        # ... from `costs[bucket[0]]` to `costs[bucket[i]]`.
        savings = (costs[bucket[0]] - costs[bucket]) * np.arange(len(bucket), 0, -1)
        cut = int(savings.argmax())
        if savings[cut] > bucket_cost:
            unfinished += [bucket[cut:], bucket[:cut]]
        else:
            size = len(bucket) if max_cost is None else max(1, max_cost // int(costs[bucket[0]]))
            buckets += [bucket[first : first + size] for first in range(0, len(bucket), size)]
    return buckets


def pad_rows(begins: IntArray, lengths: IntArray) -> tuple[IntArray, BoolArray]:
    """Return gather indices that pad sequences to equal length, and a mask.

    Padded positions contain the sequence's last row, so that all gather indices are valid.

    begins (IntArray): First row of each sequence. *Shape:* (sequences,)
    lengths (IntArray): Length of each sequence, at least 1. *Shape:* (sequences,)
    RETURNS (Tuple[IntArray, BoolArray]): The gather indices, and a mask that is False at padded positions. *Shape:*
        (sequences, max length) each
    """
    slots = np.arange(lengths.max(initial=0))
    last = lengths[:, None] - 1
    return begins[:, None] + np.minimum(slots, last), slots <= last


def pad_arrays(arrays: Sequence[IntArray]) -> tuple[IntArray, BoolArray]:
    """Stack 1D arrays with different lengths. Shorter arrays are padded with their last value.

    RETURNS (Tuple[IntArray, BoolArray]): The stacked arrays, and a mask that is False at padded positions. *Shape:*
        (arrays, max length) each
    """
    lengths = np.array([len(array) for array in arrays])
    rows, is_real = pad_rows(starts(lengths), lengths)
    return np.concatenate(arrays)[rows], is_real
