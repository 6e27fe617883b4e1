"""FLAT-ATSSA's encoder in torch: word fusion, and context layers with selective self-attention (`selection_torch`).

Word fusion is attention of each character to the words that cover it (Hu et al., 2022, eq. 13 to 15). The character at
position i is the query, and the words with `head <= i <= tail` are keys and values:

    R = W_r [p_{i - head} ; p_{i - tail}]    (eq. 15)
    A = (q + u) . k + (q + v) . R            (eq. 5)

The product of `W_r` with two concatenated vectors is the sum of two products, each of which is a row of a small table
of distances. All arrays are flat, with a row for each pair of a character and a word that covers it. There are as many
pairs as the words have characters, so time and memory are linear in the length of the text, however unevenly the words
are distributed.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from ...embedders.lattice import Lattice
from ...nn.attention_torch import Attention, interleave, sinusoids
from ...nn.layers_torch import Linear, TransformerLayer, dropout
from ...nn.ragged_torch import Ragged, Segments
from ..tener.tener_torch import AdaptedAttention, RelativePositions
from .flat_config import AtssaConfig
from .plans import Covers
from .selection_torch import Selection, SelectiveAttention


class CoverSegments:
    """Pairs of a character and a word that covers it, as `Segments`. Made once per batch.

    characters, words (Segments): The pairs by character, and by word.
    from_head, from_tail (Segments): The pairs by the distances `i - head`, and by `tail - i`.
    longest (int): Length of the longest word.
    """

    def __init__(self, lattice: Lattice, *, device: torch.device | str = "cpu") -> None:
        covers = Covers.of(lattice)
        self.longest = covers.longest
        self.characters = Segments.of(covers.characters, lattice.n_characters, device=device)
        self.words = Segments.of(covers.words, lattice.n_words, device=device)
        self.from_head = Segments.of(covers.from_head, covers.longest, device=device)
        self.from_tail = Segments.of(covers.from_tail, covers.longest, device=device)


class WordFusion(nn.Module):
    """Multi-head attention of each character to the words that cover it, un-scaled as in eq. 5.

    config (AtssaConfig): Sizes. Positions are as wide as the output, whose width the heads share.
    char_width, word_width (int): Widths of the input.
    """

    def __init__(self, config: AtssaConfig, char_width: int, word_width: int) -> None:
        super().__init__()
        self.width = width = config.width
        self.dropout = config.map_dropout
        self.query = Linear(char_width, width, bias=False)
        self.key = Linear(word_width, width, bias=False)
        self.value = Linear(word_width, width, bias=False)
        self.from_head = Linear(width, width, bias=False)
        self.from_tail = Linear(width, width, bias=False)
        self.u = nn.Parameter(nn.init.xavier_normal_(torch.empty(config.heads, config.head_width)))
        self.v = nn.Parameter(nn.init.xavier_normal_(torch.empty(config.heads, config.head_width)))

    def forward(self, chars: Tensor, words: Tensor, covers: CoverSegments) -> Tensor:
        """Return the attention output of each character; zeros for a character without words.

        chars (Tensor): *Shape:* (characters, character width)
        words (Tensor): *Shape:* (words, word width)
        RETURNS (Tensor): *Shape:* (characters, width)
        """
        weights = self.weights(chars, words, covers)
        weights = dropout(weights, self.dropout, training=self.training)
        values = self._by_head(covers.words.gather(self.value(words)))
        return covers.characters.sum((weights[..., None] * values).flatten(1))

    def weights(self, chars: Tensor, words: Tensor, covers: CoverSegments) -> Tensor:
        """Return the attention of each character to its words, for each pair and head. *Shape:* (pairs, heads)"""
        return covers.characters.softmax(self.scores(chars, words, covers))

    def scores(self, chars: Tensor, words: Tensor, covers: CoverSegments) -> Tensor:
        """Return A (eq. 5), for each pair and head. *Shape:* (pairs, heads)"""
        q = self._by_head(covers.characters.gather(self.query(chars)))
        k = self._by_head(covers.words.gather(self.key(words)))
        r = self._by_head(self.positions(covers, like=chars))
        return ((q + self.u) * k + (q + self.v) * r).sum(-1)

    def positions(self, covers: CoverSegments, *, like: Tensor) -> Tensor:
        """Return R (eq. 15), for each pair. *Shape:* (pairs, width)"""
        sin, cos = sinusoids(covers.longest, self.width, like)
        behind, ahead = self.from_head(interleave(sin, cos)), self.from_tail(interleave(-sin, cos))
        return covers.from_head.gather(behind) + covers.from_tail.gather(ahead)

    def _by_head(self, x: Tensor) -> Tensor:
        return x.view(len(x), *self.u.shape)


def context_attention(config: AtssaConfig) -> Attention:
    """Return the attention of one context layer."""
    sizes: Any = {"width": config.width, "n_heads": config.heads, "dropout": config.map_dropout}
    if not config.selects:
        return AdaptedAttention(**sizes, key_projection=True)
    make: Any = SelectiveAttention if config.selection == "adaptive" else config.selection
    selection = Selection(k=config.k, alpha=config.alpha, tau=config.tau)
    return cast(Attention, make(**sizes, selection=selection, penalty=config.penalty))


class AtssaEncoder(nn.Module):
    """FLAT-ATSSA: word fusion, a linear layer over `[x ; x^w]`, and context layers over the characters.

    config (AtssaConfig): Sizes and choices.
    char_width (int): Width of the characters.
    word_width (int): Width of the words.
    """

    def __init__(self, config: AtssaConfig, char_width: int, word_width: int) -> None:
        super().__init__()
        self.config = config
        self.fusion = WordFusion(config, char_width, word_width)
        self.input = Linear(char_width + config.width, config.width)
        self.layers = nn.ModuleList(TransformerLayer(context_attention(config), config) for _ in range(config.layers))

    def forward(self, chars: Tensor, words: Tensor, lattice: Lattice) -> Tensor:
        """Encode the characters of all sentences, joined.

        chars (Tensor): *Shape:* (characters, character width)
        words (Tensor): *Shape:* (words, word width)
        RETURNS (Tensor): *Shape:* (characters, width)
        """
        lattice.check_rows(characters=len(chars), words=len(words))
        fused = self.fusion(chars, words, CoverSegments(lattice, device=chars.device))
        x = self.input(torch.cat((chars, fused), dim=-1))
        ragged = Ragged.of(lattice.lengths, heads=self.config.heads, device=x.device)
        context: tuple[Any, ...] = ragged, RelativePositions.of(ragged, self.config.head_width, x)
        if self.config.selects:
            context += (Segments.of_sequences(lattice.lengths, device=x.device),)
        for layer in self.layers:
            x = layer(x, *context)
        return x
