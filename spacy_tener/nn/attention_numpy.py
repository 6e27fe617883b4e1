"""Attention among the tokens of a sequence, as in `attention_torch`.

Sequences are computed in padded buckets of similar lengths, one after the other, each small enough for a core's own
cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..sequences import Lengths, as_lengths, pad_rows, plan_buckets, starts
from ..types import BoolArray, FloatArray, IntArray
from .graph import PaddedBatch, Value

PAIRS_PER_TOKEN = 160
"""Cost of a slot, in pairs of slots: of its linear layers, beside its attention."""
PAIRS_PER_PADDED_BUCKET = 8192
"""Cost of one more bucket, in pairs of slots."""
PAIRS_AT_ONCE = 1 << 17
"""Maximum cost of a bucket with more than one sequence: one that fits into a core's own cache."""


@dataclass(frozen=True)
class PaddedBucket:
    """Sequences of similar lengths, padded to the longest of them. Arrays have a row for each slot, joined.

    Two sequences of 5 and 4 tokens, with padding at the dot, in the shape (2, 5):

        c d e f g       is_real:  1 1 1 1 1      rows of slots:  c d e f g i j k l .
        i j k l .              1 1 1 1 0

    lengths (IntArray): Tokens of each sequence, at least one. *Shape:* (sequences,)
    is_real (BoolArray | None): Mask of slots with tokens; None if there is no padding. *Shape:* (sequences, keys)
    """

    lengths: IntArray
    is_real: BoolArray | None

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.lengths), int(self.lengths.max())

    def means(self, x: FloatArray) -> FloatArray:
        """Return the mean over each sequence, repeated at each of its slots. *Shape:* (slots, width)"""
        padded = x.reshape(*self.shape, x.shape[1])
        total = (
            padded.sum(axis=1)
            if self.is_real is None
            else np.einsum("nld,nl->nd", padded, self.is_real.astype(np.float32))
        )
        return np.repeat(total / self.lengths[:, None].astype(np.float32), self.shape[1], axis=0)


def compute_in_buckets(
    lengths: Lengths, x: FloatArray, width: int, compute: Callable[[FloatArray, PaddedBucket], FloatArray]
) -> FloatArray:
    """Compute the rows of all sequences, bucket by bucket.

    x (FloatArray): *Shape:* (tokens, input width)
    width (int): Width of the output.
    compute (Callable): The function of one bucket. *Shape:* (slots, input width) to (slots, width)
    RETURNS (FloatArray): *Shape:* (tokens, width)
    """
    lengths = as_lengths(lengths, len(x))
    if len(lengths) == 1 and len(x):
        return compute(x, PaddedBucket(lengths, None))
    outputs = np.empty((len(x), width), np.float32)
    for tokens, bucket in _padded_buckets(lengths):
        computed = compute(x[tokens], bucket)
        if bucket.is_real is None:
            outputs[tokens] = computed
        else:
            is_real = bucket.is_real.reshape(-1)
            outputs[tokens[is_real]] = computed[is_real]
    return outputs


def _padded_buckets(lengths: IntArray) -> Iterator[tuple[IntArray, PaddedBucket]]:
    """Yield buckets of all sequences that have tokens, each with the row that each slot reads. *Shape:* (slots,)"""
    begins = starts(lengths)
    costs = lengths * (lengths + PAIRS_PER_TOKEN)
    for sequences in plan_buckets(costs, bucket_cost=PAIRS_PER_PADDED_BUCKET, max_cost=PAIRS_AT_ONCE):
        rows, is_real = pad_rows(begins[sequences], lengths[sequences])
        yield rows.ravel(), PaddedBucket(lengths[sequences], None if is_real.all() else is_real)


SCORES_IN_CACHE = 1 << 18
"""Number of scores that fit into a core's own cache; a longer sequence is computed in parts."""

SAFE_EXPONENT = 60.0
"""Exponentials of scores up to this, positive or negative, and sums of thousands of them, fit into float32."""
Weighting = Callable[[FloatArray, FloatArray | None, FloatArray | None], FloatArray]
"""Function from scores to attention weights, up to a factor per query. Its arguments are:

The scores, which it may overwrite. *Shape:* (sequences, heads, queries, keys)
What is added to scores, -inf at padded keys, else 0; None without padding. *Shape:* (sequences, 1, 1, keys)
A value for each query, if there are any. *Shape:* (sequences, heads, queries)
"""


def exponentials(
    scores: FloatArray, padding: FloatArray | None = None, per_query: FloatArray | None = None
) -> FloatArray:
    """Return the softmax over the last dimension, up to a factor per query, in place."""
    # Where no score is large, passes over all scores are saved: a twentieth of TENER's nlp.pipe.
    if scores.size and not (scores.max() < SAFE_EXPONENT and scores.min() > -SAFE_EXPONENT):
        if padding is not None:
            scores += padding
        scores -= scores.max(axis=-1, keepdims=True)
    return np.exp(scores, out=scores)


def attend(
    q: FloatArray,
    k: FloatArray,
    v: FloatArray,
    is_real: BoolArray | None,
    weighting: Weighting = exponentials,
    per_query: FloatArray | None = None,
) -> FloatArray:
    """Compute attention within each sequence of a bucket; any scale is in the queries.

    q, k, v (FloatArray): *Shape:* (sequences, heads, length, width) each
    is_real (Optional[BoolArray]): Mask of real keys. *Shape:* (sequences, length)
    per_query (Optional[FloatArray]): Thresholds of the weighting. *Shape:* (sequences, heads, length)
    RETURNS (FloatArray): *Shape:* (slots, width)
    """
    n, n_heads, length, width = v.shape
    attended = np.empty((n, length, n_heads, width), np.float32)
    key_weights, padding = np.ones((n, 1, length, 1), np.float32), None
    if is_real is not None:
        # Padding counts neither in the sum of values nor in that of weights.
        key_weights = is_real[:, None, :, None].astype(np.float32)
        v = v * key_weights
        padding = np.where(is_real, np.float32(0.0), np.float32(-np.inf))[:, None, None]
    step = max(SCORES_IN_CACHE // (n * n_heads * length), 32)
    for begin in range(0, length, step):
        part = slice(begin, begin + step)
        scores = q[:, :, part] @ k.swapaxes(2, 3)
        weights = weighting(scores, padding, None if per_query is None else per_query[..., part])
        # A product is several times as fast as a sum over the last dimension.
        total = weights @ key_weights
        attended[:, part] = (weights @ v / (total + (total == 0.0))).transpose(0, 2, 1, 3)
    return attended.reshape(n * length, n_heads * width)


def split_heads(x: FloatArray, shape: tuple[int, int], n_heads: int) -> FloatArray:
    """Split the last dimension by head. *Shape:* (slots, width) to (sequences, heads, length, head width)"""
    return x.reshape(*shape, n_heads, x.shape[1] // n_heads).transpose(0, 2, 1, 3)


def write_split_heads(x: Value, n_heads: int) -> Value:
    """Write `split_heads`. *Shape:* (sequences, longest, width) to (sequences, heads, longest, head width)"""
    return x.graph.Transpose(x.graph.Reshape(x, [0, 0, n_heads, -1]), perm=[0, 2, 1, 3])


def write_attend(q: Value, k: Value, v: Value, batch: PaddedBatch) -> Value:
    """Write attention within each sequence.

    q, k, v (Value): *Shape:* (sequences, heads, longest, width) each
    RETURNS (Value): *Shape:* (sequences, longest, width)
    """
    graph = q.graph
    padding = graph.Where(batch.is_real, np.float32(0), np.float32(-np.inf))
    scores = q @ graph.Transpose(k, perm=[0, 1, 3, 2]) + graph.Unsqueeze(padding, [1, 2])
    attended = graph.Softmax(scores, axis=-1) @ v
    return graph.Reshape(graph.Transpose(attended, perm=[0, 2, 1, 3]), [0, 0, -1])


def write_sinusoids(longest: Value, width: int) -> tuple[Value, Value]:
    """Write `sinusoids` of positions up to the longest sequence's. *Shape:* (longest, width / 2) each"""
    graph = longest.graph
    positions = graph.Unsqueeze(graph.Range(0, longest, 1).to(np.float64), [1])
    angles = positions * _frequencies(width)
    return graph.Sin(angles).to(np.float32), graph.Cos(angles).to(np.float32)


def sinusoids(length: int, width: int) -> tuple[FloatArray, FloatArray]:
    """Return `sin(t c_i)` and `cos(t c_i)` for the positions `t < length`. *Shape:* (length, width / 2) each"""
    angles = np.outer(np.arange(length, dtype=np.float64), _frequencies(width))
    return np.sin(angles).astype(np.float32), np.cos(angles).astype(np.float32)


def _frequencies(width: int) -> NDArray[np.float64]:
    """Return `c_i = 10000^(-2i / width)`. *Shape:* (width / 2,)"""
    return np.asarray(10000.0 ** (-np.arange(0, width, 2, dtype=np.float64) / width))


def interleave(even: FloatArray, odd: FloatArray) -> FloatArray:
    """Return `[even_0, odd_0, even_1, odd_1, ...]` along the last dimension."""
    return np.stack((even, odd), axis=-1).reshape(*even.shape[:-1], 2 * even.shape[-1])
