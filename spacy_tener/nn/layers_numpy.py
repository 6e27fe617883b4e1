"""Weights by their names, and layers that architectures share: embedding tables, linear layers, layer norm,
convolutions, and a transformer layer around any attention with the settings of its stacks.

Beside what a layer computes in NumPy stands what it writes to a graph of ONNX (`write`), where rows are padded.
*Shape:* (sequences, longest, width)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..sequences import Lengths, ranges
from ..types import FloatArray, IntArray
from .graph import PaddedBatch, Value
from .stack_config import StackConfig

_EPSILON = 1e-5
"""As in `nn.LayerNorm`."""
_ROWS = 256
"""Rows that the feed-forward computes at once, so that its hidden layer fits into a core's own cache."""


class WeightsError(ValueError):
    """The weights do not fit the settings."""


class Weights:
    """Arrays of a module or of a submodule, by their names in torch's state_dict.

    arrays (Mapping[str, NDArray[Any]]): Arrays of the whole module.
    prefix (str): Prefix of the names of the submodule's arrays.
    """

    def __init__(self, arrays: Mapping[str, NDArray[Any]], prefix: str = "", used: set[str] | None = None) -> None:
        self._arrays, self._prefix = arrays, prefix
        self._used = set() if used is None else used

    def __getitem__(self, name: str) -> NDArray[Any]:
        name = self._prefix + name
        if name not in self._arrays:
            raise WeightsError(f"The weights lack '{name}'")
        self._used.add(name)
        return self._arrays[name]

    def get(self, name: str) -> NDArray[Any] | None:
        return self[name] if self._prefix + name in self._arrays else None

    def shaped(self, name: str, *shape: int | None) -> NDArray[Any]:
        """Return an array, after checking its shape against the settings; None for any size."""
        array = self[name]
        fits = array.ndim == len(shape) and all(n in (None, size) for n, size in zip(shape, array.shape, strict=True))
        if not fits:
            raise WeightsError(
                f"The weights '{self._prefix}{name}' have the shape {array.shape}, but the settings ask for "
                f"{tuple('any' if size is None else size for size in shape)}"
            )
        return array

    def part(self, *names: object) -> Weights:
        """Return the arrays of a submodule: `part("layers", 0)` has those whose names begin with `layers.0.`."""
        return Weights(self._arrays, self._prefix + "".join(f"{name}." for name in names), self._used)

    def check_all_used(self) -> None:
        """Raise if any array was not read: the weights belong to another config."""
        unused = sorted(set(self._arrays) - self._used)
        if unused:
            raise WeightsError(f"The weights hold '{unused[0]}', which the settings do not use")


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


class FeedForward:
    """`max(0, x W_1 + b_1) W_2 + b_2`."""

    def __init__(self, weights: Weights) -> None:
        self.widen, self.narrow = Linear(weights.part("widen")), Linear(weights.part("narrow"))

    def __call__(self, x: FloatArray) -> FloatArray:
        """Transform the rows of all texts. *Shape:* (tokens, width)"""
        if len(x) <= _ROWS:
            return self.narrow(relu(self.widen(x)))
        outputs = np.empty((len(x), self.narrow.weight.shape[1]), np.float32)
        for begin in range(0, len(x), _ROWS):
            outputs[begin : begin + _ROWS] = self.narrow(relu(self.widen(x[begin : begin + _ROWS])))
        return outputs

    def write(self, x: Value) -> Value:
        return self.narrow.write(x.graph.Relu(self.widen.write(x)))


class TransformerLayer:
    """Attention and feed-forward, each with a residual connection and a layer norm.

    attention (Any): Called with the layer's arguments, or by whoever calls `complete` with its output.
    """

    def __init__(self, config: StackConfig, attention: Any, weights: Weights) -> None:
        self.attention = attention
        weights.shaped("feed_forward.widen.weight", config.hidden_width, config.width)
        self.feed_forward = FeedForward(weights.part("feed_forward"))
        self.attention_norm = LayerNorm(weights.part("attention_norm"))
        self.feed_forward_norm = LayerNorm(weights.part("feed_forward_norm"))

    def __call__(self, x: FloatArray, *context: Any) -> FloatArray:
        """Transform the rows of all texts. *Shape:* (tokens, width)"""
        return self.complete(x, self.attention(x, *context))

    def complete(self, x: FloatArray, attended: FloatArray) -> FloatArray:
        """Return the output of the layer, from that of its attention.

        x (FloatArray): The input of the layer. *Shape:* (tokens, width)
        attended (FloatArray): The output of attention, which is overwritten. *Shape:* (tokens, width)
        RETURNS (FloatArray): *Shape:* (tokens, width)
        """
        attended += x
        attended = self.attention_norm(attended)
        added = self.feed_forward(attended)
        added += attended
        return self.feed_forward_norm(added)

    def write(self, x: Value, batch: PaddedBatch) -> Value:
        """Write the layer to the graph of `x`."""
        x = self.attention_norm.write(x + self.attention.write(x, batch))
        return self.feed_forward_norm.write(x + self.feed_forward.write(x))
