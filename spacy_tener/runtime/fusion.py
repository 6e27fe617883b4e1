"""Word fusion of FLAT-ATSSA: attention of a character to the words that cover it, as in `layers.fusion`."""

from __future__ import annotations

import numpy as np

from ..batching.lattice import Covers, Lattice
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
        """Return the attention output of each character; zeros for a character without words.

        chars (FloatArray): *Shape:* (characters, character width); words: *Shape:* (words, word width). Returns
            *Shape:* (characters, width)
        """
        fused = np.zeros((len(chars), self.u.size), np.float32)
        if not len(words):
            return fused
        covers = Covers.of(lattice)
        # Pairs sorted by character, so that reduceat sums over neighbours.
        order = np.argsort(covers.characters, kind="stable")
        characters = covers.characters[order]
        begins = np.flatnonzero(np.diff(characters, prepend=-1))
        shape = -1, *self.u.shape
        key, value = (part.reshape(shape) for part in np.split(self.key_and_value(words), 2, axis=1))
        weights = self._scores(self.query(chars).reshape(shape), key, covers, order)
        weights -= np.repeat(np.maximum.reduceat(weights, begins), np.diff(begins, append=len(order)), axis=0)
        np.exp(weights, out=weights)
        total = np.add.reduceat(weights, begins)
        weighted = value[covers.words[order]]
        weighted *= weights[..., None]
        sums = np.add.reduceat(weighted, begins)
        sums /= total[..., None]
        fused[characters[begins]] = sums.reshape(len(sums), -1)
        return fused

    def _scores(self, query: FloatArray, key: FloatArray, covers: Covers, order: IntArray) -> FloatArray:
        """Return `(q + u) . k + (q + v) . R`, for each pair and head. Returns *Shape:* (pairs, heads)"""
        sin, cos = sinusoids(covers.longest, self.u.size)
        from_head, from_tail = (
            table.reshape(-1, *self.u.shape)
            for table in (self.from_head(interleave(sin, cos)), self.from_tail(interleave(-sin, cos)))
        )
        relative = from_head[covers.from_head[order]]
        relative += from_tail[covers.from_tail[order]]
        k = key[covers.words[order]]
        q = query[covers.characters[order]]
        scores: FloatArray = np.einsum("phd,phd->ph", q + self.u, k)
        scores += np.einsum("phd,phd->ph", q + self.v, relative)
        return scores
