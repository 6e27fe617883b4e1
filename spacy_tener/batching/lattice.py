"""Lattices: a batch of sentences with the words of a lexicon that were found in them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..types import IntArray
from .sequences import ranges, starts


@dataclass(frozen=True)
class Lattice:
    """Words over the characters of a batch. The words of a batch are joined, sentence after sentence.

    lengths (IntArray): characters of each sentence. *Shape:* (sentences,)
    counts (IntArray): words of each sentence; 0 is legal. *Shape:* (sentences,)
    heads (IntArray): first character of each word, as a position in its sentence. *Shape:* (words,)
    tails (IntArray): last character of each word, inclusive. *Shape:* (words,)
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


@dataclass(frozen=True)
class Covers:
    """The P pairs of a character and a word that covers it, word after word.

    characters, words (IntArray): of each pair, as indices in the batch. *Shape:* (pairs,)
    from_head, from_tail (IntArray): the character's distances `i - head` and `tail - i`, from 0. *Shape:* (pairs,)
    longest (int): length of the longest word.
    """

    characters: IntArray
    words: IntArray
    from_head: IntArray
    from_tail: IntArray
    longest: int

    @classmethod
    def of(cls, lattice: Lattice) -> Covers:
        sizes = lattice.tails - lattice.heads + 1
        first = np.repeat(starts(lattice.lengths), lattice.counts) + lattice.heads
        words = np.repeat(np.arange(len(sizes)), sizes)
        from_head = ranges(np.zeros_like(sizes), sizes)
        from_tail = sizes[words] - 1 - from_head
        return cls(ranges(first, sizes), words, from_head, from_tail, int(sizes.max(initial=0)))
