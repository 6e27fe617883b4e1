"""The words that cover a character, read into one vector: what `layers.lattice.word_fusion` computes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..batching.lattice import Lattice
from ..batching.sequences import ranges, starts
from ..types import FloatArray, IntArray
from .attention import interleave, sinusoids
from .dense import Linear
from .weights import Weights


class WordFusion:
    """Multi-head attention of each character to the words that cover it."""

    def __init__(self, n_heads: int, width: int, weights: Weights) -> None:
        self.query = Linear(weights.part("query"))
        self.key_and_value = Linear(weights.part("key"), weights.part("value"))
        self.from_head, self.from_tail = Linear(weights.part("from_head")), Linear(weights.part("from_tail"))
        self.u, self.v = (weights.shaped(name, n_heads, width // n_heads) for name in ("u", "v"))

    def __call__(self, chars: FloatArray, words: FloatArray, lattice: Lattice) -> FloatArray:
        """chars: *Shape: [N, char_width]*; words: *Shape: [W, word_width]*. Returns *Shape: [N, width]*

        A character without words gets zeros.
        """
        fused = np.zeros((len(chars), self.u.size), np.float32)
        if not len(words):
            return fused
        pairs = Covers.of(lattice)
        shape = -1, *self.u.shape
        key, value = (part.reshape(shape) for part in np.split(self.key_and_value(words), 2, axis=1))
        weights = self._scores(self.query(chars).reshape(shape), key, pairs)
        weights -= np.repeat(np.maximum.reduceat(weights, pairs.begins), pairs.counts, axis=0)
        np.exp(weights, out=weights)
        total = np.add.reduceat(weights, pairs.begins)
        weighted = value[pairs.words]
        weighted *= weights[..., None]
        sums = np.add.reduceat(weighted, pairs.begins)
        sums /= total[..., None]
        fused[pairs.characters[pairs.begins]] = sums.reshape(len(sums), -1)
        return fused

    def _scores(self, query: FloatArray, key: FloatArray, pairs: Covers) -> FloatArray:
        """`(q + u) . k + (q + v) . R`, for each pair and head. *Returns Shape: [P, h]*"""
        sin, cos = sinusoids(pairs.longest, self.u.size)
        behind, ahead = (
            made.reshape(-1, *self.u.shape)
            for made in (self.from_head(interleave(sin, cos)), self.from_tail(interleave(-sin, cos)))
        )
        relative = behind[pairs.from_head]
        relative += ahead[pairs.from_tail]
        own = key[pairs.words]
        asked = query[pairs.characters]
        scores: FloatArray = np.einsum("phd,phd->ph", asked + self.u, own)
        scores += np.einsum("phd,phd->ph", asked + self.v, relative)
        return scores


@dataclass(frozen=True)
class Covers:
    """The P pairs of a character and a word that covers it, character after character.

    characters, words: of each pair, among all of the batch. *Shape: [P]*
    from_head, from_tail: how far the character is from either end of the word. *Shape: [P]*
    begins, counts: of each character that has words, its first pair, and how many it has.
    longest: length of the longest word.
    """

    characters: IntArray
    words: IntArray
    from_head: IntArray
    from_tail: IntArray
    begins: IntArray
    counts: IntArray
    longest: int

    @classmethod
    def of(cls, lattice: Lattice) -> Covers:
        """lattice: With a word, at least."""
        sizes = lattice.tails - lattice.heads + 1
        first = np.repeat(starts(lattice.lengths), lattice.counts) + lattice.heads
        characters, words = ranges(first, sizes), np.repeat(np.arange(len(sizes)), sizes)
        from_head = ranges(np.zeros_like(sizes), sizes)
        order = np.argsort(characters, kind="stable")
        characters, words, from_head = characters[order], words[order], from_head[order]
        begins = np.flatnonzero(np.diff(characters, prepend=-1))
        counts = np.diff(begins, append=len(characters))
        return cls(characters, words, from_head, sizes[words] - 1 - from_head, begins, counts, int(sizes.max()))
