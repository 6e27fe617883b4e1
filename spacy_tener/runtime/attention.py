"""Attention among the tokens of a sequence: what `layers.attention` computes, with scores that lie key by query.

So sums over the keys are sums of whole rows; and where no score is large, exponentials need no largest one to be taken
off: then a map of attention is two products and one exponential, its sums come with the second product, by a column of
ones beside the values, and padded keys take no part where their values, and that one, are zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..plans.transformer import StackConfig, TransformerConfig
from ..types import BoolArray, FloatArray
from .buckets import Bucket, Buckets
from .dense import Linear
from .weights import Weights

MODERATE = 60.0
"""Exponentials of numbers nearer to 0 than this, and thousands of them added up, are float32 numbers."""
SCORES_AT_ONCE = 1 << 18
"""So many scores stay in a core's own cache."""
LONGEST_KEPT = 8192

ComplexArray = NDArray[np.complex64]
Weighting = Callable[[FloatArray, FloatArray | None, BoolArray | None], FloatArray]
"""From scores, *Shape: [n, h, L, T]*, what belongs to each query, *[n, h, T]*, and which keys are real, *[n, L]*, to
weights of values."""


@dataclass(frozen=True)
class Heads:
    """Queries, keys and values by head; any scale is in the queries, and positions in both queries and keys.

    q, k: *Shape: [N, h, w]*; v: *Shape: [N, h, d_k + 1]*, the last of them 1
    per_query: what a weighting reads of each query. *Shape: [N, h]*
    """

    q: FloatArray
    k: FloatArray
    v: FloatArray
    per_query: FloatArray | None = None


def exponentials(scores: FloatArray, per_query: FloatArray | None = None, real: BoolArray | None = None) -> FloatArray:
    """The exponential of each score, in place, less its query's largest where any is large."""
    if scores.size and not (scores.max() < MODERATE and scores.min() > -MODERATE):
        scores -= scores.max(axis=-2, keepdims=True)
    return np.exp(scores, out=scores)


def attend(heads: Heads, buckets: Buckets, weighting: Weighting = exponentials) -> FloatArray:
    """Attention within each sequence. *Returns Shape: [N, h d_k]*"""
    mixed = np.empty_like(heads.v)
    for bucket in buckets.buckets:
        n_heads, length = heads.q.shape[1], bucket.tokens.shape[1]
        for part in bucket.parts(max(1, SCORES_AT_ONCE // (n_heads * length**2))):
            part.write(_mix(heads, part, weighting), mixed)
    return divided(mixed)


def divided(mixed: FloatArray) -> FloatArray:
    """Sums of weighted values by the sums of their weights, which are their last column; 0 where there is no weight.

    mixed: *Shape: [N, h, d_k + 1]*. Returns *Shape: [N, h d_k]*
    """
    total = mixed[..., -1:]
    quotient: FloatArray = mixed[..., :-1] / (total + (total == 0.0))
    return quotient.reshape(len(mixed), mixed.shape[1] * (mixed.shape[2] - 1))


def _mix(heads: Heads, bucket: Bucket, weighting: Weighting) -> FloatArray:
    """*Returns Shape: [n, L, h, d_k + 1]*"""
    q, k, v = bucket.pad(heads.q), bucket.pad(heads.k), bucket.pad(heads.v)
    per_query = None if heads.per_query is None else bucket.pad(heads.per_query).transpose(0, 2, 1)
    if bucket.real is not None:
        v *= bucket.real[..., None, None]
    n, length, n_heads, width = v.shape
    keys, values = k.transpose(0, 2, 1, 3), v.transpose(0, 2, 1, 3)
    mixed = np.empty((n, n_heads, length, width), np.float32)
    step = max(SCORES_AT_ONCE // (n * n_heads * length), 32)
    for begin in range(0, length, step):
        cut = slice(begin, begin + step)
        scores = keys @ q[:, cut].transpose(0, 2, 3, 1)
        weights = weighting(scores, None if per_query is None else per_query[..., cut], bucket.real)
        np.matmul(weights.swapaxes(2, 3), values, out=mixed[:, :, cut])
    return mixed.transpose(0, 2, 1, 3)


def with_ones(values: FloatArray, n_heads: int) -> FloatArray:
    """values: *Shape: [N, d]*. Returns *Shape: [N, h, d / h + 1]*"""
    made = np.ones((len(values), n_heads, values.shape[1] // n_heads + 1), np.float32)
    made[..., :-1] = values.reshape(made[..., :-1].shape)
    return made


class VanillaAttention:
    """Projected keys, scaled scores, an output projection; positions are in its input."""

    def __init__(self, config: TransformerConfig, weights: Weights) -> None:
        self.n_heads = config.heads
        self.scale = config.head_width**-0.5 if config.scaled in (None, True) else 1.0
        self.project = Linear(*(weights.part(name) for name in ("query", "key", "value")))
        weights.shaped("out.weight", config.width, config.width)
        self.out = Linear(weights.part("out"))

    def __call__(self, x: FloatArray, buckets: Buckets) -> FloatArray:
        """*Shape: [N, d]*"""
        q, k, v = np.split(self.project(x), 3, axis=1)
        shape = (len(x), self.n_heads, x.shape[1] // self.n_heads)
        heads = Heads((q * np.float32(self.scale)).reshape(shape), k.reshape(shape), with_ones(v, self.n_heads))
        return self.out(attend(heads, buckets))


@dataclass(frozen=True)
class RelativePositions:
    """What the position of each token of a batch puts into its query and its key. *Shape: [N, 1, d_k / 2]* each

    sin, cos: of its own position.
    """

    sin: FloatArray
    cos: FloatArray

    @classmethod
    def of(cls, buckets: Buckets, head_width: int) -> RelativePositions:
        sin, cos = sinusoids(buckets.longest, head_width)
        return cls(sin[buckets.positions, None], cos[buckets.positions, None])

    def turned_query(self, q: FloatArray) -> ComplexArray:
        turned: ComplexArray = q.view(np.complex64) * (self.sin - 1j * self.cos)
        return turned

    @property
    def key(self) -> ComplexArray:
        """`[cos(c j), sin(c j), ..]`"""
        return self.cos + np.complex64(1j) * self.sin

    @property
    def query(self) -> ComplexArray:
        """`[sin(c t), cos(c t), ..]`"""
        return self.sin + np.complex64(1j) * self.cos

    def turned_key(self, k: FloatArray) -> ComplexArray:
        turned: ComplexArray = k.view(np.complex64) * (self.cos - np.complex64(1j) * self.sin)
        return turned


class AdaptedAttention:
    """TENER's attention: see `layers.attention.adapted`, whose equations these are.

    config: Of the stack that it is in.
    weighting: Another way than softmax from scores to weights.
    """

    def __init__(
        self,
        config: StackConfig,
        weights: Weights,
        *,
        scaled: bool = False,
        key_projection: bool = False,
        key_position: bool = False,
    ) -> None:
        self.n_heads, self.head_width = config.heads, config.head_width
        self.scale = np.float32(config.head_width**-0.5 if scaled else 1.0)
        self.key_projection, self.key_position = key_projection, key_position
        names = ("query", "value", "key") if key_projection else ("query", "value")
        self.project = Linear(*(weights.part(name) for name in names))
        self.u, self.v = (weights.shaped(name, config.heads, config.head_width) for name in ("u", "v"))

    def __call__(self, x: FloatArray, buckets: Buckets, relative: RelativePositions) -> FloatArray:
        """*Shape: [N, d]*"""
        return attend(self.heads(x, relative), buckets)

    def heads(self, x: FloatArray, relative: RelativePositions) -> Heads:
        width, shape = x.shape[1], (len(x), self.n_heads, self.head_width)
        projected = self.project(x)
        q, value = projected[:, :width].reshape(shape), projected[:, width : 2 * width]
        key = np.ascontiguousarray(projected[:, 2 * width :] if self.key_projection else x).reshape(shape)
        n_parts = 3 if self.key_position else 2
        queries, keys = (np.empty((*shape[:2], n_parts * self.head_width), np.float32) for _ in range(2))
        np.add(q, self.u, out=queries[..., : self.head_width])
        keys[..., : self.head_width] = key
        # The other parts as complex numbers: [N, h, parts, d_k / 2].
        parts = *shape[:2], n_parts, self.head_width // 2
        turned, turning = (made.view(np.complex64).reshape(parts) for made in (queries, keys))
        turned[:, :, 1], turning[:, :, 1] = relative.turned_query(q + self.v), relative.key
        if self.key_position:
            turned[:, :, 2], turning[:, :, 2] = relative.query, relative.turned_key(key)
        if self.scale != 1.0:
            queries *= self.scale
        return Heads(queries, keys, with_ones(value, self.n_heads))


def sinusoids(length: int, width: int) -> tuple[FloatArray, FloatArray]:
    """`sin(t c_i)` and `cos(t c_i)` for the positions `t < length`. *Shape: [length, width / 2]* each"""
    if length > LONGEST_KEPT:
        return _angles(length, width)
    sin, cos = _kept(1 << max(length - 1, 63).bit_length(), width)
    return sin[:length], cos[:length]


def interleave(even: FloatArray, odd: FloatArray) -> FloatArray:
    """`[even_0, odd_0, even_1, odd_1, ...]` along the last dimension."""
    both: FloatArray = np.stack((even, odd), axis=-1).reshape(*even.shape[:-1], 2 * even.shape[-1])
    return both


@lru_cache(maxsize=32)
def _kept(length: int, width: int) -> tuple[FloatArray, FloatArray]:
    return _angles(length, width)


def _angles(length: int, width: int) -> tuple[FloatArray, FloatArray]:
    frequencies = 10000.0 ** (-np.arange(0, width, 2, dtype=np.float64) / width)
    angles = np.outer(np.arange(length, dtype=np.float64), frequencies)
    return np.sin(angles).astype(np.float32), np.cos(angles).astype(np.float32)
