"""Multi-head attention in NumPy, for batches of sequences with different lengths.

`attention_torch` has the torch version.

Sequences with similar lengths are grouped into buckets and padded. The buckets are processed one after the other. They
are so small that their arrays fit into the CPU cache. Functions whose name starts with `write_` add the same operations
to an ONNX graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..sequences import Lengths, as_lengths, pad_rows, plan_buckets, starts
from ..types import BoolArray, FloatArray, IntArray
from .graph import PaddedBatch, Value

# A bucket's cost is measured in token pairs (a query and a key). Computing the linear layers for one token takes as
# long as attention for 160 token pairs.
PAIRS_PER_TOKEN = 160
# The cost of an additional bucket, in token pairs. A bucket is split only if the padding that this saves costs more.
PAIRS_PER_PADDED_BUCKET = 8192
# Maximum cost of a bucket with several sequences, in token pairs, so that its arrays fit into the CPU cache.
PAIRS_AT_ONCE = 1 << 17


@dataclass(frozen=True)
class PaddedBucket:
    """A padded batch of sequences with similar lengths.

    Embeddings are stored in an array with the shape (sequences * longest, width).

    For example, the sequences `c d e f g` and `i j k l` are padded as follows. The dot is a padded position:

        c d e f g       is_real:  1 1 1 1 1      order of the embeddings:  c d e f g i j k l .
        i j k l .                 1 1 1 1 0

    lengths (IntArray): Sequence lengths in tokens. No sequence is empty. *Shape:* (sequences,)
    is_real (BoolArray | None): Mask that is False for padded positions. None if there is no padding. *Shape:*
        (sequences, longest)
    """

    lengths: IntArray
    is_real: BoolArray | None

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the padded batch: the number of sequences, and the maximum sequence length."""
        return len(self.lengths), int(self.lengths.max())

    def means(self, x: FloatArray) -> FloatArray:
        """Compute the mean over each sequence's tokens, without padding.

        All tokens in a sequence get the same mean.

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
    """Group sequences into padded buckets, apply a function to each bucket, and remove the padding.

    lengths (Lengths): Sequence lengths in tokens. *Shape:* (sequences,)
    x (FloatArray): Concatenated token embeddings. *Shape:* (tokens, input width)
    width (int): Output width.
    compute (Callable): Function that is called with a bucket's padded embeddings and the bucket itself. *Shape:*
        (padded tokens, input width) to (padded tokens, width)
    RETURNS (FloatArray): The results for all tokens. *Shape:* (tokens, width)
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
    """Group sequences into buckets, and yield a gather index and a `PaddedBucket` for each.

    The gather index contains a token index for each padded position and has the shape (padded tokens,). Empty sequences
    are skipped.
    """
    begins = starts(lengths)
    # Attention is quadratic in the sequence length, and the linear layers are linear.
    costs = lengths * (lengths + PAIRS_PER_TOKEN)
    for sequences in plan_buckets(costs, bucket_cost=PAIRS_PER_PADDED_BUCKET, max_cost=PAIRS_AT_ONCE):
        rows, is_real = pad_rows(begins[sequences], lengths[sequences])
        yield rows.ravel(), PaddedBucket(lengths[sequences], None if is_real.all() else is_real)


# Number of attention scores that fit into the CPU cache. If a bucket has more, its queries are processed in chunks.
SCORES_IN_CACHE = 1 << 18

# If all scores are within ±60, `exp` needs no stabilization: sums of thousands of `exp(60) = 1e26` are finite in
# float32, and `exp(-60) = 9e-27` does not underflow.
SAFE_EXPONENT = 60.0
# Functions that compute attention weights from attention scores. The weights do not need to be normalized, since
# `attend` divides by their sum. Arguments:
# - Attention scores, which may be overwritten. *Shape:* (sequences, heads, queries, keys)
# - Mask that is added to the scores: -inf for padded keys, 0 for other keys. None if there is no padding. *Shape:*
#   (sequences, 1, 1, keys)
# - A value for each query, such as a threshold, or None. *Shape:* (sequences, heads, queries)
Weighting = Callable[[FloatArray, FloatArray | None, FloatArray | None], FloatArray]


def exponentials(
    scores: FloatArray, padding: FloatArray | None = None, per_query: FloatArray | None = None
) -> FloatArray:
    """Compute unnormalized attention weights, `exp(scores)`.

    To complete the softmax, `attend` divides the weights by their sum.

    scores (FloatArray): Attention scores, which are overwritten. *Shape:* (sequences, heads, queries, keys)
    padding (FloatArray | None): -inf for padded keys, 0 for other keys. *Shape:* (sequences, 1, 1, keys)
    per_query (FloatArray | None): Not used.
    """
    # Large scores: mask padded keys and subtract the maximum, so that `exp` cannot overflow. Small scores need neither,
    # since `attend` gives padded keys a weight of 0. Skipping both steps makes TENER's `nlp.pipe` 5 % faster.
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
    """Compute multi-head attention within each sequence in a bucket.

    Scores are not scaled by `1/sqrt(d)`. If a model scales its attention, it has to scale the queries.

    q, k, v (FloatArray): Queries, keys and values. *Shape:* (sequences, heads, length, width) each
    is_real (Optional[BoolArray]): Mask that is False for padded positions. None if there is no padding. *Shape:*
        (sequences, length)
    weighting (Weighting): Function that computes attention weights from attention scores.
    per_query (Optional[FloatArray]): A value for each query that is passed to `weighting`. *Shape:* (sequences, heads,
        length)
    RETURNS (FloatArray): The concatenated head outputs. *Shape:* (padded tokens, width)
    """
    n, n_heads, length, width = v.shape
    attended = np.empty((n, length, n_heads, width), np.float32)
    key_weights, padding = np.ones((n, 1, length, 1), np.float32), None
    if is_real is not None:
        # Set the values of padded keys to 0, and exclude these keys from the sum of weights.
        key_weights = is_real[:, None, :, None].astype(np.float32)
        v = v * key_weights
        padding = np.where(is_real, np.float32(0.0), np.float32(-np.inf))[:, None, None]
    step = max(SCORES_IN_CACHE // (n * n_heads * length), 32)
    for begin in range(0, length, step):
        part = slice(begin, begin + step)
        scores = q[:, :, part] @ k.swapaxes(2, 3)
        weights = weighting(scores, padding, None if per_query is None else per_query[..., part])
        # Sum the weights for each query. A matrix product is several times as fast as `weights.sum(axis=-1)`.
        total = weights @ key_weights
        # Avoid division by zero. The sum is 0 if no key is selected (see `atssa_numpy.select`), and the output is then
        # 0.
        attended[:, part] = (weights @ v / (total + (total == 0.0))).transpose(0, 2, 1, 3)
    return attended.reshape(n * length, n_heads * width)


def split_heads(x: FloatArray, shape: tuple[int, int], n_heads: int) -> FloatArray:
    """Split embeddings into attention heads.

    *Shape:* (padded tokens, width) to (sequences, heads, length, head width)
    """
    return x.reshape(*shape, n_heads, x.shape[1] // n_heads).transpose(0, 2, 1, 3)


def write_split_heads(x: Value, n_heads: int) -> Value:
    """Add the `split_heads` operations to an ONNX graph.

    *Shape:* (sequences, longest, width) to (sequences, heads, longest, head width)
    """
    return x.graph.Transpose(x.graph.Reshape(x, [0, 0, n_heads, -1]), perm=[0, 2, 1, 3])


def write_attend(q: Value, k: Value, v: Value, batch: PaddedBatch) -> Value:
    """Add the `attend` operations, with softmax, to an ONNX graph.

    q, k, v (Value): Queries, keys and values. *Shape:* (sequences, heads, longest, width) each
    batch (PaddedBatch): The sequence lengths and the padding mask.
    RETURNS (Value): The concatenated head outputs. *Shape:* (sequences, longest, width)
    """
    graph = q.graph
    padding = graph.Where(batch.is_real, np.float32(0), np.float32(-np.inf))
    scores = q @ graph.Transpose(k, perm=[0, 1, 3, 2]) + graph.Unsqueeze(padding, [1, 2])
    attended = graph.Softmax(scores, axis=-1) @ v
    return graph.Reshape(graph.Transpose(attended, perm=[0, 2, 1, 3]), [0, 0, -1])


def write_sinusoids(longest: Value, width: int) -> tuple[Value, Value]:
    """Add the `sinusoids` operations to an ONNX graph. *Shape:* (longest, width / 2) each"""
    graph = longest.graph
    positions = graph.Unsqueeze(graph.Range(0, longest, 1).to(np.float64), [1])
    angles = positions * _frequencies(width)
    return graph.Sin(angles).to(np.float32), graph.Cos(angles).to(np.float32)


def sinusoids(length: int, width: int) -> tuple[FloatArray, FloatArray]:
    """Return the sines and cosines of sinusoidal position embeddings (TENER, eq. 8, 9).

    *Shape:* (length, width / 2) each

    The values at position `t` are `sin(t c_i)` and `cos(t c_i)`, with `c_i = 10000^(-2i / width)`.
    """
    # Use float64, since the angles at late positions are too large for float32 precision.
    angles = np.outer(np.arange(length, dtype=np.float64), _frequencies(width))
    return np.sin(angles).astype(np.float32), np.cos(angles).astype(np.float32)


def _frequencies(width: int) -> NDArray[np.float64]:
    """Return the frequencies `c_i = 10000^(-2i / width)` of sinusoidal position embeddings. *Shape:* (width / 2,)"""
    return np.asarray(10000.0 ** (-np.arange(0, width, 2, dtype=np.float64) / width))


def interleave(even: FloatArray, odd: FloatArray) -> FloatArray:
    """Interleave two arrays along the last dimension: `[even_0, odd_0, even_1, odd_1, ...]`."""
    return np.stack((even, odd), axis=-1).reshape(*even.shape[:-1], 2 * even.shape[-1])
