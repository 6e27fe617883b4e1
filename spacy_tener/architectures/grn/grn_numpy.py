"""The gated relation network (GRN) encoder in NumPy, for prediction on a CPU without torch.

The encoder is created from the weights of `grn_torch.GRNEncoder`, and returns the same output as this torch module in
evaluation mode. The tests in `tests/architectures/test_parity.py` compare the outputs. The method `write` adds the
encoder to an ONNX graph, for the command `export`.
"""

from __future__ import annotations

from functools import reduce
from itertools import pairwise

import numpy as np

from ...nn.graph import PaddedBatch, Value
from ...nn.layers_numpy import Convolution, Linear, Weights
from ...sequences import Lengths, as_lengths
from ...types import FloatArray, IntArray
from .grn_config import GRNConfig

# Limit for the exponents of e^(-a) and e^b. Clipping them to [-40, 40] keeps the product of two exponentials below the
# float32 maximum (e^80 = 5.5e34). It has no effect on typical inputs: with the initial weights and a width of 400, |a|
# and |b| are at most 35, and usually below 2.
EXPONENT_LIMIT = 40.0
# Maximum number of gates that are computed at once. An array of this size fits into a CPU core's cache.
TILE = 1 << 17


def relate(a: FloatArray, b: FloatArray, x: FloatArray, lengths: IntArray) -> FloatArray:
    """Compute the gated mean of the features in each sequence (Chen et al., 2019, eq. 6).

    The output for token i is the mean of `sigmoid(a_i + b_j) * x_j` over all tokens j in the sequence.

    a (FloatArray): First term of the gates. *Shape:* (tokens, width)
    b (FloatArray): Second term of the gates. *Shape:* (tokens, width)
    x (FloatArray): Token features. *Shape:* (tokens, width)
    lengths (IntArray): Token count per sequence. *Shape:* (sequences,)
    RETURNS (FloatArray): *Shape:* (tokens, width)
    """
    related = np.empty_like(x)
    u, w = (np.exp(np.clip(part, -EXPONENT_LIMIT, EXPONENT_LIMIT)) for part in (-a, b))
    for begin, end in pairwise([0, *np.cumsum(lengths).tolist()]):
        if begin < end:
            _gated_mean(u[begin:end], w[begin:end], x[begin:end], related[begin:end])
    return related


def _gated_mean(u: FloatArray, w: FloatArray, x: FloatArray, out: FloatArray) -> None:
    """Compute the gated mean of the features in a single sequence. See `relate`.

    Let `u_i = e^(-a_i)` and `w_j = e^(b_j)`. Then `sigmoid(a_i + b_j) x_j = w_j x_j / (u_i + w_j)`, which requires two
    exponentials per token instead of one per token pair. The pairs are computed in tiles that fit into the CPU cache.

    u, w, x (FloatArray): *Shape:* (length, width)
    out (FloatArray): Array to which the result is written. *Shape:* (length, width)
    """
    length, width = x.shape
    weighted = w * x
    columns = min(length, max(1, int((TILE // width) ** 0.5)))
    rows = max(1, TILE // (columns * width))
    out[:] = 0.0
    space = np.empty(rows * columns * width, np.float32)
    for i in range(0, length, rows):
        for j in range(0, length, columns):
            u_i, w_j = u[i : i + rows, None], w[j : j + columns]
            terms = space[: len(u_i) * w_j.size].reshape(len(u_i), len(w_j), width)
            np.add(u_i, w_j, out=terms)
            np.divide(weighted[j : j + columns], terms, out=terms)
            out[i : i + rows] += terms.sum(axis=1)
    out /= length


class GRNEncoder:
    """The gated relation network (GRN) encoder, which consists of a context layer and a relation layer.

    config (GRNConfig): Encoder hyperparameters.
    weights (Weights): The torch module's weights.
    """

    def __init__(self, config: GRNConfig, weights: Weights) -> None:
        self.config = config
        self.branches = [
            Convolution(weights.part("context", "branches", i), config.width, size)
            for i, size in enumerate(config.branches)
        ]
        self.input = None if weights.get("input.weight") is None else Linear(weights.part("input"))
        if config.relation is not None:
            weights.shaped("relation.left.weight", config.width, config.width)
            halves = [weights.part("relation", half) for half in ("left", "right")]
            self.left, self.right = map(Linear, halves)

    def __call__(self, x: FloatArray, lengths: Lengths) -> FloatArray:
        """Encode the tokens in a batch of sequences.

        x (FloatArray): Token embeddings, concatenated. *Shape:* (tokens, input width)
        lengths (Lengths): Token count per sequence. *Shape:* (sequences,)
        RETURNS (FloatArray): Hidden states. *Shape:* (tokens, width)
        """
        lengths = as_lengths(lengths, len(x))
        if self.branches:
            x = np.tanh(reduce(np.maximum, (branch(x, lengths) for branch in self.branches)))
        elif self.input is not None:
            x = self.input(x)
        if self.config.relation is None:
            return x
        return np.tanh(relate(self.left(x), self.right(x), x, lengths))

    def write(self, x: Value, batch: PaddedBatch) -> Value:
        """Add the encoder's nodes to the ONNX graph that contains `x`.

        x (Value): Padded embeddings. *Shape:* (sequences, longest sequence, input width)
        batch (PaddedBatch): Sequence lengths and padding mask.
        RETURNS (Value): Hidden states. *Shape:* (sequences, longest sequence, width)
        """
        graph = x.graph
        if self.branches:
            x = graph.Tanh(reduce(graph.Max, (branch.write(x, batch) for branch in self.branches)))
        elif self.input is not None:
            x = self.input.write(x)
        if self.config.relation is None:
            return x
        limits = np.float32(-EXPONENT_LIMIT), np.float32(EXPONENT_LIMIT)
        u, w = (graph.Exp(graph.Clip(part, *limits)) for part in (graph.Neg(self.left.write(x)), self.right.write(x)))
        # Multiply the features of padded tokens by 0. The gates are computed in a loop over the tokens (ONNX operator
        # Scan), so that memory does not grow quadratically with the length.
        weighted = w * x * graph.Unsqueeze(batch.is_real.to(np.float32), [2])

        def relate_one(u_i: Value) -> list[Value]:
            """Return the sum of the gated features for a single token i in each sequence. See `relate`."""
            return [graph.ReduceSum(weighted / (graph.Unsqueeze(u_i, [1]) + w), [1], keepdims=0)]

        related = graph.scan([], [u], relate_one, axis=1)
        return graph.Tanh(related / graph.Unsqueeze(batch.lengths.to(np.float32), [1, 2]))
