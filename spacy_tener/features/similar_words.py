"""Rows for words that are added to a trained pipeline: those of similar words in its lexicon."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..types import IntArray
from .keys import Keys, simplify
from .lexicon import Lexicon
from .word_lists import LayeredMatch, WordList, WordListEntry

_FEW = 3
"""With fewer similar words of its tag, a listed word has the rows of all words of the tag."""
_MANY = 64
"""Maximum number of similar words of a listed one."""
_UNKNOWN_ROW = np.zeros(1, dtype=np.int64)


@dataclass(frozen=True)
class SimilarWords:
    """Similar words of each distinct listed word in a batch, joined.

    sizes (IntArray): Numbers of similar words. *Shape:* (distinct words,)
    words (IntArray): Rows of the similar words. *Shape:* (similar words,)
    tags (IntArray): Row of the listed word's own tag, for each similar word. *Shape:* (similar words,)
    word_indices (IntArray): Index of the distinct word, for each listed one. *Shape:* (listed words,)
    """

    sizes: IntArray
    words: IntArray
    tags: IntArray
    word_indices: IntArray


class WordIndex:
    """The words of a lexicon that have a row, by tag and by first and last character.

    keys (Keys): Keys of the words, in the order of their rows from row 1.
    """

    def __init__(self, lexicon: Lexicon, keys: Keys) -> None:
        indices = keys.astype(np.int64)
        self._rows = {simplify(lexicon.words[index]): row for row, index in enumerate(indices.tolist(), start=1)}
        self._tags = np.concatenate((_UNKNOWN_ROW, lexicon.tags[indices]))
        self._tag_index = {name: index for index, name in enumerate(lexicon.tag_names) if name}
        self._names = lexicon.tag_names
        by_edge: dict[tuple[str, bool], list[int]] = defaultdict(list)
        for word, row in self._rows.items():
            by_edge[word[0], True].append(row)
            by_edge[word[-1], False].append(row)
        self._by_edge = by_edge

    def tag(self, word: str, entry: WordListEntry) -> str:
        """Return the tag that its list gives to a word if the lexicon has this tag, otherwise that of the lexicon."""
        if entry.tag in self._tag_index:
            return entry.tag
        return self._names[int(self._tags[self._rows.get(simplify(word), 0)])]

    def rows(self, word: str, entry: WordListEntry) -> IntArray:
        """Return the rows of words similar to a listed one.

        That is the word itself, if it has a row and its tag in the lexicon is the same. Otherwise they are words of its
        tag with the same first or last character, or all of its tag if these are few. Without any, it is row 0, that of
        unknown words.
        """
        word = simplify(word)
        if word in self._rows and self.tag(word, WordListEntry()) == self.tag(word, entry):
            return np.array([self._rows[word]])
        edges = self._by_edge.get((word[0], True), []) + self._by_edge.get((word[-1], False), [])
        similar = np.unique(np.array(edges, dtype=int))
        if entry.tag in self._tag_index:
            of_tag = self._tags == self._tag_index[entry.tag]
            similar = similar[of_tag[similar]]
            if similar.size < _FEW:
                similar = np.flatnonzero(of_tag)
        if not similar.size:
            return _UNKNOWN_ROW
        return similar[np.linspace(0, similar.size - 1, min(similar.size, _MANY)).astype(np.int64)]


def find_similar_words(
    index: WordIndex, tag_rows: dict[str, int], found: LayeredMatch, lists: Sequence[WordList]
) -> SimilarWords:
    """Return the similar words of each listed word in a match.

    tag_rows (Dict[str, int]): The row of each tag that has one.
    """
    words, word_indices = found.listed(lists)
    rows = [index.rows(word, entry) for word, entry in words]
    tags = np.array([tag_rows.get(index.tag(word, entry), 0) for word, entry in words], dtype=np.int64)
    sizes = np.array([similar.size for similar in rows], dtype=np.int64)
    return SimilarWords(
        sizes, np.concatenate([np.zeros(0, dtype=np.int64), *rows]), np.repeat(tags, sizes), word_indices
    )
