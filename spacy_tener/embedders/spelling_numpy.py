"""NumPy implementation of the embedders for characters or radicals, equivalent to `spelling_torch.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ..nn.layers_numpy import Convolution, EmbeddingTables, Linear, Weights
from ..sequences import Lengths, as_lengths, starts
from ..types import FloatArray, IntArray

Encode = Callable[[FloatArray, Lengths], FloatArray]


class CharacterFeatures:
    """An embedder that computes a vector for each token from its characters or radicals.

    widths (Mapping[str, int]): The embedding table's name and width.
    encode (Callable[[Weights], Encode]): Creates the sequence encoder, such as `CNN`, from its weights.
    width (int): Output width.
    weights (Weights): The torch module's weights.
    """

    def __init__(
        self, widths: Mapping[str, int], encode: Callable[[Weights], Encode], width: int, weights: Weights
    ) -> None:
        self.tables = EmbeddingTables(widths, weights.part("tables"))
        weights.shaped("encoder.out.weight", width, None)
        self.encode = encode(weights.part("encoder", "encode"))
        self.out = Linear(weights.part("encoder", "out"))

    def __call__(self, characters: IntArray, lengths: IntArray, words: IntArray) -> FloatArray:
        """Return a vector for each token.

        characters (IntArray): Embedding rows of the characters in all distinct tokens. *Shape:* (characters,)
        lengths (IntArray): Number of characters in each distinct token. *Shape:* (words,)
        words (IntArray): Index of the distinct token for each token. *Shape:* (tokens,)
        RETURNS (FloatArray): The vectors. *Shape:* (tokens, width)
        """
        rows = self.tables(characters)
        hidden = self.encode(rows, lengths) if len(rows) else np.zeros((0, self.out.weight.shape[0]), np.float32)
        return self.out(max_pool_relu(hidden, as_lengths(lengths)))[words]


def max_pool_relu(rows: FloatArray, lengths: IntArray) -> FloatArray:
    """Apply max pooling over the characters in each word, followed by ReLU. An empty word gets a zero vector.

    rows (FloatArray): Hidden states of all characters. *Shape:* (characters, width)
    lengths (IntArray): Word lengths in characters. *Shape:* (words,)
    RETURNS (FloatArray): The pooled vectors. *Shape:* (words, width)
    """
    # Empty words are excluded because `reduceat` does not support empty segments.
    largest = np.zeros((len(lengths), rows.shape[1]), np.float32)
    filled = np.flatnonzero(lengths)
    if filled.size:
        largest[filled] = np.maximum(np.maximum.reduceat(rows, starts(lengths)[filled], axis=0), 0.0)
    return largest


class CNN:
    """A 1D convolution over the characters in each word."""

    def __init__(self, window: int, filters: int, weights: Weights) -> None:
        self.convolution = Convolution(weights.part("convolution"), filters, window)

    def __call__(self, x: FloatArray, lengths: Lengths) -> FloatArray:
        """Apply the convolution to the characters in each word.

        x (FloatArray): Character embeddings of all words. *Shape:* (characters, width)
        lengths (Lengths): Word lengths in characters. *Shape:* (words,)
        RETURNS (FloatArray): The filter outputs. *Shape:* (characters, filters)
        """
        return self.convolution(x, as_lengths(lengths))
