"""Convolutions along the sequences of a flat batch."""

from __future__ import annotations

import numpy as np

from ..sequences import ranges
from ..types import FloatArray, IntArray
from .dense_numpy import Linear
from .graph import PaddedBatch, Value
from .weights import Weights, WeightsError


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
