"""Predictors of TENER's transformer encoder in NumPy, for pipelines that run on a CPU without torch.

Each class computes in evaluation what the class of the same name in `tener_torch` does, from the same weights;
`tests/architectures/test_parity.py` compares them. `__call__` computes in NumPy. `write` adds the same computation to
an ONNX graph, for `spacy tener export`, where batches are padded.

`compute_in_buckets` divides a batch into buckets of sequences of similar lengths. The arrays of a bucket are padded:
they have a row for each padded token. *Shape:* (padded tokens, width)
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
    """Multi-head attention of the vanilla transformer (eq. 1 to 6).

    config (TransformerConfig): Sizes and options of the encoder.
    weights (Weights): The module's weights.
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
        """Compute attention within each sequence in a bucket. *Shape:* (padded tokens, width)"""
        query = split_heads(self.query(x) * self.scale, bucket.shape, self.n_heads)
        key = split_heads(self.key(x), bucket.shape, self.n_heads)
        value = split_heads(self.value(x), bucket.shape, self.n_heads)
        return self.out(attend(query, key, value, bucket.is_real))

    def write(self, x: Value, batch: PaddedBatch) -> Value:
        """Add the attention to the graph of `x`. *Shape:* (sequences, longest, width)"""
        query = write_split_heads(self.query.write(x) * self.scale, self.n_heads)
        key = write_split_heads(self.key.write(x), self.n_heads)
        value = write_split_heads(self.value.write(x), self.n_heads)
        return self.out.write(write_attend(query, key, value, batch))


class RelativePositions(NamedTuple):
    """The sines and cosines of positions, which `AdaptedAttention` multiplies.

    With `c_i = 10000^(-2i / d_k)` (eq. 17):

    key_table (FloatArray): `[.., cos(c_i j), sin(c_i j), ..]` for each position j of a key. *Shape:* (length, head
        width)
    query_factors (ComplexArray): `sin(c_i t) - i cos(c_i t)` for each position t of a query. *Shape:* (length, head
        width / 2)
    """

    key_table: FloatArray
    query_factors: ComplexArray

    @classmethod
    def of(cls, length: int, head_width: int) -> RelativePositions:
        """Return the relative positions of sequences of this length."""
        # Only lengths that are powers of 2 are cached: there are few of them, while texts have any length.
        cached_length = 1 << max(length - 1, 63).bit_length()
        positions = _cached_positions(cached_length, head_width)
        return cls(positions.key_table[:length], positions.query_factors[:length])


@lru_cache(maxsize=16)
def _cached_positions(length: int, head_width: int) -> RelativePositions:
    sin, cos = sinusoids(length, head_width)
    return RelativePositions(interleave(cos, sin), sin - np.complex64(1j) * cos)


class AdaptedAttention:
    """Multi-head attention of TENER (eq. 16 to 19), in the form that `tener_torch.AdaptedAttention` derives.

    config (StackConfig): Sizes of the encoder.
    weights (Weights): The module's weights.
    scaled (bool): Divide the scores by `sqrt(d_k)`.
    key_projection (bool): Project the keys, as FLAT-ATSSA does and TENER does not.
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
        self.u = weights.shaped("u", config.heads, config.head_width).reshape(-1)
        self.v = weights.shaped("v", config.heads, config.head_width).reshape(-1)
        self.query = Linear(weights.part("query"))
        self.key = Linear(weights.part("key")) if key_projection else None
        self.value = Linear(weights.part("value"))

    def __call__(self, x: FloatArray, bucket: PaddedBucket) -> FloatArray:
        """Compute attention within each sequence in a bucket. *Shape:* (padded tokens, width)"""
        query, key, value = self.heads(x, bucket)
        return attend(query, key, value, bucket.is_real)

    def heads(self, x: FloatArray, bucket: PaddedBucket) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return queries, keys and values, where queries and keys are concatenated with their position terms.

        x (FloatArray): *Shape:* (padded tokens, width)
        RETURNS (Tuple[FloatArray, FloatArray, FloatArray]): *Shape:* (sequences, heads, length, 2 * head width) for
            queries and keys, (sequences, heads, length, head width) for values
        """
        n_sequences, length = bucket.shape
        relative = RelativePositions.of(length, self.head_width)
        query = self.query(x)
        to_keys = split_heads((query + self.u) * self.scale, bucket.shape, self.n_heads)
        # Each pair of neighbouring numbers is read as a complex number, and multiplied by its position's factor.
        pairs = ((query + self.v) * self.scale).view(np.complex64).reshape(n_sequences, length, self.n_heads, -1)
        to_positions = (pairs * relative.query_factors[:, None]).view(np.float32).transpose(0, 2, 1, 3)
        key = split_heads(x if self.key is None else self.key(x), bucket.shape, self.n_heads)
        value = split_heads(self.value(x), bucket.shape, self.n_heads)
        queries = np.concatenate((to_keys, to_positions), axis=3)
        keys = np.concatenate((key, np.broadcast_to(relative.key_table, key.shape)), axis=3)
        return queries, keys, value

    def write(self, x: Value, batch: PaddedBatch) -> Value:
        """Add the attention to the graph of `x`. *Shape:* (sequences, longest, width)"""
        graph = x.graph
        query = self.query.write(x)
        to_keys = write_split_heads((query + self.u) * self.scale, self.n_heads)
        to_positions = write_split_heads((query + self.v) * self.scale, self.n_heads)
        # ONNX Runtime has no products of complex numbers, so real and imaginary parts are computed one by one.
        real = graph.Slice(to_positions, [0], [self.head_width], [3], [2])
        imaginary = graph.Slice(to_positions, [1], [self.head_width], [3], [2])
        sin, cos = write_sinusoids(batch.longest, self.head_width)
        product_real = real * sin + imaginary * cos
        product_imaginary = imaginary * sin - real * cos
        queries = graph.Concat(to_keys, product_real, product_imaginary, axis=3)
        # The real parts of all pairs come first, then the imaginary parts, in queries and in keys.
        key = write_split_heads(x if self.key is None else self.key.write(x), self.n_heads)
        key_table = graph.Expand(graph.Concat(cos, sin, axis=1), graph.Shape(key))
        keys = graph.Concat(key, key_table, axis=3)
        value = write_split_heads(self.value.write(x), self.n_heads)
        return write_attend(queries, keys, value, batch)


class TransformerEncoder:
    """A stack of transformer layers, with adapted or with vanilla attention.

    config (TransformerConfig): Sizes and options.
    weights (Weights): The module's weights.
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
        """Encode all tokens.

        x (FloatArray): The tokens, concatenated. *Shape:* (tokens, input width)
        lengths (Lengths): Token count per sequence. *Shape:* (sequences,)
        RETURNS (FloatArray): *Shape:* (tokens, width)
        """
        return compute_in_buckets(lengths, x, self.config.width, self._encode)

    def _encode(self, x: FloatArray, bucket: PaddedBucket) -> FloatArray:
        if self.input is not None:
            x = self.input(x)
        if not self.config.adapted:
            n_sequences, length = bucket.shape
            positions = interleave(*sinusoids(length, self.config.width))  # eq. 8, 9
            x = x + np.tile(positions, (n_sequences, 1))
        for layer in self.layers:
            x = layer(x, bucket)
        return x

    def write(self, x: Value, batch: PaddedBatch) -> Value:
        """Add the encoder to the graph of `x`.

        x (Value): *Shape:* (sequences, longest, input width)
        RETURNS (Value): *Shape:* (sequences, longest, width)
        """
        graph = x.graph
        if self.input is not None:
            x = self.input.write(x)
        if not self.config.adapted:
            sin, cos = write_sinusoids(batch.longest, self.config.width)
            # Pairs of a sine and a cosine, flattened as by `interleave`.
            pairs = graph.Concat(graph.Unsqueeze(sin, [2]), graph.Unsqueeze(cos, [2]), axis=2)
            x = x + graph.Reshape(pairs, [0, -1])
        for layer in self.layers:
            x = layer.write(x, batch)
        return x


def _transformer_attention(config: TransformerConfig, weights: Weights) -> Callable[..., FloatArray]:
    if config.adapted:
        return AdaptedAttention(config, weights, scaled=config.is_scaled)
    return VanillaAttention(config, weights)
