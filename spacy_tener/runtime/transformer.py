"""Transformer layers and encoders, as in `layers.transformer`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..batching.sequences import Lengths
from ..settings import StackConfig, TransformerConfig
from ..types import FloatArray
from .attention import AdaptedAttention, Rectangle, VanillaAttention, in_rectangles, interleave, sinusoids
from .dense import FeedForward, LayerNorm, Linear
from .weights import Weights


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
        """*Shape:* (tokens, width)"""
        return self.complete(x, self.attention(x, *context))

    def complete(self, x: FloatArray, mixed: FloatArray) -> FloatArray:
        """Return the output of the layer. x: its input; mixed: the output of attention, which is overwritten."""
        mixed += x
        mixed = self.attention_norm(mixed)
        added = self.feed_forward(mixed)
        added += mixed
        return self.feed_forward_norm(added)


class TransformerEncoder:
    """TENER's encoder, or a vanilla transformer."""

    def __init__(self, config: TransformerConfig, weights: Weights) -> None:
        self.config = config
        self.input = None if weights.get("input.weight") is None else Linear(weights.part("input"))
        layers = [weights.part("layers", i) for i in range(config.layers)]
        self.layers = [TransformerLayer(config, _attention(config, layer.part("attention")), layer) for layer in layers]

    def __call__(self, x: FloatArray, lengths: Lengths) -> FloatArray:
        """Encode the tokens of all sequences. *Shape:* (tokens, input width) to (tokens, width)"""
        return in_rectangles(lengths, x, self.config.width, self._encode)

    def _encode(self, x: FloatArray, rectangle: Rectangle) -> FloatArray:
        if self.input is not None:
            x = self.input(x)
        if not self.config.adapted:
            n, length = rectangle.shape
            x = x + np.tile(interleave(*sinusoids(length, self.config.width)), (n, 1))
        for layer in self.layers:
            x = layer(x, rectangle)
        return x


def _attention(config: TransformerConfig, weights: Weights) -> Callable[..., FloatArray]:
    if not config.adapted:
        return VanillaAttention(config, weights)
    return AdaptedAttention(config, weights, scaled=bool(config.scaled))
