"""NumPy implementation of TENER's transformer encoder, for prediction on a CPU without torch.

Each class computes the same output as the torch module with the same name in `tener_torch`, without dropout.
`tests/architectures/test_parity.py` compares the outputs. The method `__call__` computes the output in NumPy. The
method `write` adds the same computation to an ONNX graph, for `spacy tener export`. Equation numbers refer to Yan et
al. (2019, https://arxiv.org/abs/1911.04474).

Before attention is computed, `compute_in_buckets` groups sequences of similar lengths and pads each group. The padded
sequences in a group are concatenated to an array with the shape (padded tokens, width).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...nn.attention_numpy import (
    PaddedBucket,
    attend,
    compute_in_buckets,
    interleave,
    sinusoids,
    split_heads,
    write_attend,
    write_sinusoids,
    write_split_heads,
)
from ...nn.graph import PaddedBatch, Value
from ...nn.layers_numpy import Linear, TransformerLayer, Weights
from ...nn.stack_config import StackConfig
from ...sequences import Lengths
from ...types import FloatArray
from .tener_config import TransformerConfig

ComplexArray = NDArray[np.complex64]


class VanillaAttention:
    """Multi-head attention as in the vanilla transformer (eq. 1 to 6).

    config (TransformerConfig): Encoder hyperparameters.
    weights (Weights): The torch module's weights.
    """

    def __init__(self, config: TransformerConfig, weights: Weights) -> None:
        self.n_heads = config.heads
        self.scale = np.float32(config.head_width**-0.5 if config.is_scaled else 1.0)
        self.query = Linear(weights.part("query"))
        self.key = Linear(weights.part("key"))
        self.value = Linear(weights.part("value"))
        weights.shaped("out.weight", config.width, config.width)
        self.out = Linear(weights.part("out"))

    def __call__(self, x: FloatArray, bucket: PaddedBucket) -> FloatArray:
        """Compute self-attention within each padded sequence.

        x (FloatArray): Hidden states. *Shape:* (padded tokens, width)
        bucket (PaddedBucket): Sequence lengths.
        RETURNS (FloatArray): *Shape:* (padded tokens, width)
        """
        query = split_heads(self.query(x) * self.scale, bucket.shape, self.n_heads)
        key = split_heads(self.key(x), bucket.shape, self.n_heads)
        value = split_heads(self.value(x), bucket.shape, self.n_heads)
        return self.out(attend(query, key, value, bucket.is_real))

    def write(self, x: Value, batch: PaddedBatch) -> Value:
        """Add the attention layer to the ONNX graph. *Shape:* (sequences, length, width)"""
        query = write_split_heads(self.query.write(x) * self.scale, self.n_heads)
        key = write_split_heads(self.key.write(x), self.n_heads)
        value = write_split_heads(self.value.write(x), self.n_heads)
        return self.out.write(write_attend(query, key, value, batch))


class RelativePositions(NamedTuple):
    """Sinusoidal tables from which `AdaptedAttention` computes the position term of its scores.

    The frequencies are `c_i = 10000^(-2i / d_k)` (eq. 17), where d_k is the width of a head.

    key_table (FloatArray): `[.., cos(c_i j), sin(c_i j), ..]` for each key position j. *Shape:* (length, head width)
    query_factors (ComplexArray): `sin(c_i t) - i cos(c_i t)` for each query position t. *Shape:* (length, head width /
        2)
    """

    key_table: FloatArray
    query_factors: ComplexArray

    @classmethod
    def of(cls, length: int, head_width: int) -> RelativePositions:
        """Return the sinusoidal tables for sequences up to the given length."""
        # Round the length up to a power of 2 (at least 64), so that texts of different lengths share a cached table.
        cached_length = 1 << max(length - 1, 63).bit_length()
        positions = _cached_positions(cached_length, head_width)
        return cls(positions.key_table[:length], positions.query_factors[:length])


@lru_cache(maxsize=16)
def _cached_positions(length: int, head_width: int) -> RelativePositions:
    sin, cos = sinusoids(length, head_width)
    return RelativePositions(interleave(cos, sin), sin - np.complex64(1j) * cos)


class AdaptedAttention:
    """TENER's multi-head attention with relative positions (eq. 16 to 19).

    The docstring of `tener_torch.AdaptedAttention` derives the computation.

    config (StackConfig): Encoder sizes.
    weights (Weights): The torch module's weights.
    scaled (bool): Whether to divide the attention scores by `sqrt(d_k)`.
    key_projection (bool): Whether to apply a linear layer to the keys. FLAT-ATSSA uses this layer, TENER doesn't.
    """

    def __init__(
        self,
        config: StackConfig,
        weights: Weights,
        *,
        scaled: bool = False,
        key_projection: bool = False,
    ) -> None:
        self.n_heads = config.heads
        self.head_width = config.head_width
        self.scale = np.float32(config.head_width**-0.5 if scaled else 1.0)
        # Bias vectors for the content term and the position term (eq. 17).
        self.u = weights.shaped("u", config.heads, config.head_width).reshape(-1)
        self.v = weights.shaped("v", config.heads, config.head_width).reshape(-1)
        self.query = Linear(weights.part("query"))
        self.key = Linear(weights.part("key")) if key_projection else None
        self.value = Linear(weights.part("value"))

    def __call__(self, x: FloatArray, bucket: PaddedBucket) -> FloatArray:
        """Compute self-attention within each padded sequence.

        x (FloatArray): Hidden states. *Shape:* (padded tokens, width)
        bucket (PaddedBucket): Sequence lengths.
        RETURNS (FloatArray): *Shape:* (padded tokens, width)
        """
        query, key, value = self.heads(x, bucket)
        return attend(query, key, value, bucket.is_real)

    def heads(self, x: FloatArray, bucket: PaddedBucket) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Compute queries, keys and values, split into heads.

        Queries and keys have twice the head width: the first half computes the content term of the attention scores,
        and the second half the position term.

        x (FloatArray): Hidden states. *Shape:* (padded tokens, width)
        RETURNS (Tuple[FloatArray, FloatArray, FloatArray]): Queries and keys with the shape (sequences, heads, length,
            2 * head width), and values with the shape (sequences, heads, length, head width).
        """
        n_sequences, length = bucket.shape
        relative = RelativePositions.of(length, self.head_width)
        query = self.query(x)
        to_keys = split_heads((query + self.u) * self.scale, bucket.shape, self.n_heads)
        # View adjacent dimensions (a, b) in the queries as complex numbers a + ib. Multiplied by `query_factors`, they
        # are the queries for the position term. `tener_torch.AdaptedAttention` explains the derivation.
        pairs = ((query + self.v) * self.scale).view(np.complex64).reshape(n_sequences, length, self.n_heads, -1)
        to_positions = (pairs * relative.query_factors[:, None]).view(np.float32).transpose(0, 2, 1, 3)
        key = split_heads(x if self.key is None else self.key(x), bucket.shape, self.n_heads)
        value = split_heads(self.value(x), bucket.shape, self.n_heads)
        queries = np.concatenate((to_keys, to_positions), axis=3)
        keys = np.concatenate((key, np.broadcast_to(relative.key_table, key.shape)), axis=3)
        return queries, keys, value

    def write(self, x: Value, batch: PaddedBatch) -> Value:
        """Add the attention layer to the ONNX graph. *Shape:* (sequences, length, width)"""
        graph = x.graph
        query = self.query.write(x)
        to_keys = write_split_heads((query + self.u) * self.scale, self.n_heads)
        to_positions = write_split_heads((query + self.v) * self.scale, self.n_heads)
        # ONNX Runtime doesn't support complex numbers, so real and imaginary parts are multiplied separately.
        real = graph.Slice(to_positions, [0], [self.head_width], [3], [2])
        imaginary = graph.Slice(to_positions, [1], [self.head_width], [3], [2])
        sin, cos = write_sinusoids(batch.longest, self.head_width)
        product_real = real * sin + imaginary * cos
        product_imaginary = imaginary * sin - real * cos
        queries = graph.Concat(to_keys, product_real, product_imaginary, axis=3)
        # In the ONNX graph, all real parts precede all imaginary parts. NumPy interleaves them. The dot product of
        # queries and keys is the same, because both use the same order.
        key = write_split_heads(x if self.key is None else self.key.write(x), self.n_heads)
        key_table = graph.Expand(graph.Concat(cos, sin, axis=1), graph.Shape(key))
        keys = graph.Concat(key, key_table, axis=3)
        value = write_split_heads(self.value.write(x), self.n_heads)
        return write_attend(queries, keys, value, batch)


class TransformerEncoder:
    """A stack of transformer layers with adapted or vanilla attention.

    config (TransformerConfig): Encoder hyperparameters.
    weights (Weights): The torch module's weights.
    """

    def __init__(self, config: TransformerConfig, weights: Weights) -> None:
        self.config = config
        self.input = None if weights.get("input.weight") is None else Linear(weights.part("input"))
        self.layers = []
        for i in range(config.layers):
            layer_weights = weights.part("layers", i)
            attention = _transformer_attention(config, layer_weights.part("attention"))
            self.layers.append(TransformerLayer(config, attention, layer_weights))

    def __call__(self, x: FloatArray, lengths: Lengths) -> FloatArray:
        """Encode a batch of sequences.

        x (FloatArray): Token embeddings, concatenated. *Shape:* (tokens, input width)
        lengths (Lengths): Token count per sequence. *Shape:* (sequences,)
        RETURNS (FloatArray): Hidden states. *Shape:* (tokens, width)
        """
        return compute_in_buckets(lengths, x, self.config.width, self._encode)

    def _encode(self, x: FloatArray, bucket: PaddedBucket) -> FloatArray:
        if self.input is not None:
            x = self.input(x)
        if not self.config.adapted:
            n_sequences, length = bucket.shape
            # Vanilla attention: add sinusoidal position embeddings to the input (eq. 8, 9).
            positions = interleave(*sinusoids(length, self.config.width))
            x = x + np.tile(positions, (n_sequences, 1))
        for layer in self.layers:
            x = layer(x, bucket)
        return x

    def write(self, x: Value, batch: PaddedBatch) -> Value:
        """Add the encoder to the ONNX graph.

        x (Value): Padded embeddings. *Shape:* (sequences, length, input width)
        batch (PaddedBatch): Sequence lengths.
        RETURNS (Value): Hidden states. *Shape:* (sequences, length, width)
        """
        graph = x.graph
        if self.input is not None:
            x = self.input.write(x)
        if not self.config.adapted:
            sin, cos = write_sinusoids(batch.longest, self.config.width)
            # Interleave sines and cosines, as `interleave` does in NumPy.
            pairs = graph.Concat(graph.Unsqueeze(sin, [2]), graph.Unsqueeze(cos, [2]), axis=2)
            x = x + graph.Reshape(pairs, [0, -1])
        for layer in self.layers:
            x = layer.write(x, batch)
        return x


def _transformer_attention(config: TransformerConfig, weights: Weights) -> Callable[..., FloatArray]:
    if config.adapted:
        return AdaptedAttention(config, weights, scaled=config.is_scaled)
    return VanillaAttention(config, weights)
