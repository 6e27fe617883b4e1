"""The NumPy implementation of GRN's encoder, for prediction on a CPU without torch.

It computes the same as `grn_torch.GRNEncoder` in evaluation mode, from the same weights;
`tests/architectures/test_parity.py` compares both. `write` adds the same computation to an ONNX graph, for `spacy tener
export`.
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

# Exponents are clipped to this value, positive and negative, so that `u v` is a finite float32 number: e^80 = 5.5e34.
# This changes a sum `a + b` only if one of the two is beyond 40. Even then, the gate changes only if the other one is
# beyond 20 with the opposite sign: otherwise the gate is 0 or 1 to within e^-20, clipped or not. Context features are
# between -1 and 1. So with 400 channels and initial weights, neither can be above 35, and most are below 2.
EXPONENT_LIMIT = 40.0
# Maximum number of gates in a tile. A tile is computed at once, and fits into a core's cache.
TILE = 1 << 17


def relate(a: FloatArray, b: FloatArray, x: FloatArray, lengths: IntArray) -> FloatArray:
    """Compute r_i of each token (eq. 6).

    a, b (FloatArray): The terms of `r_ij = a_i + b_j`. *Shape:* (tokens, width)
    x (FloatArray): The tokens. *Shape:* (tokens, width)
    lengths (IntArray): Token count per sequence. *Shape:* (sequences,)
    RETURNS (FloatArray): *Shape:* (tokens, width)
    """
    related = np.empty_like(x)
    u, w = (np.exp(np.clip(part, -EXPONENT_LIMIT, EXPONENT_LIMIT)) for part in (-a, b))
    for begin, end in pairwise([0, *np.cumsum(lengths).tolist()]):
        if begin < end:
            _gated(u[begin:end], w[begin:end], x[begin:end], related[begin:end])
    return related


def _gated(u: FloatArray, w: FloatArray, x: FloatArray, out: FloatArray) -> None:
    """Write r_i of the tokens of one sequence to `out`, tile by tile.

    With `u_i = e^(-a_i)` and `w_j = e^(b_j)`, a term of the mean is `sigma(a_i + b_j) x_j = w_j x_j / (u_i + w_j)`,
    where the product `w_j x_j` is computed once for each token.

    u, w, x, out (FloatArray): *Shape:* (length, width) each
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
    """The encoder of GRN: the context layer and the relation layer.

    config (GRNConfig): Sizes and options.
    weights (Weights): The module's weights.
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
        """Encode all tokens.

        x (FloatArray): The tokens, concatenated. *Shape:* (tokens, input width)
        lengths (Lengths): Token count per sequence. *Shape:* (sequences,)
        RETURNS (FloatArray): *Shape:* (tokens, width)
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
        """Add the encoder to the graph of `x`.

        x (Value): *Shape:* (sequences, longest, input width)
        RETURNS (Value): *Shape:* (sequences, longest, width)
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
        # Terms of padded tokens are multiplied by 0. A loop over the tokens i (ONNX's Scan) keeps memory linear.
        weighted = w * x * graph.Unsqueeze(batch.is_real.to(np.float32), [2])

        def relate_one(u_i: Value) -> list[Value]:
            """Return the sum over j in eq. 6, for one token i of each sequence."""
            return [graph.ReduceSum(weighted / (graph.Unsqueeze(u_i, [1]) + w), [1], keepdims=0)]

        related = graph.scan([], [u], relate_one, axis=1)
        return graph.Tanh(related / graph.Unsqueeze(batch.lengths.to(np.float32), [1, 2]))
