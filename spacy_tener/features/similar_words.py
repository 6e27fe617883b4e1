"""Embeddings for words that users add to a trained pipeline, computed from similar words of its lexicon.

A new word has no embedding of its own. `LexiconEmbed` uses the mean embedding of trained words that have the same tag
and share the first or the last character with it. For the place 浦东机场, these are words such as 浦东 and 首都机场.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..types import IntArray
from .keys import Keys, simplify
from .lexicon import Lexicon
from .word_lists import LayeredMatch, WordList, WordListEntry

# If a word has fewer similar words with its tag, all words with the tag are used.
_FEW = 3
# Maximum number of similar words for a new word.
_MANY = 64
_UNKNOWN_ROW = np.zeros(1, dtype=np.int64)


@dataclass(frozen=True)
class SimilarWords:
    """The similar words for all words of lists that occur in a batch.

    sizes (IntArray): Number of similar words for each distinct word of a list. *Shape:* (distinct words,)
    words (IntArray): Embedding rows of the similar words, concatenated. *Shape:* (similar words,)
    tags (IntArray): For each similar word, the embedding row of the tag in the list. *Shape:* (similar words,)
    word_indices (IntArray): Index of the distinct word for each match. *Shape:* (matches of lists,)
    """

    sizes: IntArray
    words: IntArray
    tags: IntArray
    word_indices: IntArray


class WordIndex:
    """An index of the lexicon words that have an embedding, by tag and by first and last character.

    lexicon (Lexicon): The lexicon.
    keys (Keys): Keys of the words with an embedding, in the order of their rows from 1. *Shape:* (words,)
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
        """Return the tag of a word in its list, or in the lexicon if the lexicon does not contain the list's tag."""
        if entry.tag in self._tag_index:
            return entry.tag
        return self._names[int(self._tags[self._rows.get(simplify(word), 0)])]

    def rows(self, word: str, entry: WordListEntry) -> IntArray:
        """Return the embedding rows of words that are similar to a word of a list. *Shape:* (similar words,)

        The word itself is the only similar word if it has an embedding and the same tag in the lexicon. Otherwise, the
        similar words are the words with the same tag that share the first or the last character, or all words with the
        tag if there are fewer than three. If there are none, the result is row 0, the unknown word.
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
    """Return the similar words for all matches of lists.

    index (WordIndex): The words with an embedding.
    tag_rows (dict[str, int]): The embedding row of each tag in training.
    found (LayeredMatch): The matches.
    lists (Sequence[WordList]): The lists, in the order of the layers above 0.
    """
    words, word_indices = found.listed(lists)
    rows = [index.rows(word, entry) for word, entry in words]
    tags = np.array([tag_rows.get(index.tag(word, entry), 0) for word, entry in words], dtype=np.int64)
    sizes = np.array([similar.size for similar in rows], dtype=np.int64)
    return SimilarWords(
        sizes, np.concatenate([np.zeros(0, dtype=np.int64), *rows]), np.repeat(tags, sizes), word_indices
    )
