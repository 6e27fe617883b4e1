"""Word fusion of FLAT-ATSSA: attention of a character to the words that cover it (Hu et al., eq. 13 to 15).

The character at `i` is the query, the words with `head <= i <= tail` are keys and values:

    R = W_r [p_{i - head} ; p_{i - tail}]    (eq. 15)
    A = (q + u) . k + (q + v) . R            (eq. 5)

`W_r` times two stacked vectors is the sum of two products, each a row of a small table by distance. All arrays are
flat, with a row for each pair of a character and a word over it: there are as many as words have characters, so time
and memory are linear in the text, however unevenly the words are distributed.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..batching.lattice import Covers, Lattice
from .attention import interleave, sinusoids
from .dense import Linear, dropout
from .ragged import Segments


class CoverSegments:
    """Pairs of a character and a word that covers it, as `Segments`. Made once per batch.

    characters, words: pairs by character and by word.
    from_head, from_tail: pairs by the distances `i - head` and `tail - i`.
    longest: length of the longest word.
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

    char_width, word_width (int): of the input.
    width (int): of the output, shared by the heads, and of the positions; even.
    n_heads (int): h; each head is `width / n_heads` wide.
    dropout (float): on the attention map.
    """

    def __init__(self, *, char_width: int, word_width: int, width: int, n_heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.width = width
        self.dropout = dropout
        self.query = Linear(char_width, width, bias=False)
        self.key = Linear(word_width, width, bias=False)
        self.value = Linear(word_width, width, bias=False)
        self.from_head = Linear(width, width, bias=False)
        self.from_tail = Linear(width, width, bias=False)
        self.u = nn.Parameter(nn.init.xavier_normal_(torch.empty(n_heads, width // n_heads)))
        self.v = nn.Parameter(nn.init.xavier_normal_(torch.empty(n_heads, width // n_heads)))

    def forward(self, chars: Tensor, words: Tensor, covers: CoverSegments) -> Tensor:
        """Return the attention output of each character; zeros for a character without words.

        chars (Tensor): *Shape:* (characters, character width); words: *Shape:* (words, word width). Returns
            *Shape:* (characters, width)
        """
        weights = self.weights(chars, words, covers)
        weights = dropout(weights, self.dropout, training=self.training)
        values = self._by_head(covers.words.gather(self.value(words)))
        return covers.characters.sum((weights[..., None] * values).flatten(1))

    def weights(self, chars: Tensor, words: Tensor, covers: CoverSegments) -> Tensor:
        """Return the attention of each character to its words, for each pair and head. Returns
        *Shape:* (pairs, heads)
        """
        return covers.characters.softmax(self.scores(chars, words, covers))

    def scores(self, chars: Tensor, words: Tensor, covers: CoverSegments) -> Tensor:
        """Return A, for each pair and head. Returns *Shape:* (pairs, heads)"""
        q = self._by_head(covers.characters.gather(self.query(chars)))
        k = self._by_head(covers.words.gather(self.key(words)))
        r = self._by_head(self.positions(covers, like=chars))
        return ((q + self.u) * k + (q + self.v) * r).sum(-1)

    def positions(self, covers: CoverSegments, *, like: Tensor) -> Tensor:
        """Return R (eq. 15), for each pair. Returns *Shape:* (pairs, width)"""
        sin, cos = sinusoids(covers.longest, self.width, like)
        behind, ahead = self.from_head(interleave(sin, cos)), self.from_tail(interleave(-sin, cos))
        return covers.from_head.gather(behind) + covers.from_tail.gather(ahead)

    def _by_head(self, x: Tensor) -> Tensor:
        return x.view(len(x), *self.u.shape)
