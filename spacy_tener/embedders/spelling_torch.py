"""Torch modules of the embedders over the characters or radicals of tokens.

    characters -> embeddings -> sequence encoder (CNN or transformer) -> ReLU and max pooling over each word -> linear
    layer

The TENER paper compares such encoders. Its text does not mention the linear layer, but the parameter counts (supplement
6.1) and the released code include it. ReLU occurs in the released code only.
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
    """An embedder over characters, which encodes each distinct token once.

    tables (EmbeddingTables): The embedding table of characters, which applies dropout to its output.
    encoder (CharacterEncoder): The encoder of words.
    dropout (float): Dropout rate of the output.
    """

    def __init__(self, tables: EmbeddingTables, encoder: CharacterEncoder, *, dropout: float) -> None:
        super().__init__()
        self.tables = tables
        self.encoder = encoder
        self.dropout = Dropout(dropout)

    def forward(self, characters: Tensor, lengths: Lengths, words: Tensor) -> Tensor:
        """Return the encoding of each token.

        characters (Tensor): Embedding rows of the characters of all distinct tokens. *Shape:* (characters,)
        lengths (Lengths): Number of characters in each distinct token. *Shape:* (words,)
        words (Tensor): Index of the distinct token for each token. *Shape:* (tokens,)
        RETURNS (Tensor): *Shape:* (tokens, width)
        """
        encoded = self.encoder(self.tables(characters), lengths)
        return self.dropout(encoded.index_select(0, words))


class CharacterEncoder(nn.Module):
    """An encoder of words: a sequence encoder over characters, ReLU, max pooling, and a linear layer.

    encode (nn.Module): The sequence encoder, which is called with the characters of all words and the words' lengths.
    hidden (int): Width of the sequence encoder's output.
    width (int): Width of the output.
    """

    def __init__(self, encode: nn.Module, *, hidden: int, width: int) -> None:
        super().__init__()
        self.encode = encode
        self.out = Linear(hidden, width)

    def forward(self, characters: Tensor, lengths: Lengths) -> Tensor:
        """Return the encoding of each word.

        characters (Tensor): Embeddings of the characters of all words. *Shape:* (characters, character width)
        lengths (Lengths): Number of characters in each word, which can be 0. *Shape:* (words,)
        RETURNS (Tensor): *Shape:* (words, width)
        """
        if not len(characters):
            return self.out.bias.expand(len(lengths), -1)
        hidden = self.encode(characters, lengths)
        return self.out(rectified_maximum(hidden, lengths))


def rectified_maximum(rows: Tensor, lengths: Lengths) -> Tensor:
    """Apply max pooling over the characters of each word, followed by ReLU. Words without characters get zeros.

    *Shape:* (characters, width) to (words, width)
    """
    # Pooling into a tensor of zeros is the same as ReLU of the maximum.
    counts = as_lengths(lengths)
    word = on_device(np.repeat(np.arange(len(counts)), counts), rows.device)
    # `torch.segment_reduce` computes a wrong gradient if several characters have the same maximum: each of them gets
    # the complete gradient if it is negative.
    zeros = rows.new_zeros(len(counts), rows.shape[1])
    return zeros.scatter_reduce(0, word[:, None].expand_as(rows), rows, "amax")


class CNN(nn.Module):
    """A convolution over the characters of each word.

    width (int): Width of the character embeddings.
    filters (int): Number of filters.
    window (int): Number of characters in the window of a filter.
    """

    def __init__(self, width: int, filters: int, *, window: int) -> None:
        super().__init__()
        self.convolution = Convolution(width, filters, size=window)

    def forward(self, x: Tensor, lengths: Lengths) -> Tensor:
        """Apply the filters to the characters of all words. *Shape:* (characters, width) to (characters, filters)"""
        windows = ConvolutionWindows.of(as_lengths(lengths), self.convolution.size, device=x.device)
        return self.convolution(x, windows)


def char_cnn(*, char_width: int, filters: int, window: int, width: int) -> CharacterEncoder:
    """Create the character CNN of Ma and Hovy (2016, https://arxiv.org/abs/1603.01354)."""
    return CharacterEncoder(CNN(char_width, filters, window=window), hidden=filters, width=width)


class RadicalEncoder(nn.Module):
    """An encoder of tokens by the radicals of their characters.

    The names of all parameters begin with `radicals`, so that a config can set their learning rate.

    radicals (CharacterFeatures): A CNN over the radicals of each distinct token.
    radical_dropout (float): Probability that the radicals of a token are replaced by the unknown radical in training,
        which trains its embedding. The released code of MECT uses the word dropout of the characters.
    """

    def __init__(self, radicals: CharacterFeatures, *, radical_dropout: float) -> None:
        super().__init__()
        self.radicals = radicals
        self.radical_dropout = radical_dropout

    def forward(self, radicals: Tensor, lengths: IntArray, characters: Tensor) -> Tensor:
        """Return the encoding of each token.

        radicals (Tensor): Embedding rows of the radicals of all distinct tokens. *Shape:* (radicals,)
        lengths (IntArray): Number of radicals in each distinct token. *Shape:* (distinct tokens,)
        characters (Tensor): Index of the distinct token for each token. *Shape:* (tokens,)
        RETURNS (Tensor): *Shape:* (tokens, width)
        """
        # The unknown radical is appended as another distinct token, to which dropped tokens refer.
        if self.training and self.radical_dropout > 0.0:
            unknown = len(lengths)
            radicals, lengths = F.pad(radicals, (0, 1), value=UNKNOWN_ROW), np.append(lengths, 1)
            dropped = torch.rand(characters.shape, device=characters.device) < self.radical_dropout
            characters = characters.masked_fill(dropped, unknown)
        return self.radicals(radicals, lengths, characters)
