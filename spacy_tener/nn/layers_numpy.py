"""Layers that architectures share, in NumPy, and `Weights`, from which they are built. Counterpart of `layers_torch`.

Each layer computes the same as the torch module of this name in evaluation mode. `__call__` computes in NumPy, with the
tokens of all sequences concatenated. `write` adds the layer to an ONNX graph, where sequences are padded. *Shape:*
(sequences, longest, width)
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

# The default of torch's `nn.LayerNorm`.
_EPSILON = 1e-5
# Number of rows that the feed-forward network computes at once, so that its hidden layer fits into a core's cache.
_ROWS = 256


class WeightsError(ValueError):
    """Raised for weights that don't fit the settings of the model."""


class Weights:
    """The weights of a module by their names in torch's `state_dict`, or those of a submodule.

    arrays (Mapping[str, NDArray[Any]]): The weights of the whole module.
    prefix (str): Prefix of the submodule's names, such as `layers.0.`.
    used (set[str] | None): Names of the weights that have been accessed, shared by all submodules.
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
        """Return an array, or None if it doesn't exist."""
        return self[name] if self._prefix + name in self._arrays else None

    def shaped(self, name: str, *shape: int | None) -> NDArray[Any]:
        """Return an array. Raise an error if its shape doesn't fit the settings.

        name (str): Name of the array.
        shape (int | None): The size of each dimension. None for any size.
        """
        array = self[name]
        fits = array.ndim == len(shape) and all(n in (None, size) for n, size in zip(shape, array.shape, strict=True))
        if not fits:
            raise WeightsError(
                f"The weights '{self._prefix}{name}' have the shape {array.shape}, but the settings ask for "
                f"{tuple('any' if size is None else size for size in shape)}"
            )
        return array

    def part(self, *names: object) -> Weights:
        """Return the weights of a submodule. The names in `part("layers", 0)` begin with `layers.0.`."""
        return Weights(self._arrays, self._prefix + "".join(f"{name}." for name in names), self._used)

    def check_all_used(self) -> None:
        """Raise an error if some weights have not been accessed, since they belong to a model with other settings."""
        unused = sorted(set(self._arrays) - self._used)
        if unused:
            raise WeightsError(f"The weights hold '{unused[0]}', which the settings do not use")


class Linear:
    """The linear layer `x W^T + b`. Several layers over the same input are computed as one, and their outputs
    concatenated.

    layers (Weights): Weights of each layer.
    """

    def __init__(self, *layers: Weights) -> None:
        # Products of few rows take half the time if W^T is contiguous.
        self.weight = np.ascontiguousarray(np.concatenate([layer["weight"] for layer in layers]).T)
        biases = [bias for layer in layers if (bias := layer.get("bias")) is not None]
        self.bias: FloatArray | None = np.concatenate(biases) if biases else None

    def __call__(self, x: FloatArray) -> FloatArray:
        """Compute the layer. *Shape:* (tokens, input width) to (tokens, width)"""
        product: FloatArray = x @ self.weight
        if self.bias is not None:
            product += self.bias
        return product

    def write(self, x: Value) -> Value:
        """Add the layer to the graph of `x`."""
        product = x @ self.weight
        return product if self.bias is None else product + self.bias


class LayerNorm:
    """Layer normalization over the last dimension, as in `nn.LayerNorm`.

    weights (Weights): The module's weights.
    """

    def __init__(self, weights: Weights) -> None:
        self.weight, self.bias = weights["weight"], weights["bias"]

    def __call__(self, x: FloatArray) -> FloatArray:
        """Normalize each row. *Shape:* (tokens, width)"""
        # A product with a constant vector is several times as fast as NumPy's mean over the last dimension.
        normed: FloatArray = x - (x @ np.full(x.shape[1], 1.0 / x.shape[1], np.float32))[:, None]
        variance = np.einsum("nd,nd->n", normed, normed) / x.shape[1]
        normed *= (1.0 / np.sqrt(variance + _EPSILON))[:, None]
        normed *= self.weight
        normed += self.bias
        return normed

    def write(self, x: Value) -> Value:
        """Add the layer to the graph of `x`."""
        return x.graph.LayerNormalization(x, self.weight, self.bias, axis=-1, epsilon=_EPSILON)


def relu(x: FloatArray) -> FloatArray:
    """Compute `max(x, 0)` in place, and return `x`."""
    return np.maximum(x, np.float32(0.0), out=x)


class EmbeddingTables:
    """Embedding tables whose rows are concatenated for each token.

    widths (Mapping[str, int]): Width of each table, by name.
    weights (Weights): The module's weights.
    """

    def __init__(self, widths: Mapping[str, int], weights: Weights) -> None:
        self.tables = [weights.shaped(f"tables.{name}", None, width) for name, width in widths.items()]

    def __call__(self, *rows: IntArray) -> FloatArray:
        """Look up the rows of each table, and concatenate them. *Shape:* (tokens,) each to (tokens, sum of widths)"""
        # Static vectors may be stored in float16.
        parts = [table[ids].astype(np.float32, copy=False) for table, ids in zip(self.tables, rows, strict=True)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


class Projection:
    """A linear layer with the arguments of an encoder: the tokens, and the sequence lengths."""

    def __init__(self, weights: Weights) -> None:
        self.linear = Linear(weights.part("linear"))

    def __call__(self, tokens: FloatArray, lengths: Lengths) -> FloatArray:
        """Compute the layer. *Shape:* (tokens, input width) to (tokens, width)"""
        return self.linear(tokens)

    def write(self, tokens: Value, batch: PaddedBatch) -> Value:
        return self.linear.write(tokens)


class Convolution:
    """A convolution over each sequence, with zero padding at both ends.

    weights (Weights): The module's weights.
    out (int): Output width.
    size (int): Window size in tokens, an odd number.
    """

    def __init__(self, weights: Weights, out: int, size: int) -> None:
        width = weights.shaped("product.weight", out, None).shape[1]
        if width % size:
            raise WeightsError(f"The weights do not fit a window of {size} tokens")
        self.offsets = np.arange(size) - size // 2
        self.product = Linear(weights.part("product"))

    def __call__(self, x: FloatArray, lengths: IntArray) -> FloatArray:
        """Compute the convolution.

        x (FloatArray): The tokens, concatenated. *Shape:* (tokens, width)
        lengths (IntArray): Token count per sequence. *Shape:* (sequences,)
        RETURNS (FloatArray): *Shape:* (tokens, out)
        """
        if len(self.offsets) == 1:
            return self.product(x)
        positions = ranges(np.zeros_like(lengths), lengths)[:, None] + self.offsets
        # Window positions outside of the sequence are zeros.
        outside = (positions < 0) | (positions >= np.repeat(lengths, lengths)[:, None])
        rows = np.arange(len(x))[:, None] + self.offsets
        rows[outside] = 0
        windows = x[rows]
        windows[outside] = 0.0
        return self.product(windows.reshape(len(x), len(self.offsets) * x.shape[1]))

    def write(self, x: Value, batch: PaddedBatch) -> Value:
        """Add the convolution to the graph of `x`."""
        graph, size = x.graph, len(self.offsets)
        if size == 1:
            return self.product.write(x)
        # From (size * width, out), as `Linear` stores the weights, to (out, width, size), as ONNX's Conv expects them.
        weight = self.product.weight.reshape(size, -1, self.product.weight.shape[1]).transpose(2, 1, 0)
        columns = graph.Transpose(x * graph.Unsqueeze(batch.is_real.to(np.float32), [2]), perm=[0, 2, 1])
        biases = [] if self.product.bias is None else [self.product.bias]
        return graph.Transpose(graph.Conv(columns, weight, *biases, pads=[size // 2, size // 2]), perm=[0, 2, 1])


class FeedForward:
    """The feed-forward network `max(0, x W_1 + b_1) W_2 + b_2`."""

    def __init__(self, weights: Weights) -> None:
        self.widen, self.narrow = Linear(weights.part("widen")), Linear(weights.part("narrow"))

    def __call__(self, x: FloatArray) -> FloatArray:
        """Compute the network. *Shape:* (tokens, width)"""
        if len(x) <= _ROWS:
            return self.narrow(relu(self.widen(x)))
        outputs = np.empty((len(x), self.narrow.weight.shape[1]), np.float32)
        for begin in range(0, len(x), _ROWS):
            outputs[begin : begin + _ROWS] = self.narrow(relu(self.widen(x[begin : begin + _ROWS])))
        return outputs

    def write(self, x: Value) -> Value:
        return self.narrow.write(x.graph.Relu(self.widen.write(x)))


class TransformerLayer:
    """A transformer layer: attention and a feed-forward network, each followed by a residual connection and layer norm.

    config (StackConfig): Sizes of the layer.
    attention (Any): The attention, called with the arguments of the layer.
    weights (Weights): The module's weights.
    """

    def __init__(self, config: StackConfig, attention: Any, weights: Weights) -> None:
        self.attention = attention
        weights.shaped("feed_forward.widen.weight", config.hidden_width, config.width)
        self.feed_forward = FeedForward(weights.part("feed_forward"))
        self.attention_norm = LayerNorm(weights.part("attention_norm"))
        self.feed_forward_norm = LayerNorm(weights.part("feed_forward_norm"))

    def __call__(self, x: FloatArray, *context: Any) -> FloatArray:
        """Compute the layer. *Shape:* (tokens, width)

        x (FloatArray): The tokens.
        context (Any): Additional arguments of the attention.
        """
        return self.complete(x, self.attention(x, *context))

    def complete(self, x: FloatArray, attended: FloatArray) -> FloatArray:
        """Compute the part of the layer that follows attention.

        x (FloatArray): The layer's input. *Shape:* (tokens, width)
        attended (FloatArray): The attention's output. It is overwritten. *Shape:* (tokens, width)
        RETURNS (FloatArray): The layer's output. *Shape:* (tokens, width)
        """
        attended += x
        attended = self.attention_norm(attended)
        added = self.feed_forward(attended)
        added += attended
        return self.feed_forward_norm(added)

    def write(self, x: Value, batch: PaddedBatch) -> Value:
        """Add the layer to the graph of `x`."""
        x = self.attention_norm.write(x + self.attention.write(x, batch))
        return self.feed_forward_norm.write(x + self.feed_forward.write(x))
