"""The character-word lattice: the positions of all lexicon words in a batch of sentences.

The lattice is created by `LexiconEmbed`. FLAT, FLAT-ATSSA and MECT use the positions to compute the attention between
characters and words.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..types import IntArray


@dataclass(frozen=True)
class Lattice:
    """The positions of all lexicon words in a batch of sentences.

    The words of all sentences are concatenated. For example, this is the lattice for a sentence with six characters and
    three words:

        0  1  2  3  4  5      position
        重 庆 人 和 药 店     lengths = [6], counts = [3]
        重 庆                 head 0, tail 1
              人 和 药 店     head 2, tail 5
                    药 店     head 4, tail 5

    Raises a ValueError if the arrays are inconsistent.

    lengths (IntArray): Sentence lengths in characters. *Shape:* (sentences,)
    counts (IntArray): Number of words in each sentence, which can be 0. *Shape:* (sentences,)
    heads (IntArray): Position of each word's first character in its sentence. *Shape:* (words,)
    tails (IntArray): Position of each word's last character in its sentence. *Shape:* (words,)
    """

    lengths: IntArray
    counts: IntArray
    heads: IntArray
    tails: IntArray

    def __post_init__(self) -> None:
        if len(self.lengths) != len(self.counts):
            raise ValueError(
                "A lattice needs a word count for each sentence: "
                f"got {len(self.counts)} word counts for {len(self.lengths)} sentences."
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
                "A word of a lattice must be inside its sentence, and must not end before it starts: "
                f"word {word} goes from {self.heads[word]} to {self.tails[word]} in a sentence of "
                f"{np.repeat(self.lengths, self.counts)[word]} characters."
            )

    def check_rows(self, *, characters: int, words: int) -> None:
        """Raise a ValueError if the number of embeddings differs from the number of characters or words in the lattice.

        characters (int): Number of character embeddings.
        words (int): Number of word embeddings.
        """
        for name, got, expected in [("characters", characters, self.n_characters), ("words", words, self.n_words)]:
            if got != expected:
                raise ValueError(f"The lattice has {expected} {name}, but got {got} rows of features.")

    @property
    def n_characters(self) -> int:
        return int(self.lengths.sum())

    @property
    def n_words(self) -> int:
        return int(self.counts.sum())

    @property
    def longest(self) -> int:
        """The maximum sentence length in characters."""
        return int(self.lengths.max(initial=0))
