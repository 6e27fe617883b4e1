"""Multi-head attention within sequences of different lengths, in NumPy. It is the counterpart of `attention_torch`.

Sequences of similar lengths are padded and form a bucket. Buckets are computed one after the other, and are so small
that the arrays of a bucket fit into a core's cache. `write_attend` and the other functions with this prefix add
the same computations to an ONNX graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..sequences import Lengths, as_lengths, pad_rows, plan_buckets, starts
from ..types import BoolArray, FloatArray, IntArray
from .graph import PaddedBatch, Value

# Cost of the linear layers for a token, in pairs of tokens: computing them takes as long as attention over this number
# of pairs.
PAIRS_PER_TOKEN = 160
# Cost of one more bucket, in pairs of tokens: another bucket pays if it saves more padding.
PAIRS_PER_PADDED_BUCKET = 8192
# Maximum cost of a bucket with more than one sequence, in pairs of tokens. Its arrays fit into a core's cache.
PAIRS_AT_ONCE = 1 << 17


@dataclass(frozen=True)
class PaddedBucket:
    """Sequences of similar lengths, padded to the length of the longest one. The rows of the padded sequences are
    concatenated.

    Two sequences of 5 and 4 tokens, with the shape (2, 5) and padding at the dot:

        c d e f g       is_real:  1 1 1 1 1      rows:  c d e f g i j k l .
        i j k l .                 1 1 1 1 0

    lengths (IntArray): Token count per sequence, at least one. *Shape:* (sequences,)
    is_real (BoolArray | None): Mask of the tokens that are not padding. None if there is no padding. *Shape:*
        (sequences, longest)
    """

    lengths: IntArray
    is_real: BoolArray | None

    @property
    def shape(self) -> tuple[int, int]:
        """Number of sequences, and length of the longest sequence."""
        return len(self.lengths), int(self.lengths.max())

    def means(self, x: FloatArray) -> FloatArray:
        """Compute the mean of each sequence without its padding, repeated for all tokens of the sequence.

        *Shape:* (padded tokens, width) to (padded tokens, width)
        """
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
    """Divide sequences into padded buckets, call a function for each bucket, and remove the padding from its output.

    lengths (Lengths): Token count per sequence. *Shape:* (sequences,)
    x (FloatArray): The concatenated tokens. *Shape:* (tokens, input width)
    width (int): Output width.
    compute (Callable): The function, which gets the rows of a bucket and the bucket. *Shape:* (padded tokens, input
        width) to (padded tokens, width)
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
    """Yield each bucket with its gather index: the token in each padded row. *Shape:* (padded tokens,)

    Sequences without tokens are left out.
    """
    begins = starts(lengths)
    costs = lengths * (lengths + PAIRS_PER_TOKEN)
    for sequences in plan_buckets(costs, bucket_cost=PAIRS_PER_PADDED_BUCKET, max_cost=PAIRS_AT_ONCE):
        rows, is_real = pad_rows(begins[sequences], lengths[sequences])
        yield rows.ravel(), PaddedBucket(lengths[sequences], None if is_real.all() else is_real)


# Number of attention scores that fit into a core's cache. The attention of a longer sequence is computed in chunks
# of queries.
SCORES_IN_CACHE = 1 << 18

# Scores up to this absolute value can be exponentiated: exp(60) = 1e26, so that a sum of thousands is finite in
# float32, and exp(-60) = 9e-27 is not 0.
SAFE_EXPONENT = 60.0
# A function that computes attention weights from scores. It may leave the weights unnormalized, since `attend` divides
# by their sum. Its arguments are:
# - the scores, which it may overwrite. *Shape:* (sequences, heads, queries, keys)
# - a mask that is added to scores, -inf for padded keys and 0 for others; None without padding. *Shape:* (sequences, 1,
#   1, keys)
# - a value for each query, such as a threshold, or None. *Shape:* (sequences, heads, queries)
Weighting = Callable[[FloatArray, FloatArray | None, FloatArray | None], FloatArray]


def exponentials(
    scores: FloatArray, padding: FloatArray | None = None, per_query: FloatArray | None = None
) -> FloatArray:
    """Compute softmax over the last dimension without normalizing it. This is the default `Weighting`.

    scores (FloatArray): *Shape:* (sequences, heads, queries, keys). It is overwritten.
    padding (FloatArray | None): -inf for padded keys, 0 for others. *Shape:* (sequences, 1, 1, keys)
    per_query (FloatArray | None): Not used.
    """
    # Subtracting the maximum prevents an overflow. If no score is large, it isn't needed, which makes TENER's nlp.pipe
    # 5 % faster. Then padding needs no mask either: `attend` gives padded keys the weight 0 in both sums.
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
    """Compute attention within each sequence in a bucket. If scores are scaled, the queries must contain the factor.

    q, k, v (FloatArray): Queries, keys and values. *Shape:* (sequences, heads, length, width) each
    is_real (Optional[BoolArray]): Mask of the tokens that are not padding. None without padding. *Shape:* (sequences,
        length)
    weighting (Weighting): The function from scores to attention weights.
    per_query (Optional[FloatArray]): The third argument of the weighting. *Shape:* (sequences, heads, length)
    RETURNS (FloatArray): The heads' outputs, concatenated. *Shape:* (padded tokens, width)
    """
    n, n_heads, length, width = v.shape
    attended = np.empty((n, length, n_heads, width), np.float32)
    key_weights, padding = np.ones((n, 1, length, 1), np.float32), None
    if is_real is not None:
        # Padded keys are left out of the weighted sum of values, and of the sum of weights.
        key_weights = is_real[:, None, :, None].astype(np.float32)
        v = v * key_weights
        padding = np.where(is_real, np.float32(0.0), np.float32(-np.inf))[:, None, None]
    step = max(SCORES_IN_CACHE // (n * n_heads * length), 32)
    for begin in range(0, length, step):
        part = slice(begin, begin + step)
        scores = q[:, :, part] @ k.swapaxes(2, 3)
        weights = weighting(scores, padding, None if per_query is None else per_query[..., part])
        # A matrix product is several times as fast as NumPy's sum over the last dimension.
        total = weights @ key_weights
        # total == 0 if a query selects no key (see `atssa_numpy.select`). Its output is 0.
        attended[:, part] = (weights @ v / (total + (total == 0.0))).transpose(0, 2, 1, 3)
    return attended.reshape(n * length, n_heads * width)


def split_heads(x: FloatArray, shape: tuple[int, int], n_heads: int) -> FloatArray:
    """Split the last dimension into heads. *Shape:* (padded tokens, width) to (sequences, heads, length, head width)"""
    return x.reshape(*shape, n_heads, x.shape[1] // n_heads).transpose(0, 2, 1, 3)


def write_split_heads(x: Value, n_heads: int) -> Value:
    """Add `split_heads` to the graph.

    *Shape:* (sequences, longest, width) to (sequences, heads, longest, head width)
    """
    return x.graph.Transpose(x.graph.Reshape(x, [0, 0, n_heads, -1]), perm=[0, 2, 1, 3])


def write_attend(q: Value, k: Value, v: Value, batch: PaddedBatch) -> Value:
    """Add attention within each sequence to the graph.

    q, k, v (Value): *Shape:* (sequences, heads, longest, width) each
    RETURNS (Value): *Shape:* (sequences, longest, width)
    """
    graph = q.graph
    padding = graph.Where(batch.is_real, np.float32(0), np.float32(-np.inf))
    scores = q @ graph.Transpose(k, perm=[0, 1, 3, 2]) + graph.Unsqueeze(padding, [1, 2])
    attended = graph.Softmax(scores, axis=-1) @ v
    return graph.Reshape(graph.Transpose(attended, perm=[0, 2, 1, 3]), [0, 0, -1])


def write_sinusoids(longest: Value, width: int) -> tuple[Value, Value]:
    """Add `sinusoids` of the positions in the longest sequence to the graph. *Shape:* (longest, width / 2) each"""
    graph = longest.graph
    positions = graph.Unsqueeze(graph.Range(0, longest, 1).to(np.float64), [1])
    angles = positions * _frequencies(width)
    return graph.Sin(angles).to(np.float32), graph.Cos(angles).to(np.float32)


def sinusoids(length: int, width: int) -> tuple[FloatArray, FloatArray]:
    """Return `sin(t c_i)` and `cos(t c_i)` for the positions `t < length` (TENER, eq. 8, 9). *Shape:* (length, width /
    2) each
    """
    # Computed in float64, since the angles of late positions are large. See `attention_torch.sinusoids`.
    angles = np.outer(np.arange(length, dtype=np.float64), _frequencies(width))
    return np.sin(angles).astype(np.float32), np.cos(angles).astype(np.float32)


def _frequencies(width: int) -> NDArray[np.float64]:
    """Return `c_i = 10000^(-2i / width)`. *Shape:* (width / 2,)"""
    return np.asarray(10000.0 ** (-np.arange(0, width, 2, dtype=np.float64) / width))


def interleave(even: FloatArray, odd: FloatArray) -> FloatArray:
    """Return `[even_0, odd_0, even_1, odd_1, ...]` along the last dimension."""
    return np.stack((even, odd), axis=-1).reshape(*even.shape[:-1], 2 * even.shape[-1])
