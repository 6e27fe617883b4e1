"""The lattice of a batch of sentences: the positions of the lexicon words that match in them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..types import IntArray


@dataclass(frozen=True)
class Lattice:
    """Words over the characters of a batch. The words of a batch are joined, sentence after sentence.

    One sentence of six characters, with three words over it:

        0  1  2  3  4  5      position
        重 庆 人 和 药 店     lengths = [6], counts = [3]
        重 庆                 head 0, tail 1
              人 和 药 店     head 2, tail 5
                    药 店     head 4, tail 5

    lengths (IntArray): Characters of each sentence. *Shape:* (sentences,)
    counts (IntArray): Words of each sentence; 0 is legal. *Shape:* (sentences,)
    heads (IntArray): First character of each word, as a position in its sentence. *Shape:* (words,)
    tails (IntArray): Last character of each word, inclusive. *Shape:* (words,)
    """

    lengths: IntArray
    counts: IntArray
    heads: IntArray
    tails: IntArray

    def __post_init__(self) -> None:
        if len(self.lengths) != len(self.counts):
            raise ValueError(
                "A lattice needs a number of words for each sentence: "
                f"got {len(self.counts)} counts for {len(self.lengths)} lengths."
            )
        if not self.n_words == len(self.heads) == len(self.tails):
            raise ValueError(
                "A lattice needs a head and a tail for each word: "
                f"got {len(self.heads)} heads and {len(self.tails)} tails for {self.n_words} words."
            )
        outside = (self.heads < 0) | (self.tails < self.heads) | (self.tails >= np.repeat(self.lengths, self.counts))
        if outside.any():
            word = int(outside.argmax())
            raise ValueError(
                "A word of a lattice must lie in its sentence, its head not after its tail: "
                f"word {word} goes from {self.heads[word]} to {self.tails[word]} in a sentence of "
                f"{np.repeat(self.lengths, self.counts)[word]} characters."
            )

    def check_rows(self, *, characters: int, words: int) -> None:
        """Raise unless there is a row for each character and each word."""
        for name, got, expected in [("characters", characters, self.n_characters), ("words", words, self.n_words)]:
            if got != expected:
                raise ValueError(f"There must be a row for each of the lattice's {expected} {name}; got {got} rows.")

    @property
    def n_characters(self) -> int:
        return int(self.lengths.sum())

    @property
    def n_words(self) -> int:
        return int(self.counts.sum())

    @property
    def longest(self) -> int:
        """Characters of the longest sentence."""
        return int(self.lengths.max(initial=0))
