"""Token-wise layers: embedding tables, linear layers, layer norm, feed-forward, and the head of a CRF."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..batching.sequences import Lengths
from ..crf.scorer import PathScorer
from ..types import FloatArray, IntArray
from .weights import Weights

_EPSILON = 1e-5
"""As in `nn.LayerNorm`."""
_ROWS = 256
"""Rows that the feed-forward computes at once. Its hidden layer then fits into a core's own cache."""


class Linear:
    """`x W^T + b`. Several layers are one, with their outputs side by side."""

    def __init__(self, *layers: Weights) -> None:
        # Transposed and contiguous: products of few rows then take half the time.
        self.weight = np.ascontiguousarray(np.concatenate([layer["weight"] for layer in layers]).T)
        biases = [bias for layer in layers if (bias := layer.get("bias")) is not None]
        self.bias: FloatArray | None = np.concatenate(biases) if biases else None

    def __call__(self, x: FloatArray) -> FloatArray:
        """*Shape:* (tokens, input width) to `(tokens, width)`"""
        product: FloatArray = x @ self.weight
        if self.bias is not None:
            product += self.bias
        return product


class LayerNorm:
    """`nn.LayerNorm` over the last dimension."""

    def __init__(self, weights: Weights) -> None:
        self.weight, self.bias = weights["weight"], weights["bias"]

    def __call__(self, x: FloatArray) -> FloatArray:
        """*Shape:* (tokens, width)"""
        # A product with a constant vector is several times as fast as a mean over columns.
        normed: FloatArray = x - (x @ np.full(x.shape[1], 1.0 / x.shape[1], np.float32))[:, None]
        variance = np.einsum("nd,nd->n", normed, normed) / x.shape[1]
        normed *= (1.0 / np.sqrt(variance + _EPSILON))[:, None]
        normed *= self.weight
        normed += self.bias
        return normed


class FeedForward:
    """`max(0, x W_1 + b_1) W_2 + b_2`."""

    def __init__(self, weights: Weights) -> None:
        self.widen, self.narrow = Linear(weights.part("widen")), Linear(weights.part("narrow"))

    def __call__(self, x: FloatArray) -> FloatArray:
        """*Shape:* (tokens, width)"""
        if len(x) <= _ROWS:
            return self.narrow(relu(self.widen(x)))
        mixed = np.empty((len(x), self.narrow.weight.shape[1]), np.float32)
        for begin in range(0, len(x), _ROWS):
            mixed[begin : begin + _ROWS] = self.narrow(relu(self.widen(x[begin : begin + _ROWS])))
        return mixed


def relu(x: FloatArray) -> FloatArray:
    """Return `max(x, 0)`, in place."""
    return np.maximum(x, np.float32(0.0), out=x)


class EmbeddingTables:
    """Embedding tables, whose rows are concatenated. widths: width of each table, by name."""

    def __init__(self, widths: Mapping[str, int], weights: Weights) -> None:
        self.tables = [weights.shaped(f"tables.{name}", None, width) for name, width in widths.items()]

    def __call__(self, *rows: IntArray) -> FloatArray:
        """Embed the rows of each table, side by side. *Shape:* (tokens,) each to (tokens, sum of widths)"""
        # Tables may be float16.
        parts = [table[ids].astype(np.float32, copy=False) for table, ids in zip(self.tables, rows, strict=True)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


class CRFHead:
    """Linear layer from tokens to the emissions of a CRF. scorer: the CRF."""

    def __init__(self, weights: Weights) -> None:
        self.emit = Linear(weights.part("emit"))
        start, end, outside, inside = (weights[f"crf.{name}"] for name in ("start", "end", "outside", "inside"))
        self.scorer = PathScorer((start, end, outside, inside))

    def __call__(self, tokens: FloatArray, lengths: Lengths) -> FloatArray:
        """*Shape:* (tokens, width) to `(tokens, tags)`"""
        return self.emit(tokens)


class Projection:
    """Linear layer with the call of an encoder."""

    def __init__(self, weights: Weights) -> None:
        self.linear = Linear(weights.part("linear"))

    def __call__(self, tokens: FloatArray, lengths: Lengths) -> FloatArray:
        """*Shape:* (tokens, input width) to `(tokens, width)`"""
        return self.linear(tokens)
