"""Attention over characters and words with relative positions of spans, as in `layers.spans`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from ..batching.lattice import Lattice
from ..batching.span_plan import AttentionPlan, QueryGroup, SpanPlan, query_groups
from ..settings import DISTANCES, FlatConfig, MectConfig
from ..settings import RANDOM_BLOCK as BLOCK
from ..types import FloatArray, IntArray
from .attention import exponentials, interleave, sinusoids, values_layer
from .dense import Linear, relu
from .weights import Weights

KEPT = 512
"""Maximum length in characters whose table of positions is cached; windows of long texts are shorter."""

Queries = QueryGroup[IntArray]
ArrayPlan = SpanPlan[IntArray, Queries]


def plan_spans(lattice: Lattice, *, word_queries: bool) -> ArrayPlan:
    """Plan a batch. word_queries: plan words as queries too."""
    return SpanPlan.of(lattice, word_queries=word_queries, put=list, lay_out=partial(query_groups, kind=QueryGroup))


class SpanPositions:
    """Relative position embeddings `R_ij`, for each row of a plan's position table.

    distances: Names of the distances to embed, of `DISTANCES`.
    """

    def __init__(self, width: int, distances: Sequence[str], weights: Weights) -> None:
        self.width = width
        self.kinds = [DISTANCES.index(distance) for distance in distances]
        weights.shaped("fuse.weight", len(distances) * width, width)
        self.fuse = Linear(weights.part("fuse"))
        self._kept: tuple[int, FloatArray] | None = None

    def __call__(self, plan: ArrayPlan) -> FloatArray:
        """Return the relative positions. *Shape: [R, d]*"""
        zero, terms = self._terms(plan.longest)
        rows = plan.distances[:, self.kinds] + zero
        total = terms[rows[:, 0], 0]
        for i in range(1, len(self.kinds)):
            total += terms[rows[:, i], i]
        return relu(total)

    def _terms(self, longest: int) -> tuple[int, FloatArray]:
        """Return the index of distance 0 and the projected embeddings of all distances, cached up to `KEPT` characters.

        *Shape: [D, distances, d]*
        """
        kept = self._kept  # read once, since other threads may replace it
        if kept is not None and longest <= kept[0] + 1:
            return kept
        length = longest if longest > KEPT else min(KEPT, 1 << max(longest - 1, 63).bit_length())
        sin, cos = sinusoids(length, self.width)
        # p(d) for all distances -length < d < length.
        symmetric = interleave(np.concatenate((-sin[:0:-1], sin)), np.concatenate((cos[:0:-1], cos)))
        made = length - 1, self.fuse(symmetric).reshape(len(symmetric), len(self.kinds), self.width)
        if length <= KEPT:
            self._kept = made
        return made


@dataclass(frozen=True)
class SpanHeads:
    """Queries, keys and values of a batch by head, heads first.

    q, q_position: *Shape: [h, n, d_k]*; k: *Shape: [h, N + W, d_k]*
    v: *Shape: [h, N + W, d_k + 1]*, the last column 1
    table: projected position table; rows come first, since they are gathered. *Shape: [R, h, d_k]*
    bias: added to the scores, by the positions of query and key in their sentence. *Shape: [h, M, M]*
    """

    q: FloatArray
    q_position: FloatArray
    k: FloatArray
    v: FloatArray
    table: FloatArray
    bias: FloatArray | None

    @classmethod
    def joined(cls, each: Sequence[SpanHeads]) -> SpanHeads:
        """Join several attentions over the same spans into one with more heads."""
        if len(each) == 1:
            return each[0]
        names = "q", "q_position", "k", "v"
        q, q_position, k, v = (np.concatenate([getattr(heads, name) for heads in each]) for name in names)
        table = np.concatenate([heads.table for heads in each], axis=1)
        biases = [heads.bias for heads in each if heads.bias is not None]
        return cls(q, q_position, k, v, table, np.concatenate(biases) if biases else None)


def attend_spans(heads: SpanHeads, groups: Sequence[Queries]) -> FloatArray:
    """Return sums of weighted values, with the sums of weights in the last column. *Returns Shape: [n, h, d_k + 1]*"""
    n_heads, n_queries, _ = heads.q.shape
    mixed = np.empty((n_queries, n_heads, heads.v.shape[2]), np.float32)
    for group in groups:
        scores = heads.q[:, group.queries] @ heads.k[:, group.keys].swapaxes(1, 2)
        products = heads.q_position[:, group.queries] @ heads.table[group.columns].transpose(1, 2, 0)
        # np.take of single numbers is fastest along one row at a time.
        scores += np.take(products.reshape(n_heads, -1), _pairs(group), axis=1).reshape(scores.shape)
        if heads.bias is not None:
            _add_bias(scores, heads.bias, group)
        weights = exponentials(scores.swapaxes(1, 2)).swapaxes(1, 2)
        mixed[group.queries] = (weights @ heads.v[:, group.keys]).swapaxes(0, 1)
    return mixed


def _pairs(group: Queries) -> IntArray:
    """Return the index of the product of each query and key among the group's *[G, C]*. *Shape: [G * L]*"""
    # Queries of a single kind need no selection.
    windows = group.windows if len(group.windows) == 1 else group.windows[group.kinds]
    return (windows + group.shifts).reshape(-1)


def _add_bias(scores: FloatArray, bias: FloatArray, group: Queries) -> None:
    reach = bias.shape[-1]
    queries = max(min(scores.shape[1], reach - group.place), 0)
    scores[:, :queries, :reach] += bias[:, group.place : group.place + queries, : scores.shape[2]]


class SpanAttention:
    """Multi-head attention of spans."""

    def __init__(self, config: FlatConfig | MectConfig, weights: Weights) -> None:
        self.n_heads, self.key_projection = config.heads, config.key_projection
        u, v = (weights.shaped(name, config.heads, config.head_width).reshape(-1) for name in ("u", "v"))
        query, value = Linear(weights.part("query")), values_layer(weights.part("value"), config.heads)
        # The projection computes `q + u`.
        self.query = Linear.of(query.weight, u if query.bias is None else query.bias + u)
        self.v_less_u = v - u
        self.read = Linear.joined(value, Linear(weights.part("key"))) if config.key_projection else value
        self.position = Linear(weights.part("position"))
        self.places, self.blocks = config.random_attention, None
        if self.places:
            along = -(-self.places // BLOCK)
            self.blocks = weights.shaped("random.blocks", along**2, config.heads * BLOCK**2)

    def heads(self, plan: AttentionPlan[Queries], x: FloatArray, rows: FloatArray, relative: FloatArray) -> SpanHeads:
        """Return queries, keys and values.

        x: input of the queries: the characters, or all spans, of this stream or of another. *Shape: [n, d]*
        rows: all spans. *Shape: [N + W, d]*
        """
        q = self.query(x)
        read, width = self.read(rows), self.n_heads + rows.shape[1]
        k = read[:, width:] if self.key_projection else rows
        table = self.position(relative)
        table = table.reshape(len(table), self.n_heads, table.shape[1] // self.n_heads)
        q, q_position, k, v = map(self._split, (q, q + self.v_less_u, k, read[:, :width]))
        return SpanHeads(q, q_position, k, v, table, self._bias(plan))

    def _split(self, x: FloatArray) -> FloatArray:
        """Split the last dimension by head. *Shape: [n, h w] -> [h, n, w]*"""
        return x.reshape(len(x), self.n_heads, x.shape[1] // self.n_heads).swapaxes(0, 1)

    def _bias(self, plan: AttentionPlan[Queries]) -> FloatArray | None:
        """Return the random attention for the positions of queries and keys. *Returns Shape: [h, queries, keys]*"""
        if self.blocks is None:
            return None
        queries, keys = min(plan.most, self.places), min(max(plan.lengths, default=0), self.places)
        down, across = (np.arange(-(-n // BLOCK)) for n in (queries, keys))
        blocks: FloatArray = self.blocks[down[:, None] * -(-self.places // BLOCK) + across]
        square = blocks.reshape(len(down), len(across), self.n_heads, BLOCK, BLOCK).transpose(2, 0, 3, 1, 4)
        return square.reshape(self.n_heads, len(down) * BLOCK, len(across) * BLOCK)[:, :queries, :keys]
