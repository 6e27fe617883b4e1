"""A transformer layer around any attention, as in `transformer_torch`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..types import FloatArray
from .graph import PaddedBatch, Value
from .layers_numpy import LayerNorm, Linear, relu
from .transformer_config import StackConfig
from .weights import Weights

_ROWS = 256
"""Rows that the feed-forward computes at once, so that its hidden layer fits into a core's own cache."""


class FeedForward:
    """`max(0, x W_1 + b_1) W_2 + b_2`."""

    def __init__(self, weights: Weights) -> None:
        self.widen, self.narrow = Linear(weights.part("widen")), Linear(weights.part("narrow"))

    def __call__(self, x: FloatArray) -> FloatArray:
        """Transform the rows of all texts. *Shape:* (tokens, width)"""
        if len(x) <= _ROWS:
            return self.narrow(relu(self.widen(x)))
        mixed = np.empty((len(x), self.narrow.weight.shape[1]), np.float32)
        for begin in range(0, len(x), _ROWS):
            mixed[begin : begin + _ROWS] = self.narrow(relu(self.widen(x[begin : begin + _ROWS])))
        return mixed

    def write(self, x: Value) -> Value:
        return self.narrow.write(x.graph.Relu(self.widen.write(x)))


class TransformerLayer:
    """Attention and feed-forward, each with a residual connection and a layer norm.

    attention (Any): Called with the layer's arguments, or by whoever calls `complete` with its output.
    """

    def __init__(self, config: StackConfig, attention: Any, weights: Weights) -> None:
        self.attention = attention
        hidden = config.ff_width or config.usual_ff * config.width
        weights.shaped("feed_forward.widen.weight", hidden, config.width)
        self.feed_forward = FeedForward(weights.part("feed_forward"))
        self.attention_norm = LayerNorm(weights.part("attention_norm"))
        self.feed_forward_norm = LayerNorm(weights.part("feed_forward_norm"))

    def __call__(self, x: FloatArray, *context: Any) -> FloatArray:
        """Transform the rows of all texts. *Shape:* (tokens, width)"""
        return self.complete(x, self.attention(x, *context))

    def complete(self, x: FloatArray, mixed: FloatArray) -> FloatArray:
        """Return the output of the layer, from that of its attention.

        x (FloatArray): The input of the layer. *Shape:* (tokens, width)
        mixed (FloatArray): The output of attention, which is overwritten. *Shape:* (tokens, width)
        RETURNS (FloatArray): *Shape:* (tokens, width)
        """
        mixed += x
        mixed = self.attention_norm(mixed)
        added = self.feed_forward(mixed)
        added += mixed
        return self.feed_forward_norm(added)

    def write(self, x: Value, batch: PaddedBatch) -> Value:
        """Write the layer to the graph of `x`."""
        x = self.attention_norm.write(x + self.attention.write(x, batch))
        return self.feed_forward_norm.write(x + self.feed_forward.write(x))
