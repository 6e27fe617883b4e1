"""FLAT-ATSSA's encoder in torch (Hu et al., 2022): word fusion, and transformer layers with selective attention.

`WordFusion` is attention from each character to the words that contain it (section 3.3, eq. 13 to 15). The query is the
character at position i. Keys and values are the words with `head <= i <= tail`:

    R = W_r [p(i - head) ; p(i - tail)]    (eq. 15)
    A = (q + u) . k + (q + v) . R          (eq. 5)

As in FLAT, the product of `W_r` with two concatenated embeddings is the sum of two products, each of them a row of a
small table of distances. There is no padding: all arrays have a row for each pair of a character and a word that
contains it. The number of pairs is the total length of the words, so time and memory do not depend on how evenly the
words are distributed.

The transformer layers above have the attention of `selection_torch.SelectiveAttention`.
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
    """The pairs of a character and a word that contains it, as gather indices and segments. Computed once per batch.

    characters, words (Segments): Pairs with the same character, and pairs with the same word.
    from_head, from_tail (Segments): Pairs with the same distance `i - head`, and with the same distance `tail - i`.
    longest (int): Maximum word length in characters.
    """

    def __init__(self, lattice: Lattice, *, device: torch.device | str = "cpu") -> None:
        covers = Covers.of(lattice)
        self.longest = covers.longest
        self.characters = Segments.of(covers.characters, lattice.n_characters, device=device)
        self.words = Segments.of(covers.words, lattice.n_words, device=device)
        self.from_head = Segments.of(covers.from_head, covers.longest, device=device)
        self.from_tail = Segments.of(covers.from_tail, covers.longest, device=device)


class WordFusion(nn.Module):
    """Multi-head attention from each character to the words that contain it. Scores are not scaled (eq. 5).

    config (AtssaConfig): Sizes and options. Position embeddings have the same width as the output.
    char_width, word_width (int): Embedding widths.
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
        """Compute the attention output of each character. It is zero for characters without a word (section 3.3).

        chars (Tensor): Character embeddings. *Shape:* (characters, character width)
        words (Tensor): Word embeddings. *Shape:* (words, word width)
        covers (CoverSegments): The pairs of a character and a word that contains it.
        RETURNS (Tensor): *Shape:* (characters, width)
        """
        weights = self.weights(chars, words, covers)
        weights = dropout(weights, self.dropout, training=self.training)
        values = self._by_head(covers.words.gather(self.value(words)))
        return covers.characters.sum((weights[..., None] * values).flatten(1))

    def weights(self, chars: Tensor, words: Tensor, covers: CoverSegments) -> Tensor:
        """Compute the attention weights: a softmax over the pairs of each character. *Shape:* (pairs, heads)"""
        return covers.characters.softmax(self.scores(chars, words, covers))

    def scores(self, chars: Tensor, words: Tensor, covers: CoverSegments) -> Tensor:
        """Compute the attention scores A (eq. 5). *Shape:* (pairs, heads)"""
        q = self._by_head(covers.characters.gather(self.query(chars)))
        k = self._by_head(covers.words.gather(self.key(words)))
        r = self._by_head(self.positions(covers, like=chars))
        return ((q + self.u) * k + (q + self.v) * r).sum(-1)

    def positions(self, covers: CoverSegments, *, like: Tensor) -> Tensor:
        """Compute the relative position embeddings R (eq. 15). *Shape:* (pairs, width)"""
        sin, cos = sinusoids(covers.longest, self.width, like)
        # from_tail is the distance tail - i, so that p(i - tail) has the negative sine.
        behind, ahead = self.from_head(interleave(sin, cos)), self.from_tail(interleave(-sin, cos))
        return covers.from_head.gather(behind) + covers.from_tail.gather(ahead)

    def _by_head(self, x: Tensor) -> Tensor:
        return x.view(len(x), *self.u.shape)


def context_attention(config: AtssaConfig) -> Attention:
    """Build the attention of a transformer layer: selective, or of all keys."""
    sizes: Any = {"width": config.width, "n_heads": config.heads, "dropout": config.map_dropout}
    if not config.selects:
        return AdaptedAttention(**sizes, key_projection=True)
    make: Any = SelectiveAttention if config.selection == "adaptive" else config.selection
    selection = Selection(k=config.k, alpha=config.alpha, tau=config.tau)
    return cast(Attention, make(**sizes, selection=selection, penalty=config.penalty))


class AtssaEncoder(nn.Module):
    """FLAT-ATSSA's encoder: word fusion, a linear layer over `[x ; x^w]`, and transformer layers over the characters.

    config (AtssaConfig): Sizes and options.
    char_width (int): Character embedding width.
    word_width (int): Word embedding width.
    """

    def __init__(self, config: AtssaConfig, char_width: int, word_width: int) -> None:
        super().__init__()
        self.config = config
        self.fusion = WordFusion(config, char_width, word_width)
        self.input = Linear(char_width + config.width, config.width)
        self.layers = nn.ModuleList(TransformerLayer(context_attention(config), config) for _ in range(config.layers))

    def forward(self, chars: Tensor, words: Tensor, lattice: Lattice) -> Tensor:
        """Encode all characters.

        chars (Tensor): Character embeddings. *Shape:* (characters, character width)
        words (Tensor): Word embeddings. *Shape:* (words, word width)
        lattice (Lattice): Word positions.
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
