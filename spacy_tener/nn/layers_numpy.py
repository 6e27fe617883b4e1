"""Layers that architectures share: embedding tables, linear layers, layer norm, convolutions.

Beside what a layer computes in NumPy stands what it writes to a graph of ONNX (`write`), where rows are padded.
*Shape:* (sequences, longest, width)
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..sequences import Lengths, ranges
from ..types import FloatArray, IntArray
from .graph import PaddedBatch, Value
from .weights import Weights, WeightsError

_EPSILON = 1e-5
"""As in `nn.LayerNorm`."""


class Linear:
    """`x W^T + b`. Several layers are computed as one, with their outputs side by side."""

    def __init__(self, *layers: Weights) -> None:
        # Transposed and contiguous: products of few rows then take half the time.
        self.weight = np.ascontiguousarray(np.concatenate([layer["weight"] for layer in layers]).T)
        biases = [bias for layer in layers if (bias := layer.get("bias")) is not None]
        self.bias: FloatArray | None = np.concatenate(biases) if biases else None

    def __call__(self, x: FloatArray) -> FloatArray:
        """Transform the rows of all texts. *Shape:* (tokens, input width) to (tokens, width)"""
        product: FloatArray = x @ self.weight
        if self.bias is not None:
            product += self.bias
        return product

    def write(self, x: Value) -> Value:
        """Write the layer to the graph of `x`."""
        product = x @ self.weight
        return product if self.bias is None else product + self.bias


class LayerNorm:
    """`nn.LayerNorm` over the last dimension."""

    def __init__(self, weights: Weights) -> None:
        self.weight, self.bias = weights["weight"], weights["bias"]

    def __call__(self, x: FloatArray) -> FloatArray:
        """Normalise each row. *Shape:* (tokens, width)"""
        # A product with a constant vector is several times as fast as a mean over columns.
        normed: FloatArray = x - (x @ np.full(x.shape[1], 1.0 / x.shape[1], np.float32))[:, None]
        variance = np.einsum("nd,nd->n", normed, normed) / x.shape[1]
        normed *= (1.0 / np.sqrt(variance + _EPSILON))[:, None]
        normed *= self.weight
        normed += self.bias
        return normed

    def write(self, x: Value) -> Value:
        """Write the norm to the graph of `x`."""
        return x.graph.LayerNormalization(x, self.weight, self.bias, axis=-1, epsilon=_EPSILON)


def relu(x: FloatArray) -> FloatArray:
    """Return `max(x, 0)`, in place."""
    return np.maximum(x, np.float32(0.0), out=x)


class EmbeddingTables:
    """Embedding tables, whose rows are concatenated.

    widths (Mapping[str, int]): Width of each table, by name.
    """

    def __init__(self, widths: Mapping[str, int], weights: Weights) -> None:
        self.tables = [weights.shaped(f"tables.{name}", None, width) for name, width in widths.items()]

    def __call__(self, *rows: IntArray) -> FloatArray:
        """Embed the rows of each table, side by side. *Shape:* (tokens,) each to (tokens, sum of widths)"""
        # Tables may be float16.
        parts = [table[ids].astype(np.float32, copy=False) for table, ids in zip(self.tables, rows, strict=True)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


class Projection:
    """Linear layer that is called as an encoder is, with the lengths of the texts."""

    def __init__(self, weights: Weights) -> None:
        self.linear = Linear(weights.part("linear"))

    def __call__(self, tokens: FloatArray, lengths: Lengths) -> FloatArray:
        """Transform the rows of all texts. *Shape:* (tokens, input width) to (tokens, width)"""
        return self.linear(tokens)

    def write(self, tokens: Value, batch: PaddedBatch) -> Value:
        return self.linear.write(tokens)


class Convolution:
    """Convolution with zero padding at both ends of each sequence.

    out (int): Width of the output.
    size (int): Number of tokens in a window.
    """

    def __init__(self, weights: Weights, out: int, size: int) -> None:
        width = weights.shaped("product.weight", out, None).shape[1]
        if width % size:
            raise WeightsError(f"The weights do not fit a window of {size} tokens")
        self.offsets = np.arange(size) - size // 2
        self.product = Linear(weights.part("product"))

    def __call__(self, x: FloatArray, lengths: IntArray) -> FloatArray:
        """Transform the rows of all texts. *Shape:* (tokens, width) to (tokens, out)"""
        if len(self.offsets) == 1:
            return self.product(x)
        positions = ranges(np.zeros_like(lengths), lengths)[:, None] + self.offsets
        outside = (positions < 0) | (positions >= np.repeat(lengths, lengths)[:, None])
        rows = np.arange(len(x))[:, None] + self.offsets
        rows[outside] = 0
        windows = x[rows]
        windows[outside] = 0.0
        return self.product(windows.reshape(len(x), len(self.offsets) * x.shape[1]))

    def write(self, x: Value, batch: PaddedBatch) -> Value:
        """Write the convolution to the graph of `x`."""
        graph, size = x.graph, len(self.offsets)
        if size == 1:
            return self.product.write(x)
        weight = self.product.weight.reshape(size, -1, self.product.weight.shape[1]).transpose(2, 1, 0)
        columns = graph.Transpose(x * graph.Unsqueeze(batch.is_real.to(np.float32), [2]), perm=[0, 2, 1])
        biases = [] if self.product.bias is None else [self.product.bias]
        return graph.Transpose(graph.Conv(columns, weight, *biases, pads=[size // 2, size // 2]), perm=[0, 2, 1])
