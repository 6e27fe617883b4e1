"""Predictors of the embedders that encode the characters, or the radicals, of tokens, as in `spelling_torch`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ..nn.layers_numpy import Convolution, EmbeddingTables, Linear, Weights
from ..sequences import Lengths, as_lengths, starts
from ..types import FloatArray, IntArray

Encode = Callable[[FloatArray, Lengths], FloatArray]


class CharacterFeatures:
    """Encoder of tokens from their characters. Each distinct word is encoded once.

    widths (Mapping[str, int]): Widths of the embedding tables of characters.
    encode (Callable[[Weights], Encode]): Makes the encoder of characters from its weights.
    width (int): Width of the output.
    """

    def __init__(
        self, widths: Mapping[str, int], encode: Callable[[Weights], Encode], width: int, weights: Weights
    ) -> None:
        self.tables = EmbeddingTables(widths, weights.part("tables"))
        weights.shaped("encoder.out.weight", width, None)
        self.encode = encode(weights.part("encoder", "encode"))
        self.out = Linear(weights.part("encoder", "out"))

    def __call__(self, characters: IntArray, lengths: IntArray, words: IntArray) -> FloatArray:
        """Encode the words of tokens by their characters.

        *Shape:* (characters,), (words,) and (tokens,), to (tokens, width)
        """
        rows = self.tables(characters)
        hidden = self.encode(rows, lengths) if len(rows) else np.zeros((0, self.out.weight.shape[0]), np.float32)
        return self.out(rectified_maximum(hidden, as_lengths(lengths)))[words]


def rectified_maximum(rows: FloatArray, lengths: IntArray) -> FloatArray:
    """Return ReLU of the maximum over each word's rows; zeros for a word without rows.

    *Shape:* (characters, width) to (words, width)
    """
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
        """Filter the characters of all words, joined. *Shape:* (characters, width) to (characters, filters)"""
        return self.convolution(x, as_lengths(lengths))
