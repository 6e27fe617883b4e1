"""The FLAT and MECT encoder in NumPy, for prediction on a CPU without torch.

Each class corresponds to the class with the same name in `flat_torch`. It is created from the torch module's weights,
and returns the same output as the module in evaluation mode. The tests in `tests/architectures/test_parity.py` compare
the outputs.
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

# Maximum sentence length in characters for which `SpanPositions` caches its lookup table. Long texts are divided into
# windows that are shorter.
MAX_CACHED = 512


class SpanPositions:
    """Relative position embeddings, which encode the distances between two spans. See `flat_torch.SpanPositions`.

    width (int): Embedding width d.
    distances (Sequence[str]): Names of the distances that the embeddings encode: "hh", "ht", "th" or "tt".
    weights (Weights): The torch module's weights.
    """

    def __init__(self, width: int, distances: Sequence[str], weights: Weights) -> None:
        self.width = width
        self.distance_indices = [DISTANCES.index(distance) for distance in distances]
        weights.shaped("fuse.weight", len(distances) * width, width)
        self.fuse = Linear(weights.part("fuse"))
        self._cached: tuple[int, FloatArray] | None = None

    def __call__(self, plan: SpanPlan) -> FloatArray:
        """Compute an embedding for each distinct relative position in a batch.

        A relative position consists of the distances between two spans.

        plan (SpanPlan): The distinct relative positions in the batch.
        RETURNS (FloatArray): *Shape:* (relative positions, width)
        """
        zero, terms = self._terms(plan.longest)
        rows = plan.distances[:, self.distance_indices] + zero
        total = terms[rows[:, 0], 0]
        for i in range(1, len(self.distance_indices)):
            total += terms[rows[:, i], i]
        return relu(total)

    def _terms(self, longest: int) -> tuple[int, FloatArray]:
        """Return a lookup table with the projected sinusoidal embedding for each distance.

        The table only depends on the weights and the maximum distance, so it is cached. Its length is rounded up to a
        power of 2, so that a slightly longer sentence does not require a new table.

        longest (int): Maximum sentence length. All distances are between `-longest` and `longest`, exclusive.
        RETURNS (Tuple[int, FloatArray]): The row index for distance 0, and the table. The table has a row per distance
            and a column per name in `distances`. *Shape:* (2 * length - 1, names, width)
        """
        cached = self._cached  # another thread may replace the attribute, so read it only once
        if cached is not None and longest <= cached[0] + 1:
            return cached
        length = longest if longest > MAX_CACHED else min(MAX_CACHED, 1 << max(longest - 1, 63).bit_length())
        sin, cos = sinusoids(length, self.width)
        # For negative distances, mirror the embeddings: sin(-x) = -sin(x) and cos(-x) = cos(x).
        symmetric = interleave(np.concatenate((-sin[:0:-1], sin)), np.concatenate((cos[:0:-1], cos)))
        terms = length - 1, self.fuse(symmetric).reshape(len(symmetric), len(self.distance_indices), self.width)
        if length <= MAX_CACHED:
            self._cached = terms
        return terms


class SpanAttention:
    """Multi-head attention between spans, which are characters or lexicon words. See `flat_torch.SpanAttention`.

    config (FlatConfig | MectConfig): Encoder hyperparameters.
    weights (Weights): The torch module's weights.
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
        """Compute attention within each sentence. Each query attends to all spans in its sentence.

        x (FloatArray): Hidden states from which the queries are projected. *Shape:* (queries, width)
        rows (FloatArray): Hidden states from which the keys and values are projected. *Shape:* (spans, width)
        relative (FloatArray): Relative position embeddings. *Shape:* (relative positions, width)
        groups (Sequence[QueryGroup]): The queries, divided into groups that are computed at once.
        RETURNS (FloatArray): *Shape:* (queries, width)
        """
        key = rows if self.key is None else self.key(rows)
        q, k, v, positions = map(self._split_heads, (self.query(x), key, self.value(rows), self.position(relative)))
        q, q_position, bias = q + self.u, q + self.v, self._bias(groups)
        attended: FloatArray = np.empty_like(q)
        for group in groups:
            scores = _products(q[group.queries], k[group.keys])
            products = _products(q_position[group.queries], positions[group.columns])
            # Look up the position score for each query and key. On flat rows, np.take is faster than
            # np.take_along_axis.
            pairs = group.pairs + np.arange(0, products[0].size, products.shape[2])[:, None]
            scores += np.take(products.reshape(self.n_heads, -1), pairs, axis=1)
            if bias is not None:
                bias_block = bias[:, group.position : group.position + len(group.queries), : len(group.keys)]
                scores[:, : bias_block.shape[1], : bias_block.shape[2]] += bias_block
            weights = exponentials(scores)
            sums = weights @ v[group.keys].swapaxes(0, 1)
            attended[group.queries] = (sums / weights.sum(axis=-1, keepdims=True)).swapaxes(0, 1)
        values: FloatArray = attended.reshape(x.shape)
        return values

    def _split_heads(self, x: FloatArray) -> FloatArray:
        """Split the last dimension into attention heads. *Shape:* (rows, width) to (rows, heads, head width)"""
        return x.reshape(len(x), self.n_heads, x.shape[1] // self.n_heads)

    def _bias(self, groups: Sequence[QueryGroup]) -> FloatArray | None:
        """Return the biases of MECT's random attention for the positions that occur in a batch.

        RETURNS (Optional[FloatArray]): Bias for each pair of positions, or None if the encoder has no random attention.
            *Shape:* (heads, query positions, key positions)
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
    """Compute the dot products between all rows in `a` and all rows in `b`, for each attention head.

    a (FloatArray): *Shape:* (rows of a, heads, head width)
    b (FloatArray): *Shape:* (rows of b, heads, head width)
    RETURNS (FloatArray): *Shape:* (heads, rows of a, rows of b)
    """
    products: FloatArray = a.swapaxes(0, 1) @ b.transpose(1, 2, 0)
    return products


class SpanEncoder:
    """The FLAT and MECT encoder. See `flat_torch.SpanEncoder`.

    config (FlatConfig | MectConfig): Encoder hyperparameters.
    weights (Weights): The torch module's weights.
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
        """Encode the characters in a batch of sentences.

        inputs (Any): The character embeddings, the radical embeddings (MECT only), the word embeddings, and the
            `Lattice` with the word positions. *Shape:* (characters, character width), (characters, radical width) and
            (words, word width)
        RETURNS (FloatArray): Character hidden states. *Shape:* (characters, width)
        """
        *characters, words, lattice = inputs
        *inner, last = self.layers
        plan = plan_spans(lattice, word_queries=bool(inner))
        relative = [positions(plan) for positions in self.positions]
        streams = [project(rows) for project, rows in zip(self.inputs, characters, strict=True)]
        of_words = self.word_input(words)
        # Words have no radical embeddings. In MECT's radical stream, their hidden states are zeros.
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
        """Compute a transformer layer for each stream. See `flat_torch.SpanLayer`.

        layers (Sequence[TransformerLayer]): One layer per stream.
        queries (Sequence[FloatArray]): Per stream, the hidden states that are updated. *Shape:* (queries, width)
        rows (Sequence[FloatArray]): Per stream, the hidden states of all spans. *Shape:* (spans, width)
        relative (Sequence[FloatArray]): Per stream, the relative position embeddings. *Shape:* (relative positions,
            width)
        groups (Sequence[QueryGroup]): The queries, divided into groups that are computed at once.
        RETURNS (list[FloatArray]): Per stream, the updated hidden states. *Shape:* (queries, width)
        """
        # Cross-attention: with two streams, reversing `queries` swaps the inputs from which the queries are projected.
        return [
            layer.complete(x, layer.attention(source, *inputs, groups))
            for layer, x, source, *inputs in zip(layers, queries, queries[::-1], rows, relative, strict=True)
        ]
