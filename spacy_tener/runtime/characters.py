"""Features of tokens from the characters of words, or from the radicals of characters, as in `layers.characters`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ..batching.sequences import Lengths, Packing, as_lengths, starts
from ..types import FloatArray, IntArray
from .convolution import Convolution
from .dense import EmbeddingTables, Linear, sigmoid
from .weights import Weights

Encode = Callable[[FloatArray, Lengths], FloatArray]


class CharacterFeatures:
    """Encoder of tokens from their characters. Each distinct word is encoded once.

    widths: Widths of the embedding tables of characters.
    encode: Makes the encoder of characters from its weights.
    width: Width of the output.
    """

    def __init__(
        self, widths: Mapping[str, int], encode: Callable[[Weights], Encode], width: int, weights: Weights
    ) -> None:
        self.tables = EmbeddingTables(widths, weights.part("tables"))
        weights.shaped("encoder.out.weight", width, None)
        self.encode = encode(weights.part("encoder", "encode"))
        self.out = Linear(weights.part("encoder", "out"))

    def __call__(self, characters: IntArray, lengths: IntArray, words: IntArray) -> FloatArray:
        """*Shape* characters: [C]; lengths: [words]; words: [N]; result: [N, width]"""
        rows = self.tables(characters)
        hidden = self.encode(rows, lengths) if len(rows) else np.zeros((0, self.out.weight.shape[0]), np.float32)
        return self.out(rectified_maximum(hidden, as_lengths(lengths)))[words]


def radical_features(
    widths: Mapping[str, int], encode: Callable[[Weights], Encode], width: int, weights: Weights
) -> CharacterFeatures:
    """Return the encoder of the radicals of each token's character."""
    return CharacterFeatures(widths, encode, width, weights.part("radicals"))


def rectified_maximum(rows: FloatArray, lengths: IntArray) -> FloatArray:
    """Return ReLU of the maximum over each word's rows; zeros for a word without rows. *Shape: [C, w] -> [words, w]*"""
    largest = np.zeros((len(lengths), rows.shape[1]), np.float32)
    filled = np.flatnonzero(lengths)
    if filled.size:
        largest[filled] = np.maximum(np.maximum.reduceat(rows, starts(lengths)[filled], axis=0), 0.0)
    return largest


class CNN:
    """Convolution over the characters of a word."""

    def __init__(self, window: int, filters: int, weights: Weights) -> None:
        self.convolution = Convolution(weights.part("convolution"), filters, window)

    def __call__(self, x: FloatArray, lengths: Lengths) -> FloatArray:
        """*Shape* [N, width] -> [N, filters]"""
        return self.convolution(x, as_lengths(lengths))


class BiLSTM:
    """Bidirectional LSTM, with torch's weights, over all words at once, character by character."""

    def __init__(self, hidden: int, weights: Weights) -> None:
        weights.shaped("lstm.weight_hh_l0", 4 * hidden, hidden)
        self.directions = [_Direction(weights.part("lstm"), suffix) for suffix in ("", "_reverse")]

    def __call__(self, x: FloatArray, lengths: Lengths) -> FloatArray:
        """*Shape* [N, width] -> [N, 2 hidden]"""
        packing = Packing.of(lengths, len(x))
        parts = []
        for direction, rows in zip(self.directions, (packing.forward, packing.backward), strict=True):
            outputs = direction(x[rows], packing)
            flat = np.empty_like(outputs)
            flat[rows] = outputs
            parts.append(flat)
        return np.concatenate(parts, axis=1)


class _Direction:
    """LSTM in one direction."""

    def __init__(self, weights: Weights, suffix: str) -> None:
        self.input, self.hidden = (
            np.ascontiguousarray(weights[f"weight_{kind}_l0{suffix}"].T) for kind in ("ih", "hh")
        )
        self.bias = weights[f"bias_ih_l0{suffix}"] + weights[f"bias_hh_l0{suffix}"]

    def __call__(self, x: FloatArray, packing: Packing) -> FloatArray:
        """x: in packed order. *Shape* [N, width] -> [N, hidden]"""
        gates = x @ self.input + self.bias
        width = len(self.hidden)
        outputs = np.empty((len(x), width), np.float32)
        state, cell = (np.zeros((packing.sizes[0], width), np.float32) for _ in range(2))
        for begin, end in packing.steps:
            step = gates[begin:end]
            step += state[: end - begin] @ self.hidden
            opened = sigmoid(step)
            cell = opened[:, width : 2 * width] * cell[: end - begin]
            cell += opened[:, :width] * np.tanh(step[:, 2 * width : 3 * width])
            state = np.multiply(opened[:, 3 * width :], np.tanh(cell), out=outputs[begin:end])
        return outputs
