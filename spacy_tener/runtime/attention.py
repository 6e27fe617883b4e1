"""Attention among the tokens of a sequence, as in `layers.attention`, with a row of scores for each key.

So a sum over keys is a sum of whole rows. Where no score is large, the softmax need not subtract the largest one:
attention is then two products and one exponential. The second product also gives the softmax's denominators, by a
column of ones beside the values. Padded keys are left out by setting their values, and that one, to zeros.

Sequences are computed in padded rectangles of similar lengths, one after the other, each small enough for a core's own
cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..batching.padding import pad_rows, plan_buckets
from ..batching.sequences import Lengths, as_lengths, starts
from ..settings import StackConfig, TransformerConfig
from ..types import BoolArray, FloatArray, IntArray
from .dense import Linear
from .weights import Weights

PAIRS_PER_TOKEN = 160
PAIRS_PER_RECTANGLE = 8192
"""Costs of a slot, and of one more rectangle, in pairs of slots."""
PAIRS_AT_ONCE = 1 << 17
"""Maximum cost of a rectangle with more than one sequence: one that fits into a core's own cache."""


@dataclass(frozen=True)
class Rectangle:
    """n sequences of similar lengths, padded to n * L slots.

    lengths: tokens of each sequence, at least one. *Shape: [n]*
    real: mask of slots with tokens; None if there is no padding. *Shape: [n, L]*
    """

    lengths: IntArray
    real: BoolArray | None

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.lengths), int(self.lengths.max())

    def means(self, x: FloatArray) -> FloatArray:
        """Return the mean over each sequence, repeated at each of its slots. *Shape: [n L, d]*"""
        slots = x.reshape(*self.shape, x.shape[1])
        total = slots.sum(axis=1) if self.real is None else np.einsum("nld,nl->nd", slots, self.real.astype(np.float32))
        return np.repeat(total / self.lengths[:, None].astype(np.float32), self.shape[1], axis=0)


def in_rectangles(
    given: Lengths, x: FloatArray, width: int, compute: Callable[[FloatArray, Rectangle], FloatArray]
) -> FloatArray:
    """Apply `compute` to padded rectangles, *[n L, d]* to *[n L, width]*. *Shape: [N, d] -> [N, width]*"""
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
    """Yield rectangles of all sequences that have tokens, each after the row of each slot. *Shape:* `(slots,)`"""
    begins = starts(lengths)
    costs = lengths * (lengths + PAIRS_PER_TOKEN)
    for sequences in plan_buckets(costs, price=PAIRS_PER_RECTANGLE, most=PAIRS_AT_ONCE):
        rows, is_real = pad_rows(begins[sequences], lengths[sequences])
        yield rows.ravel(), Rectangle(lengths[sequences], None if is_real.all() else is_real)


MODERATE = 60.0
"""For scores up to this, positive or negative, exponentials and sums of thousands of them fit into float32."""
SCORES_AT_ONCE = 1 << 18
"""Number of scores that fit into a core's own cache."""
LONGEST_KEPT = 8192
"""Tables of positions for up to this length are cached."""

ComplexArray = NDArray[np.complex64]
Weighting = Callable[[FloatArray, FloatArray | None, BoolArray | None], FloatArray]
"""Turns scores, *Shape: [n, h, L, T]*, values per query, *[n, h, T]*, and a mask of real keys, *[n, L]*, into weights
that are not yet normalised."""


@dataclass(frozen=True)
class Heads:
    """Queries, keys and values of a rectangle by head; any scale is in the queries, and positions in both queries and
    keys.

    q: *Shape: [n, h, w, L]*; k: *Shape: [n, h, L, w]*; v: *Shape: [n, h, L, d_k + 1]*, the last column 1
    per_query: thresholds, for a weighting that has some. *Shape: [n, h, L]*
    """

    q: FloatArray
    k: FloatArray
    v: FloatArray
    per_query: FloatArray | None = None


def exponentials(scores: FloatArray, per_query: FloatArray | None = None, real: BoolArray | None = None) -> FloatArray:
    """Exponentiate scores, in place. If any is large, the largest of each query is subtracted first."""
    if scores.size and not (scores.max() < MODERATE and scores.min() > -MODERATE):
        if real is not None:
            # Padded keys may have the largest scores, because of their positions: leave them out.
            scores += np.where(real, np.float32(0.0), np.float32(-np.inf))[:, None, :, None]
        scores -= scores.max(axis=-2, keepdims=True)
    return np.exp(scores, out=scores)


def attend(heads: Heads, real: BoolArray | None, weighting: Weighting = exponentials) -> FloatArray:
    """Compute attention within each sequence. *Returns Shape: [n L, h d_k]*"""
    n, n_heads, length, width = heads.v.shape
    values = heads.v if real is None else heads.v * real[:, None, :, None]
    mixed = np.empty((n, length, n_heads, width - 1), np.float32)
    step = max(SCORES_AT_ONCE // (n * n_heads * length), 32)
    for begin in range(0, length, step):
        cut = slice(begin, begin + step)
        per_query = None if heads.per_query is None else heads.per_query[..., cut]
        weights = weighting(heads.k @ heads.q[..., cut], per_query, real)
        _divide(weights.swapaxes(2, 3) @ values, mixed[:, cut].transpose(0, 2, 1, 3))
    return mixed.reshape(n * length, n_heads * (width - 1))


def divided(mixed: FloatArray) -> FloatArray:
    """Divide sums of weighted values by the sums of weights, in the last column; 0 where the latter are 0.

    mixed: *Shape: [N, h, d_k + 1]*. Returns *Shape: [N, h d_k]*
    """
    quotient = np.empty((*mixed.shape[:2], mixed.shape[2] - 1), np.float32)
    _divide(mixed, quotient)
    return quotient.reshape(len(mixed), mixed.shape[1] * (mixed.shape[2] - 1))


def _divide(mixed: FloatArray, quotient: FloatArray) -> None:
    total = mixed[..., -1:]
    np.divide(mixed[..., :-1], total + (total == 0.0), out=quotient)


def split_heads(x: FloatArray, shape: tuple[int, int], n_heads: int) -> FloatArray:
    """Split the last dimension by head. *Shape: [n L, h w] -> [n, h, L, w]*"""
    return x.reshape(*shape, n_heads, x.shape[1] // n_heads).transpose(0, 2, 1, 3)


def values_layer(weights: Weights, n_heads: int) -> Linear:
    """Return the value projection with one more output for each head, always 1."""
    layer = Linear(weights)
    width = layer.weight.shape[1] // n_heads
    weight = np.zeros((len(layer.weight), n_heads, width + 1), np.float32)
    bias = np.zeros((n_heads, width + 1), np.float32)
    weight[..., :-1] = layer.weight.reshape(len(weight), n_heads, width)
    bias[:, -1] = 1.0
    if layer.bias is not None:
        bias[:, :-1] = layer.bias.reshape(n_heads, width)
    return Linear.of(weight.reshape(len(weight), bias.size), bias.reshape(-1))


class VanillaAttention:
    """Vanilla multi-head attention, with an output projection; positions are added to its input."""

    def __init__(self, config: TransformerConfig, weights: Weights) -> None:
        self.n_heads, width = config.heads, config.width
        query, key = (Linear(weights.part(name)) for name in ("query", "key"))
        query = query.scaled(config.head_width**-0.5 if config.scaled in (None, True) else 1.0)
        self.edges = [width, 2 * width]
        self.project = Linear.joined(query, key, values_layer(weights.part("value"), config.heads))
        weights.shaped("out.weight", width, width)
        self.out = Linear(weights.part("out"))

    def __call__(self, x: FloatArray, rectangle: Rectangle) -> FloatArray:
        """*Shape: [n L, d]*"""
        parts = np.split(self.project(x), self.edges, axis=1)
        q, k, v = (split_heads(part, rectangle.shape, self.n_heads) for part in parts)
        return self.out(attend(Heads(q.swapaxes(2, 3), k, v), rectangle.real))


@dataclass(frozen=True)
class RelativePositions:
    """Factors of relative positions for queries and for keys, as complex numbers.

    turn: for the query at t, `sin(c t) - i cos(c t)`, for each head. *Shape: [L, h d_k / 2]*
    key: for the key at j, `cos(c j) + i sin(c j)`. *Shape: [L, d_k / 2]*
    """

    turn: ComplexArray
    key: ComplexArray

    @classmethod
    def of(cls, length: int, n_heads: int, head_width: int) -> RelativePositions:
        make = _relative if length > LONGEST_KEPT else _kept_relative
        made = make(_power(length), n_heads, head_width)
        return cls(made.turn[:length], made.key[:length])


class AdaptedAttention:
    """TENER's attention; see `layers.attention` for the equations. config: settings of the stack that it is in."""

    def __init__(
        self,
        config: StackConfig,
        weights: Weights,
        *,
        scaled: bool = False,
        key_projection: bool = False,
    ) -> None:
        self.n_heads, self.head_width, self.width = config.heads, config.head_width, config.width
        self.key_projection = key_projection
        self.scale = config.head_width**-0.5 if scaled else 1.0
        u, v = (weights.shaped(name, config.heads, config.head_width).reshape(-1) for name in ("u", "v"))
        query, value = Linear(weights.part("query")), values_layer(weights.part("value"), config.heads)
        # The projection computes `(q + u) scale`. `(v - u) scale`, to get `q + v`, is turned once for each position.
        query = Linear.of(query.weight, u if query.bias is None else query.bias + u).scaled(self.scale)
        self.project = Linear.joined(query, value, *([Linear(weights.part("key"))] if key_projection else []))
        self.v_less_u = ((v - u) * np.float32(self.scale)).view(np.complex64)
        self.edges = [config.width, config.width + value.weight.shape[1]]

    def __call__(self, x: FloatArray, rectangle: Rectangle) -> FloatArray:
        """*Shape: [n L, d]*"""
        return attend(self.heads(x, rectangle), rectangle.real)

    def heads(self, x: FloatArray, rectangle: Rectangle) -> Heads:
        """Return queries, keys and values, with relative positions beside the content. *Shape: [n L, d]*"""
        n, length = rectangle.shape
        relative = RelativePositions.of(length, self.n_heads, self.head_width)
        query, value, key = np.split(self.project(x), self.edges, axis=1)
        key = split_heads(key if self.key_projection else x, rectangle.shape, self.n_heads)
        turned = query.view(np.complex64).reshape(n, length, -1) * relative.turn
        turned += self.v_less_u * relative.turn
        width = self.head_width
        # Queries are transposed: products with keys then take two thirds of the time.
        q = np.empty((n, self.n_heads, 2 * width, length), np.float32)
        k = np.empty((n, self.n_heads, length, 2 * width), np.float32)
        q[:, :, :width] = split_heads(query, rectangle.shape, self.n_heads).swapaxes(2, 3)
        q[:, :, width:] = split_heads(
            turned.view(np.float32).reshape(n * length, -1), rectangle.shape, self.n_heads
        ).swapaxes(2, 3)
        k[..., :width], k[..., width:] = key, relative.key.view(np.float32)
        return Heads(q, k, split_heads(value, rectangle.shape, self.n_heads))


def sinusoids(length: int, width: int) -> tuple[FloatArray, FloatArray]:
    """Return `sin(t c_i)` and `cos(t c_i)` for the positions `t < length`. *Shape: [length, width / 2]* each"""
    sin, cos = (_angles if length > LONGEST_KEPT else _kept_angles)(_power(length), width)
    return sin[:length], cos[:length]


def interleave(even: FloatArray, odd: FloatArray) -> FloatArray:
    """Return `[even_0, odd_0, even_1, odd_1, ...]` along the last dimension."""
    return np.stack((even, odd), axis=-1).reshape(*even.shape[:-1], 2 * even.shape[-1])


def _power(length: int) -> int:
    """Return the length of the table to compute: a power of 2, so that few tables are cached."""
    return 1 << max(length - 1, 63).bit_length()


def _angles(length: int, width: int) -> tuple[FloatArray, FloatArray]:
    frequencies = 10000.0 ** (-np.arange(0, width, 2, dtype=np.float64) / width)
    angles = np.outer(np.arange(length, dtype=np.float64), frequencies)
    return np.sin(angles).astype(np.float32), np.cos(angles).astype(np.float32)


def _relative(length: int, n_heads: int, head_width: int) -> RelativePositions:
    sin, cos = sinusoids(length, head_width)
    key = cos + np.complex64(1j) * sin
    return RelativePositions(np.tile(sin - np.complex64(1j) * cos, (1, n_heads)), key)


_kept_angles, _kept_relative = lru_cache(maxsize=32)(_angles), lru_cache(maxsize=32)(_relative)
