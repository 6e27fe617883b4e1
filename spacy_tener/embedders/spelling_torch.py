"""Features of tokens from the characters of words, and from the radicals of characters.

The character encoders are those that the TENER paper compares: an encoder of sequences, ReLU and the maximum over each
word, and a linear layer. The paper's text lacks the linear layer, but its parameter counts (supplement 6.1) and the
released code have it; ReLU is in the code only.
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
    """Encoder of tokens from their characters. Each distinct word is encoded once.

    tables (EmbeddingTables): Embedding tables of characters, with their own dropout.
    encoder (CharacterEncoder): Encoder of words from their characters.
    dropout (float): Dropout on the output.
    """

    def __init__(self, tables: EmbeddingTables, encoder: CharacterEncoder, *, dropout: float) -> None:
        super().__init__()
        self.tables = tables
        self.encoder = encoder
        self.dropout = Dropout(dropout)

    def forward(self, characters: Tensor, lengths: Lengths, words: Tensor) -> Tensor:
        """Return the encoded word of each token.

        characters (Tensor): Rows of the table, for the characters of all words joined. *Shape:* (characters,)
        lengths (Lengths): The number of characters of each word. *Shape:* (words,)
        words (Tensor): Index of each token's word. *Shape:* (tokens,)
        RETURNS (Tensor): *Shape:* (tokens, width)
        """
        encoded = self.encoder(self.tables(characters), lengths)
        return self.dropout(encoded.index_select(0, words))


class CharacterEncoder(nn.Module):
    """Encoder of words from their characters: an encoder of sequences, ReLU, the maximum, and a linear layer.

    encode (nn.Module): Encoder of the characters of all words, joined, called with the words' lengths too.
    hidden (int): Width of its output.
    width (int): Width of the output.
    """

    def __init__(self, encode: nn.Module, *, hidden: int, width: int) -> None:
        super().__init__()
        self.encode = encode
        self.out = Linear(hidden, width)

    def forward(self, characters: Tensor, lengths: Lengths) -> Tensor:
        """Encode words.

        characters (Tensor): Rows of the characters of all words, joined. *Shape:* (characters, character width)
        lengths (Lengths): The number of characters of each word; 0 is legal. *Shape:* (words,)
        RETURNS (Tensor): *Shape:* (words, width)
        """
        if not len(characters):
            return self.out.bias.expand(len(lengths), -1)
        hidden = self.encode(characters, lengths)
        return self.out(rectified_maximum(hidden, lengths))


def rectified_maximum(rows: Tensor, lengths: Lengths) -> Tensor:
    """Return ReLU of the maximum over each word's rows; zeros for a word without rows.

    *Shape:* (characters, width) to (words, width)
    """
    counts = as_lengths(lengths)
    word = on_device(np.repeat(np.arange(len(counts)), counts), rows.device)
    # Not torch.segment_reduce, which gives a negative gradient in full to each of several equal rows.
    zeros = rows.new_zeros(len(counts), rows.shape[1])
    return zeros.scatter_reduce(0, word[:, None].expand_as(rows), rows, "amax")


class CNN(nn.Module):
    """Convolution over the characters of each word.

    window (int): Number of characters in a window.
    """

    def __init__(self, width: int, filters: int, *, window: int) -> None:
        super().__init__()
        self.convolution = Convolution(width, filters, size=window)

    def forward(self, x: Tensor, lengths: Lengths) -> Tensor:
        """Filter the characters of all words, joined. *Shape:* (characters, width) to (characters, filters)"""
        windows = ConvolutionWindows.of(as_lengths(lengths), self.convolution.size, device=x.device)
        return self.convolution(x, windows)


def char_cnn(*, char_width: int, filters: int, window: int, width: int) -> CharacterEncoder:
    """Return Ma and Hovy's CNN over the characters: filters of one width."""
    return CharacterEncoder(CNN(char_width, filters, window=window), hidden=filters, width=width)


class RadicalEncoder(nn.Module):
    """Encoder of the radicals of each token's character.

    The names of all parameters begin with `radicals`, so that an optimizer can give them a learning rate of their own.

    radicals (CharacterFeatures): CNN over the radicals of each distinct character.
    radical_dropout (float): Probability in training that one unknown radical replaces those of a token, which trains
        the unknown row. In the released code, it is the word dropout of the characters.
    """

    def __init__(self, radicals: CharacterFeatures, *, radical_dropout: float) -> None:
        super().__init__()
        self.radicals = radicals
        self.radical_dropout = radical_dropout

    def forward(self, radicals: Tensor, lengths: IntArray, characters: Tensor) -> Tensor:
        """Return the encoded radicals of each token's character.

        radicals (Tensor): Rows of the table, for all distinct characters joined. *Shape:* (radicals,)
        lengths (IntArray): The number of radicals of each distinct character. *Shape:* (distinct characters,)
        characters (Tensor): Index of each token's character among the distinct ones. *Shape:* (tokens,)
        RETURNS (Tensor): *Shape:* (tokens, width)
        """
        if self.training and self.radical_dropout > 0.0:
            unknown = len(lengths)
            radicals, lengths = F.pad(radicals, (0, 1), value=UNKNOWN_ROW), np.append(lengths, 1)
            dropped = torch.rand(characters.shape, device=characters.device) < self.radical_dropout
            characters = characters.masked_fill(dropped, unknown)
        return self.radicals(radicals, lengths, characters)
