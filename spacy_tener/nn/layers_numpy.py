"""Neural network layers in NumPy that all architectures share, and `Weights`, which contains their parameters.

Each layer has the same output as the layer with this name in `layers_torch` in evaluation mode. The method `__call__`
computes the output with NumPy, from the concatenated tokens of all sequences. The method `write` adds the layer to an
ONNX graph, in which sequences are padded. *Shape:* (sequences, longest, width)
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

# The default epsilon of `nn.LayerNorm`.
_EPSILON = 1e-5
# Number of tokens that the feed-forward network processes at once, so that its hidden layer fits into the CPU cache.
_ROWS = 256


class WeightsError(ValueError):
    """Raised if a model's weights do not match its settings."""


class Weights:
    """The parameters of a torch module or a submodule, as NumPy arrays with the names in its `state_dict`.

    arrays (Mapping[str, NDArray[Any]]): All parameters of the module.
    prefix (str): For a submodule, the prefix of its parameter names, such as `layers.0.`.
    used (set[str] | None): Names of the parameters that were accessed. All submodules share this set.
    """

    def __init__(self, arrays: Mapping[str, NDArray[Any]], prefix: str = "", used: set[str] | None = None) -> None:
        self._arrays, self._prefix = arrays, prefix
        self._used = set() if used is None else used

    def __getitem__(self, name: str) -> NDArray[Any]:
        name = self._prefix + name
        if name not in self._arrays:
            raise WeightsError(f"The weights do not contain '{name}'")
        self._used.add(name)
        return self._arrays[name]

    def get(self, name: str) -> NDArray[Any] | None:
        """Return a parameter, or None if there is no parameter with this name."""
        return self[name] if self._prefix + name in self._arrays else None

    def shaped(self, name: str, *shape: int | None) -> NDArray[Any]:
        """Return a parameter after checking its shape. Raises a WeightsError if the shape is wrong.

        name (str): Parameter name.
        shape (int | None): The expected size of each dimension. None for any size.
        """
        array = self[name]
        fits = array.ndim == len(shape) and all(n in (None, size) for n, size in zip(shape, array.shape, strict=True))
        if not fits:
            raise WeightsError(
                f"The weights '{self._prefix}{name}' have the shape {array.shape}, but the config requires "
                f"{tuple('any' if size is None else size for size in shape)}"
            )
        return array

    def part(self, *names: object) -> Weights:
        """Return a submodule's parameters.

        For example, `part("layers", 0)` returns the parameters of `layers.0`.
        """
        return Weights(self._arrays, self._prefix + "".join(f"{name}." for name in names), self._used)

    def check_all_used(self) -> None:
        """Raise a WeightsError if a parameter was not accessed.

        Unused parameters mean that the weights belong to a model with other settings.
        """
        unused = sorted(set(self._arrays) - self._used)
        if unused:
            raise WeightsError(f"The weights contain '{unused[0]}', which the model in the config does not have")


class Linear:
    """A linear layer, `x W^T + b`.

    If several layers are given, their outputs are concatenated. They must have the same input, so that a single matrix
    product computes all outputs.

    layers (Weights): The parameters of each layer.
    """

    def __init__(self, *layers: Weights) -> None:
        # Store W^T in contiguous memory. For small batches, matrix products then take half the time.
        self.weight = np.ascontiguousarray(np.concatenate([layer["weight"] for layer in layers]).T)
        biases = [bias for layer in layers if (bias := layer.get("bias")) is not None]
        self.bias: FloatArray | None = np.concatenate(biases) if biases else None

    def __call__(self, x: FloatArray) -> FloatArray:
        """Apply the linear layer. *Shape:* (tokens, input width) to (tokens, width)"""
        product: FloatArray = x @ self.weight
        if self.bias is not None:
            product += self.bias
        return product

    def write(self, x: Value) -> Value:
        """Add the linear layer to the ONNX graph that contains `x`."""
        product = x @ self.weight
        return product if self.bias is None else product + self.bias


class LayerNorm:
    """Layer normalization over the last dimension, like `nn.LayerNorm`.

    weights (Weights): The layer parameters.
    """

    def __init__(self, weights: Weights) -> None:
        self.weight, self.bias = weights["weight"], weights["bias"]

    def __call__(self, x: FloatArray) -> FloatArray:
        """Normalize each token embedding. *Shape:* (tokens, width)"""
        # Compute the mean as a matrix product with a constant vector, which is several times as fast as
        # `x.mean(axis=1)`.
        normed: FloatArray = x - (x @ np.full(x.shape[1], 1.0 / x.shape[1], np.float32))[:, None]
        variance = np.einsum("nd,nd->n", normed, normed) / x.shape[1]
        normed *= (1.0 / np.sqrt(variance + _EPSILON))[:, None]
        normed *= self.weight
        normed += self.bias
        return normed

    def write(self, x: Value) -> Value:
        """Add the layer normalization to the ONNX graph that contains `x`."""
        return x.graph.LayerNormalization(x, self.weight, self.bias, axis=-1, epsilon=_EPSILON)


def relu(x: FloatArray) -> FloatArray:
    """Apply the ReLU activation function in place, and return `x`."""
    return np.maximum(x, np.float32(0.0), out=x)


class EmbeddingTables:
    """Embedding tables for several token features. The embeddings of all features are concatenated.

    widths (Mapping[str, int]): Embedding width of each table, by name.
    weights (Weights): The layer parameters.
    """

    def __init__(self, widths: Mapping[str, int], weights: Weights) -> None:
        self.tables = [weights.shaped(f"tables.{name}", None, width) for name, width in widths.items()]

    def __call__(self, *rows: IntArray) -> FloatArray:
        """Look up each feature's embedding, and concatenate the embeddings. *Shape:* (tokens, sum of widths)

        rows (IntArray): For each table, the row index of each token. *Shape:* (tokens,) each
        """
        # Convert pretrained vectors, which may be stored in float16.
        parts = [table[ids].astype(np.float32, copy=False) for table, ids in zip(self.tables, rows, strict=True)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


class Projection:
    """A linear layer that can be used in place of an encoder.

    weights (Weights): The layer parameters.
    """

    def __init__(self, weights: Weights) -> None:
        self.linear = Linear(weights.part("linear"))

    def __call__(self, tokens: FloatArray, lengths: Lengths) -> FloatArray:
        """Apply the linear layer. *Shape:* (tokens, input width) to (tokens, width)

        tokens (FloatArray): The token embeddings.
        lengths (Lengths): Not used.
        """
        return self.linear(tokens)

    def write(self, tokens: Value, batch: PaddedBatch) -> Value:
        return self.linear.write(tokens)


class Convolution:
    """A one-dimensional convolution over each sequence, with zero padding at both ends.

    weights (Weights): The layer parameters.
    out (int): Output width.
    size (int): Kernel size in tokens, an odd number.
    """

    def __init__(self, weights: Weights, out: int, size: int) -> None:
        width = weights.shaped("product.weight", out, None).shape[1]
        if width % size:
            raise WeightsError(
                f"The weights of a convolution have the input width {width}, which is not a multiple of its window of "
                f"{size} tokens"
            )
        self.offsets = np.arange(size) - size // 2
        self.product = Linear(weights.part("product"))

    def __call__(self, x: FloatArray, lengths: IntArray) -> FloatArray:
        """Apply the convolution.

        x (FloatArray): Concatenated token embeddings. *Shape:* (tokens, width)
        lengths (IntArray): Sequence lengths in tokens. *Shape:* (sequences,)
        RETURNS (FloatArray): The output for each token. *Shape:* (tokens, out)
        """
        if len(self.offsets) == 1:
            return self.product(x)
        positions = ranges(np.zeros_like(lengths), lengths)[:, None] + self.offsets
        # Set positions outside the sequence to zero.
        outside = (positions < 0) | (positions >= np.repeat(lengths, lengths)[:, None])
        rows = np.arange(len(x))[:, None] + self.offsets
        rows[outside] = 0
        windows = x[rows]
        windows[outside] = 0.0
        return self.product(windows.reshape(len(x), len(self.offsets) * x.shape[1]))

    def write(self, x: Value, batch: PaddedBatch) -> Value:
        """Add the convolution to the ONNX graph that contains `x`."""
        graph, size = x.graph, len(self.offsets)
        if size == 1:
            return self.product.write(x)
        # Convert the weights' layout from `Linear`, (size * width, out), to ONNX `Conv`, (out, width, size).
        weight = self.product.weight.reshape(size, -1, self.product.weight.shape[1]).transpose(2, 1, 0)
        # Set padding to zero, since the windows of the last tokens contain padded positions.
        columns = graph.Transpose(x * graph.Unsqueeze(batch.is_real.to(np.float32), [2]), perm=[0, 2, 1])
        biases = [] if self.product.bias is None else [self.product.bias]
        return graph.Transpose(graph.Conv(columns, weight, *biases, pads=[size // 2, size // 2]), perm=[0, 2, 1])


class FeedForward:
    """The feed-forward network in a transformer layer, `max(0, x W_1 + b_1) W_2 + b_2` (TENER, eq. 7).

    weights (Weights): The network's parameters.
    """

    def __init__(self, weights: Weights) -> None:
        self.widen, self.narrow = Linear(weights.part("widen")), Linear(weights.part("narrow"))

    def __call__(self, x: FloatArray) -> FloatArray:
        """Apply the feed-forward network. *Shape:* (tokens, width)"""
        if len(x) <= _ROWS:
            return self.narrow(relu(self.widen(x)))
        outputs = np.empty((len(x), self.narrow.weight.shape[1]), np.float32)
        for begin in range(0, len(x), _ROWS):
            outputs[begin : begin + _ROWS] = self.narrow(relu(self.widen(x[begin : begin + _ROWS])))
        return outputs

    def write(self, x: Value) -> Value:
        return self.narrow.write(x.graph.Relu(self.widen.write(x)))


class TransformerLayer:
    """A transformer layer, which consists of attention and a feed-forward network.

    Both have a residual connection, followed by layer normalization (post-norm).

    config (StackConfig): The layer's sizes.
    attention (Any): The attention. It is called with the same arguments as the layer.
    weights (Weights): The layer parameters.
    """

    def __init__(self, config: StackConfig, attention: Any, weights: Weights) -> None:
        self.attention = attention
        weights.shaped("feed_forward.widen.weight", config.hidden_width, config.width)
        self.feed_forward = FeedForward(weights.part("feed_forward"))
        self.attention_norm = LayerNorm(weights.part("attention_norm"))
        self.feed_forward_norm = LayerNorm(weights.part("feed_forward_norm"))

    def __call__(self, x: FloatArray, *context: Any) -> FloatArray:
        """Apply the transformer layer. *Shape:* (tokens, width)

        x (FloatArray): Concatenated token embeddings.
        context (Any): Additional arguments for the attention.
        """
        return self.complete(x, self.attention(x, *context))

    def complete(self, x: FloatArray, attended: FloatArray) -> FloatArray:
        """Compute the transformer layer's output from its attention output.

        x (FloatArray): The layer's input. *Shape:* (tokens, width)
        attended (FloatArray): The attention output, which is overwritten. *Shape:* (tokens, width)
        RETURNS (FloatArray): The layer's output. *Shape:* (tokens, width)
        """
        attended += x
        attended = self.attention_norm(attended)
        added = self.feed_forward(attended)
        added += attended
        return self.feed_forward_norm(added)

    def write(self, x: Value, batch: PaddedBatch) -> Value:
        """Add the transformer layer to the ONNX graph that contains `x`."""
        x = self.attention_norm.write(x + self.attention.write(x, batch))
        return self.feed_forward_norm.write(x + self.feed_forward.write(x))
