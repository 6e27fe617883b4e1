"""TENER and the vanilla transformer in NumPy: what the modules of `tener_torch` compute in evaluation."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...nn.attention_numpy import (
    Rectangle,
    attend,
    in_rectangles,
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
    """Vanilla multi-head attention, with an output projection; positions are added to its input."""

    def __init__(self, config: TransformerConfig, weights: Weights) -> None:
        self.n_heads = config.heads
        self.scale = np.float32(config.head_width**-0.5 if config.scaled in (None, True) else 1.0)
        self.query, self.key, self.value = (Linear(weights.part(name)) for name in ("query", "key", "value"))
        weights.shaped("out.weight", config.width, config.width)
        self.out = Linear(weights.part("out"))

    def __call__(self, x: FloatArray, rectangle: Rectangle) -> FloatArray:
        """Transform the rows of a rectangle. *Shape:* (slots, width)"""
        parts = self.query(x) * self.scale, self.key(x), self.value(x)
        q, k, v = (split_heads(part, rectangle.shape, self.n_heads) for part in parts)
        return self.out(attend(q, k, v, rectangle.real))

    def write(self, x: Value, batch: PaddedBatch) -> Value:
        """Write the attention to the graph of `x`."""
        parts = self.query.write(x) * self.scale, self.key.write(x), self.value.write(x)
        q, k, v = (write_split_heads(part, self.n_heads) for part in parts)
        return self.out.write(write_attend(q, k, v, batch))


class RelativePositions(NamedTuple):
    """Factors of relative positions for queries and for keys.

    turn (ComplexArray): For the query at t, `sin(c t) - i cos(c t)`. *Shape:* (length, head width / 2)
    key (FloatArray): For the key at j, `cos(c j), sin(c j), ..`. *Shape:* (length, head width)
    """

    turn: ComplexArray
    key: FloatArray

    @classmethod
    def of(cls, length: int, head_width: int) -> RelativePositions:
        # Tables of powers of 2 are few, and all stay in the cache. Texts have any length: tables for each would not.
        table = _relative_positions(1 << max(length - 1, 63).bit_length(), head_width)
        return cls(table.turn[:length], table.key[:length])


@lru_cache(maxsize=16)
def _relative_positions(length: int, head_width: int) -> RelativePositions:
    sin, cos = sinusoids(length, head_width)
    return RelativePositions(sin - np.complex64(1j) * cos, interleave(cos, sin))


class AdaptedAttention:
    """TENER's attention, in the form that `AdaptedAttention` of `tener_torch` derives.

    config (StackConfig): Settings of the stack that it is in.
    scaled (bool): Divide the scores by `sqrt(d_k)`.
    key_projection (bool): Project the keys.
    """

    def __init__(
        self,
        config: StackConfig,
        weights: Weights,
        *,
        scaled: bool = False,
        key_projection: bool = False,
    ) -> None:
        self.n_heads, self.head_width = config.heads, config.head_width
        self.scale = np.float32(config.head_width**-0.5 if scaled else 1.0)
        self.u, self.v = (weights.shaped(name, config.heads, config.head_width).reshape(-1) for name in ("u", "v"))
        self.query, self.value = Linear(weights.part("query")), Linear(weights.part("value"))
        self.key = Linear(weights.part("key")) if key_projection else None

    def __call__(self, x: FloatArray, rectangle: Rectangle) -> FloatArray:
        """Transform the rows of a rectangle. *Shape:* (slots, width)"""
        return attend(*self.heads(x, rectangle), rectangle.real)

    def heads(self, x: FloatArray, rectangle: Rectangle) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return queries and keys, with relative positions beside the content, and values.

        RETURNS (Tuple[FloatArray, FloatArray, FloatArray]): *Shape:* (sequences, heads, length, width) each
        """
        n, length = rectangle.shape
        relative = RelativePositions.of(length, self.head_width)
        query = self.query(x)
        content, position = ((query + bias) * self.scale for bias in (self.u, self.v))
        # Pairs of a sine and a cosine are complex numbers, which are turned by the query's position.
        turned = position.view(np.complex64).reshape(n, length, self.n_heads, -1) * relative.turn[:, None]
        key = x if self.key is None else self.key(x)
        content, key, value = (split_heads(part, (n, length), self.n_heads) for part in (content, key, self.value(x)))
        q = np.concatenate((content, turned.view(np.float32).transpose(0, 2, 1, 3)), axis=3)
        k = np.concatenate((key, np.broadcast_to(relative.key, key.shape)), axis=3)
        return q, k, value

    def write(self, x: Value, batch: PaddedBatch) -> Value:
        """Write the attention to the graph of `x`, in real numbers."""
        graph, width = x.graph, self.head_width
        query = self.query.write(x)
        content, position = (write_split_heads((query + bias) * self.scale, self.n_heads) for bias in (self.u, self.v))
        even, odd = (graph.Slice(position, [i], [width], [3], [2]) for i in range(2))
        sin, cos = write_sinusoids(batch.longest, width)
        q = graph.Concat(content, even * sin + odd * cos, odd * sin - even * cos, axis=3)
        key = write_split_heads(x if self.key is None else self.key.write(x), self.n_heads)
        k = graph.Concat(key, graph.Expand(graph.Concat(cos, sin, axis=1), graph.Shape(key)), axis=3)
        return write_attend(q, k, write_split_heads(self.value.write(x), self.n_heads), batch)


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

    def write(self, x: Value, batch: PaddedBatch) -> Value:
        """Write the encoder to the graph of `x`. *Shape:* (sequences, longest, input width) to (.., .., width)"""
        if self.input is not None:
            x = self.input.write(x)
        if not self.config.adapted:
            sin, cos = (x.graph.Unsqueeze(part, [2]) for part in write_sinusoids(batch.longest, self.config.width))
            x = x + x.graph.Reshape(x.graph.Concat(sin, cos, axis=2), [0, -1])  # side by side, as `interleave`
        for layer in self.layers:
            x = layer.write(x, batch)
        return x


def _attention(config: TransformerConfig, weights: Weights) -> Callable[..., FloatArray]:
    if not config.adapted:
        return VanillaAttention(config, weights)
    return AdaptedAttention(config, weights, scaled=bool(config.scaled))
