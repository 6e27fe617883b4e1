"""From the characters of words, or the radicals of characters, to one row for each token.

The character encoders are those that the TENER paper compares. Each is an encoder of sequences, as words have them too,
then the maximum over each word, then a linear layer. That layer is not in the paper's text, but in its parameter counts
(supplement 6.1) and in the released code; so is the ReLU before the maximum, in the code.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ..batching.sequences import Lengths, Packing, as_lengths
from ..settings import TransformerConfig
from ..types import IntArray
from .convolution import Convolution, ConvolutionWindows
from .dense import UNKNOWN_ROW, Dropout, EmbeddingTables, Linear
from .devices import on_device
from .transformer import TransformerEncoder


class CharacterEncoder(nn.Module):
    """An encoder of characters, the maximum over each word, a linear layer.

    encode: from the characters of all words joined, and the words' lengths, to as many rows.
    hidden: width of those rows.
    width: of a word's row.
    """

    def __init__(self, encode: nn.Module, *, hidden: int, width: int) -> None:
        super().__init__()
        self.encode = encode
        self.out = Linear(hidden, width)

    def forward(self, characters: Tensor, lengths: Lengths) -> Tensor:
        """*Shape* characters: [C, char_width]; lengths: [words], 0 is legal -> [words, width]"""
        if not len(characters):
            return self.out.bias.expand(len(lengths), -1)
        hidden = self.encode(characters, lengths)
        return self.out(rectified_maximum(hidden, lengths))


def rectified_maximum(rows: Tensor, lengths: Lengths) -> Tensor:
    """ReLU and the maximum over the rows of each word, in either order; zeros for a word without any.

    rows: *Shape: [C, w]*; lengths: *Shape: [words]*. Returns *Shape: [words, w]*
    """
    counts = as_lengths(lengths)
    word = on_device(np.repeat(np.arange(len(counts)), counts), rows.device)
    # Not torch.segment_reduce: where rows of a word are equal, it hands a negative gradient to each of them in full.
    zeros = rows.new_zeros(len(counts), rows.shape[1])
    return zeros.scatter_reduce(0, word[:, None].expand_as(rows), rows, "amax")


def char_cnn(*, char_width: int, filters: int, window: int, width: int) -> CharacterEncoder:
    """Ma and Hovy's: filters of one width over the characters."""
    return CharacterEncoder(CNN(char_width, filters, window=window), hidden=filters, width=width)


def char_bilstm(*, char_width: int, hidden: int, width: int) -> CharacterEncoder:
    """Return a BiLSTM over the characters. hidden: width of each direction."""
    return CharacterEncoder(BiLSTM(char_width, hidden), hidden=2 * hidden, width=width)


def char_transformer(config: TransformerConfig, *, width: int) -> CharacterEncoder:
    """Return the adapted transformer, TENER's own, or the vanilla one."""
    return CharacterEncoder(TransformerEncoder(config), hidden=config.width, width=width)


class CNN(nn.Module):
    """Filters over the characters of each word: a convolution that plans its own windows.

    window: how many characters a filter sees.
    """

    def __init__(self, width: int, filters: int, *, window: int) -> None:
        super().__init__()
        self.convolution = Convolution(width, filters, size=window)

    def forward(self, x: Tensor, lengths: Lengths) -> Tensor:
        """*Shape* [N, width] -> [N, filters]"""
        windows = ConvolutionWindows.of(as_lengths(lengths), self.convolution.size, device=x.device)
        return self.convolution(x, windows)


class BiLSTM(nn.Module):
    """A bidirectional LSTM over the sequences of a flat batch, with no padding.

    hidden: width of each direction.
    """

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, hidden, bidirectional=True)

    def forward(self, x: Tensor, lengths: Lengths) -> Tensor:
        """*Shape* [N, width] -> [N, 2 hidden]"""
        packing = Packing.of(lengths, len(x))
        flat = on_device(packing.forward, x.device)
        packed, _ = self.lstm(PackedSequence(x.index_select(0, flat), torch.tensor(packing.sizes)))
        # Each flat row is packed once: sorting says where.
        return packed.data.index_select(0, flat.argsort())


class CharacterFeatures(nn.Module):
    """For each token the encoding of its word, which is made once for all tokens of one word.

    tables: the rows of characters, with dropout of their own.
    encoder: from a word's characters to its row.
    dropout: on the tokens' rows.
    """

    def __init__(self, tables: EmbeddingTables, encoder: CharacterEncoder, *, dropout: float) -> None:
        super().__init__()
        self.tables = tables
        self.encoder = encoder
        self.dropout = Dropout(dropout)

    def forward(self, characters: Tensor, lengths: Lengths, words: Tensor) -> Tensor:
        """Encode the words, then read off each token's.

        characters: rows of the table, for the characters of all words joined. *Shape: [C]*
        lengths: the number of characters of each word. *Shape: [words]*
        words: which of the words each token is. *Shape: [N]*
        Returns *Shape: [N, width]*
        """
        encoded = self.encoder(self.tables(characters), lengths)
        return self.dropout(encoded.index_select(0, words))


class RadicalEncoder(nn.Module):
    """Encoder of the radicals of each token's character.

    The names of all parameters begin with `radicals`, by which an optimizer can give them a rate of their own.

    radicals: the filters over a character's radicals, with their maximum; a distinct character is read once.
    radical_dropout: probability that a token is read in training as a character of one unknown radical. It trains
        the unknown row, as in the released code, where it is the word dropout of the characters.
    """

    def __init__(self, radicals: CharacterFeatures, *, radical_dropout: float) -> None:
        super().__init__()
        self.radicals = radicals
        self.radical_dropout = radical_dropout

    def forward(self, radicals: Tensor, lengths: IntArray, characters: Tensor) -> Tensor:
        """Read the distinct characters, then give each token its character's row.

        radicals: rows of the table, for all distinct characters joined. *Shape: [C]*
        lengths: the number of radicals of each distinct character. *Shape: [n]*
        characters: which of the distinct characters each token is. *Shape: [N]*
        Returns *Shape: [N, width]*
        """
        if self.training and self.radical_dropout > 0.0:
            unknown = len(lengths)
            radicals, lengths = F.pad(radicals, (0, 1), value=UNKNOWN_ROW), np.append(lengths, 1)
            dropped = torch.rand(characters.shape, device=characters.device) < self.radical_dropout
            characters = characters.masked_fill(dropped, unknown)
        return self.radicals(radicals, lengths, characters)
