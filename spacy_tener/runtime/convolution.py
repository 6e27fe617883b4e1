"""Convolutions along joined sequences, and the encoder of GRN."""

from __future__ import annotations

from functools import reduce

import numpy as np

from ..batching.sequences import Lengths, as_lengths, ranges
from ..settings import GRNConfig
from ..types import FloatArray, IntArray
from .dense import Linear
from .relation import relate
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
        """*Shape:* (tokens, width) to `(tokens, width)`"""
        if len(self.offsets) == 1:
            return self.product(x)
        positions = ranges(np.zeros_like(lengths), lengths)[:, None] + self.offsets
        outside = (positions < 0) | (positions >= np.repeat(lengths, lengths)[:, None])
        rows = np.arange(len(x))[:, None] + self.offsets
        rows[outside] = 0
        windows = x[rows]
        windows[outside] = 0.0
        return self.product(windows.reshape(len(x), len(self.offsets) * x.shape[1]))


class GRNEncoder:
    """Gated relation network: the context layer and the relation layer."""

    def __init__(self, config: GRNConfig, weights: Weights) -> None:
        self.config = config
        self.branches = [
            Convolution(weights.part("context", "branches", i), config.width, size)
            for i, size in enumerate(config.branches)
        ]
        self.input = None if weights.get("input.weight") is None else Linear(weights.part("input"))
        if config.relation is not None:
            gates = 1 if config.relation == "attention" else config.width
            weights.shaped("relation.left.weight", gates, config.width)
            halves = [weights.part("relation", half) for half in ("left", "right")]
            self.left, self.right = map(Linear, halves)

    def __call__(self, x: FloatArray, lengths: Lengths) -> FloatArray:
        """*Shape:* (tokens, input width) to `(tokens, width)`"""
        lengths = as_lengths(lengths, len(x))
        if self.branches:
            x = np.tanh(reduce(np.maximum, (branch(x, lengths) for branch in self.branches)))
        elif self.input is not None:
            x = self.input(x)
        if self.config.relation is None:
            return x
        return np.tanh(relate(self.config.relation, self.left(x), self.right(x), x, lengths))
