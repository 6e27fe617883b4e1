"""Torch modules of the embedders for characters or radicals.

A token's vector is computed from its characters in these steps:

    character embeddings -> sequence encoder (CNN or transformer) -> ReLU and max pooling -> linear layer

The TENER paper does not mention the linear layer and ReLU, but its released code contains them.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..nn.devices_torch import on_device
from ..nn.layers_torch import UNKNOWN_ROW, Convolution, ConvolutionWindows, Dropout, EmbeddingTables, Linear
from ..sequences import Lengths, as_lengths
from ..types import IntArray


class CharacterFeatures(nn.Module):
    """An embedder that computes a vector for each token from its characters or radicals.

    tables (EmbeddingTables): The character embeddings, with dropout.
    encoder (CharacterEncoder): Encodes a token's characters as a vector.
    dropout (float): Output dropout rate.
    """

    def __init__(self, tables: EmbeddingTables, encoder: CharacterEncoder, *, dropout: float) -> None:
        super().__init__()
        self.tables = tables
        self.encoder = encoder
        self.dropout = Dropout(dropout)

    def forward(self, characters: Tensor, lengths: Lengths, words: Tensor) -> Tensor:
        """Return a vector for each token. Each distinct token is encoded only once.

        characters (Tensor): Embedding rows of the characters in all distinct tokens. *Shape:* (characters,)
        lengths (Lengths): Number of characters in each distinct token. *Shape:* (words,)
        words (Tensor): Index of the distinct token for each token. *Shape:* (tokens,)
        RETURNS (Tensor): The vectors. *Shape:* (tokens, width)
        """
        encoded = self.encoder(self.tables(characters), lengths)
        return self.dropout(encoded.index_select(0, words))


class CharacterEncoder(nn.Module):
    """A layer that encodes a word's characters as a vector.

    It consists of a sequence encoder, ReLU, max pooling, and a linear layer.

    encode (nn.Module): The sequence encoder. Its arguments are the embeddings of all characters and the word lengths in
        characters.
    hidden (int): The sequence encoder's output width.
    width (int): Output width.
    """

    def __init__(self, encode: nn.Module, *, hidden: int, width: int) -> None:
        super().__init__()
        self.encode = encode
        self.out = Linear(hidden, width)

    def forward(self, characters: Tensor, lengths: Lengths) -> Tensor:
        """Return a vector for each word.

        characters (Tensor): Character embeddings of all words. *Shape:* (characters, character width)
        lengths (Lengths): Word lengths in characters, which can be 0. *Shape:* (words,)
        RETURNS (Tensor): The vectors. *Shape:* (words, width)
        """
        if not len(characters):
            return self.out.bias.expand(len(lengths), -1)
        hidden = self.encode(characters, lengths)
        return self.out(max_pool_relu(hidden, lengths))


def max_pool_relu(rows: Tensor, lengths: Lengths) -> Tensor:
    """Apply max pooling over the characters in each word, followed by ReLU. An empty word gets a zero vector.

    rows (Tensor): Hidden states of all characters. *Shape:* (characters, width)
    lengths (Lengths): Word lengths in characters. *Shape:* (words,)
    RETURNS (Tensor): The pooled vectors. *Shape:* (words, width)
    """
    # The maximum of the initial zeros and the hidden states is equal to ReLU after max pooling.
    counts = as_lengths(lengths)
    word = on_device(np.repeat(np.arange(len(counts)), counts), rows.device)
    # `torch.segment_reduce` is not used, since its gradient is wrong if several characters have the same maximum. If
    # the gradient is negative, each of these characters gets the complete gradient.
    zeros = rows.new_zeros(len(counts), rows.shape[1])
    return zeros.scatter_reduce(0, word[:, None].expand_as(rows), rows, "amax")


class CNN(nn.Module):
    """A 1D convolution over the characters in each word.

    width (int): Character embedding width.
    filters (int): Number of filters.
    window (int): Window size, in characters.
    """

    def __init__(self, width: int, filters: int, *, window: int) -> None:
        super().__init__()
        self.convolution = Convolution(width, filters, size=window)

    def forward(self, x: Tensor, lengths: Lengths) -> Tensor:
        """Apply the convolution to the characters in each word.

        x (Tensor): Character embeddings of all words. *Shape:* (characters, width)
        lengths (Lengths): Word lengths in characters. *Shape:* (words,)
        RETURNS (Tensor): The filter outputs. *Shape:* (characters, filters)
        """
        windows = ConvolutionWindows.of(as_lengths(lengths), self.convolution.size, device=x.device)
        return self.convolution(x, windows)


def char_cnn(*, char_width: int, filters: int, window: int, width: int) -> CharacterEncoder:
    """Create the character CNN of Ma and Hovy (2016, https://arxiv.org/abs/1603.01354)."""
    return CharacterEncoder(CNN(char_width, filters, window=window), hidden=filters, width=width)


class RadicalEncoder(nn.Module):
    """An embedder that computes a vector for each token from the radicals of its characters.

    All parameter names start with `radicals`, so that an optimizer can set a separate learning rate for them.

    radicals (CharacterFeatures): A CNN over each token's radicals.
    radical_dropout (float): Probability that all radicals in a token are replaced by the unknown radical during
        training. This trains the unknown radical's embedding. MECT's released code uses the word dropout rate of the
        characters.
    """

    def __init__(self, radicals: CharacterFeatures, *, radical_dropout: float) -> None:
        super().__init__()
        self.radicals = radicals
        self.radical_dropout = radical_dropout

    def forward(self, radicals: Tensor, lengths: IntArray, characters: Tensor) -> Tensor:
        """Return a vector for each token. Each distinct token is encoded only once.

        radicals (Tensor): Embedding rows of the radicals in all distinct tokens. *Shape:* (radicals,)
        lengths (IntArray): Number of radicals in each distinct token. *Shape:* (distinct tokens,)
        characters (Tensor): Index of the distinct token for each token. *Shape:* (tokens,)
        RETURNS (Tensor): The vectors. *Shape:* (tokens, width)
        """
        # Radical dropout: append a distinct token that consists of the unknown radical, and let dropped tokens refer to
        # it.
        if self.training and self.radical_dropout > 0.0:
            unknown = len(lengths)
            radicals, lengths = F.pad(radicals, (0, 1), value=UNKNOWN_ROW), np.append(lengths, 1)
            dropped = torch.rand(characters.shape, device=characters.device) < self.radical_dropout
            characters = characters.masked_fill(dropped, unknown)
        return self.radicals(radicals, lengths, characters)
