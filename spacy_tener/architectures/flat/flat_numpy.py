"""The NumPy implementation of FLAT's and MECT's encoder, for prediction on a CPU without torch.

Each class computes the same as the class of this name in `flat_torch` in evaluation mode, from the same weights.
`tests/architectures/test_parity.py` compares both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...nn.attention_numpy import exponentials, interleave, sinusoids
from ...nn.layers_numpy import Linear, TransformerLayer, Weights, relu
from ...types import FloatArray
from .flat_config import DISTANCES, FlatConfig, MectConfig
from .flat_config import RANDOM_BLOCK as BLOCK
from .plans import QueryGroup, SpanPlan, plan_spans

# Maximum length in characters whose table of positions is cached. Windows of long texts are shorter than this.
MAX_CACHED = 512


class SpanPositions:
    """The relative position embeddings `R_ij` of all relative positions in a batch. See `flat_torch.SpanPositions`.

    width (int): Width d of the embeddings.
    distances (Sequence[str]): Names of the distances to use, as in `DISTANCES`.
    weights (Weights): The module's weights.
    """

    def __init__(self, width: int, distances: Sequence[str], weights: Weights) -> None:
        self.width = width
        self.distance_indices = [DISTANCES.index(distance) for distance in distances]
        weights.shaped("fuse.weight", len(distances) * width, width)
        self.fuse = Linear(weights.part("fuse"))
        self._cached: tuple[int, FloatArray] | None = None

    def __call__(self, plan: SpanPlan) -> FloatArray:
        """Compute the relative position embeddings. *Shape:* (relative positions, width)"""
        zero, terms = self._terms(plan.longest)
        rows = plan.distances[:, self.distance_indices] + zero
        total = terms[rows[:, 0], 0]
        for i in range(1, len(self.distance_indices)):
            total += terms[rows[:, i], i]
        return relu(total)

    def _terms(self, longest: int) -> tuple[int, FloatArray]:
        """Return the products of all distances with the weights, and the index of distance 0.

        The table depends on the weights only, not on the batch. So it is cached, for lengths that are powers of 2.

        longest (int): Maximum sentence length. The absolute values of all distances are smaller.
        RETURNS (Tuple[int, FloatArray]): The index of distance 0, and the products. *Shape:* (distances, used
            distances, width)
        """
        cached = self._cached  # a local reference, since another thread may replace the attribute
        if cached is not None and longest <= cached[0] + 1:
            return cached
        length = longest if longest > MAX_CACHED else min(MAX_CACHED, 1 << max(longest - 1, 63).bit_length())
        sin, cos = sinusoids(length, self.width)
        # p(d) for all distances -length < d < length: sin(-x) = -sin(x), cos(-x) = cos(x).
        symmetric = interleave(np.concatenate((-sin[:0:-1], sin)), np.concatenate((cos[:0:-1], cos)))
        terms = length - 1, self.fuse(symmetric).reshape(len(symmetric), len(self.distance_indices), self.width)
        if length <= MAX_CACHED:
            self._cached = terms
        return terms


class SpanAttention:
    """Multi-head attention between spans.

    config (FlatConfig | MectConfig): Sizes and options.
    weights (Weights): The module's weights.
    """

    def __init__(self, config: FlatConfig | MectConfig, weights: Weights) -> None:
        self.n_heads = config.heads
        self.u, self.v = (weights.shaped(name, config.heads, config.head_width) for name in ("u", "v"))
        self.query, self.value, self.position = (Linear(weights.part(name)) for name in ("query", "value", "position"))
        self.key = Linear(weights.part("key")) if config.key_projection else None
        self.n_positions, self.blocks = config.random_attention, None
        if self.n_positions:
            blocks_per_side = -(-self.n_positions // BLOCK)
            self.blocks = weights.shaped("random.blocks", blocks_per_side**2, config.heads * BLOCK**2)

    def __call__(
        self, x: FloatArray, rows: FloatArray, relative: FloatArray, groups: Sequence[QueryGroup]
    ) -> FloatArray:
        """Compute attention within each sentence.

        x (FloatArray): Input of the queries. In MECT, it comes from the other stream. *Shape:* (queries, width)
        rows (FloatArray): All hidden states. *Shape:* (spans, width)
        relative (FloatArray): The relative position embeddings. *Shape:* (relative positions, width)
        groups (Sequence[QueryGroup]): The groups of queries.
        RETURNS (FloatArray): *Shape:* (queries, width)
        """
        key = rows if self.key is None else self.key(rows)
        q, k, v, positions = map(self._split_heads, (self.query(x), key, self.value(rows), self.position(relative)))
        q, q_position, bias = q + self.u, q + self.v, self._bias(groups)
        attended: FloatArray = np.empty_like(q)
        for group in groups:
            scores = _products(q[group.queries], k[group.keys])
            products = _products(q_position[group.queries], positions[group.columns])
            # Pick the score of each pair. With one flat row per head, np.take is faster than take_along_axis.
            pairs = group.pairs + np.arange(0, products[0].size, products.shape[2])[:, None]
            scores += np.take(products.reshape(self.n_heads, -1), pairs, axis=1)
            if bias is not None:
                queries = bias[:, group.position : group.position + len(group.queries), : len(group.keys)]
                scores[:, : queries.shape[1], : queries.shape[2]] += queries
            weights = exponentials(scores)
            sums = weights @ v[group.keys].swapaxes(0, 1)
            attended[group.queries] = (sums / weights.sum(axis=-1, keepdims=True)).swapaxes(0, 1)
        values: FloatArray = attended.reshape(x.shape)
        return values

    def _split_heads(self, x: FloatArray) -> FloatArray:
        """Split the last dimension into heads. *Shape:* (rows, width) to (rows, heads, head width)"""
        return x.reshape(len(x), self.n_heads, x.shape[1] // self.n_heads)

    def _bias(self, groups: Sequence[QueryGroup]) -> FloatArray | None:
        """Return MECT's random attention up to the last position in the batch that has a bias. *Shape:* (heads,
        queries, keys)
        """
        if self.blocks is None or not groups:
            return None
        queries = min(max(group.position + len(group.queries) for group in groups), self.n_positions)
        keys = min(max(len(group.keys) for group in groups), self.n_positions)
        query_blocks, key_blocks = (np.arange(-(-n // BLOCK)) for n in (queries, keys))
        blocks: FloatArray = self.blocks[query_blocks[:, None] * -(-self.n_positions // BLOCK) + key_blocks]
        square = blocks.reshape(len(query_blocks), len(key_blocks), self.n_heads, BLOCK, BLOCK).transpose(2, 0, 3, 1, 4)
        bias: FloatArray = square.reshape(self.n_heads, len(query_blocks) * BLOCK, len(key_blocks) * BLOCK)
        return bias[:, :queries, :keys]


def _products(a: FloatArray, b: FloatArray) -> FloatArray:
    """Multiply all pairs of rows, head by head.

    *Shape:* (rows of a, heads, width) and (rows of b, heads, width) to (heads, rows of a, rows of b)
    """
    products: FloatArray = a.swapaxes(0, 1) @ b.transpose(1, 2, 0)
    return products


class SpanEncoder:
    """The encoder of FLAT, with one stream, and of MECT, with a stream of characters and a stream of radicals.

    config (FlatConfig | MectConfig): Sizes and options.
    weights (Weights): The module's weights.
    """

    def __init__(self, config: FlatConfig | MectConfig, weights: Weights) -> None:
        self.config = config
        streams = range(config.n_streams)
        self.inputs = [Linear(weights.part("inputs", i)) for i in streams]
        self.word_input = Linear(weights.part("word_input"))
        self.positions = [
            SpanPositions(config.width, config.used_distances, weights.part("positions", i)) for i in streams
        ]
        parts = [[weights.part("layers", n, "streams", i) for i in streams] for n in range(config.layers)]
        self.layers = [
            [TransformerLayer(config, SpanAttention(config, part.part("attention")), part) for part in layer]
            for layer in parts
        ]
        self.fusion = Linear(weights.part("fusion")) if config.n_streams == 2 else None

    def __call__(self, *inputs: Any) -> FloatArray:
        """Encode all characters.

        inputs (Any): The embeddings of characters and, for MECT, of their radicals, *Shape:* (characters, width); the
            embeddings of words, *Shape:* (words, word width); and the `Lattice`.
        RETURNS (FloatArray): *Shape:* (characters, width)
        """
        *characters, words, lattice = inputs
        *inner, last = self.layers
        plan = plan_spans(lattice, word_queries=bool(inner))
        relative = [positions(plan) for positions in self.positions]
        streams = [project(rows) for project, rows in zip(self.inputs, characters, strict=True)]
        of_words = self.word_input(words)
        # Words have no radicals: they are zeros in the second stream.
        words_of_streams = [of_words, *(np.zeros_like(of_words) for _ in streams[1:])]
        rows = [np.concatenate(pair) for pair in zip(streams, words_of_streams, strict=True)]
        for layer in inner:
            rows = self._layer(layer, rows, rows, relative, plan.character_groups + plan.word_groups)
        streams = [x[: lattice.n_characters] for x in rows]
        streams = self._layer(last, streams, rows, relative, plan.character_groups)
        return streams[0] if self.fusion is None else self.fusion(np.concatenate(streams, axis=1))

    def _layer(
        self,
        layers: Sequence[TransformerLayer],
        queries: Sequence[FloatArray],
        rows: Sequence[FloatArray],
        relative: Sequence[FloatArray],
        groups: Sequence[QueryGroup],
    ) -> list[FloatArray]:
        """Compute one layer for all streams. The queries of MECT's streams are computed from the other stream.

        queries (Sequence[FloatArray]): The hidden states of the spans that are queries, for each stream. *Shape:*
            (queries, width)
        rows (Sequence[FloatArray]): All hidden states, for each stream. *Shape:* (spans, width)
        relative (Sequence[FloatArray]): The relative position embeddings, for each stream. *Shape:* (relative
            positions, width)
        RETURNS (list[FloatArray]): The new hidden states of the queries, for each stream. *Shape:* (queries, width)
        """
        return [
            layer.complete(x, layer.attention(source, *inputs, groups))
            for layer, x, source, *inputs in zip(layers, queries, queries[::-1], rows, relative, strict=True)
        ]
