"""Embeddings for words that users add to a trained pipeline.

An added word has no trained embedding. `LexiconEmbed` uses the mean embedding of similar words instead. Similar words
have the same tag and share the first or the last character.

For example, the place names 浦东 and 首都机场 are similar to 浦东机场.
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

# If fewer similar words than this are found, all words with the same tag are used.
_FEW = 3
# Maximum number of similar words for an added word.
_MANY = 64
_UNKNOWN_ROW = np.zeros(1, dtype=np.int64)


@dataclass(frozen=True)
class SimilarWords:
    """The similar words for all added words that occur in a batch.

    sizes (IntArray): Number of similar words for each added word. *Shape:* (added words,)
    words (IntArray): Embedding rows of the similar words, concatenated for all added words. *Shape:* (similar words,)
    tags (IntArray): Embedding row of the added word's tag, repeated for each similar word. *Shape:* (similar words,)
    word_indices (IntArray): Index of the added word for each match in the batch. *Shape:* (matches,)
    """

    sizes: IntArray
    words: IntArray
    tags: IntArray
    word_indices: IntArray


class WordIndex:
    """An index to find similar words. It contains the lexicon words that have an embedding.

    lexicon (Lexicon): The lexicon.
    keys (Keys): Lexicon index of each word with an embedding, starting with embedding row 1. *Shape:* (words,)
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
        """Return an added word's tag.

        This is the tag in the word list. If the tag does not occur in the lexicon, the same word's tag in the lexicon
        is returned, or an empty string.
        """
        if entry.tag in self._tag_index:
            return entry.tag
        return self._names[int(self._tags[self._rows.get(simplify(word), 0)])]

    def rows(self, word: str, entry: WordListEntry) -> IntArray:
        """Return the embedding rows of the words that are similar to an added word. *Shape:* (similar words,)

        If the word itself has an embedding and the same tag, only its row is returned. Otherwise, similar words have
        the same tag and share the first or last character. If fewer than three words are found, all words with the tag
        are similar. If no word is found, the result is row 0, the embedding for unknown words.
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
        # Limit the number of similar words by selecting rows at equal distances.
        return similar[np.linspace(0, similar.size - 1, min(similar.size, _MANY)).astype(np.int64)]


def find_similar_words(
    index: WordIndex, tag_rows: dict[str, int], found: LayeredMatch, lists: Sequence[WordList]
) -> SimilarWords:
    """Return similar words for all added words that occur in a batch.

    index (WordIndex): The words with an embedding.
    tag_rows (dict[str, int]): The embedding row of each tag that occurred in training.
    found (LayeredMatch): The matches of lexicon words and list words in the batch.
    lists (Sequence[WordList]): The word lists that contain the added words.
    """
    words, word_indices = found.listed(lists)
    rows = [index.rows(word, entry) for word, entry in words]
    tags = np.array([tag_rows.get(index.tag(word, entry), 0) for word, entry in words], dtype=np.int64)
    sizes = np.array([similar.size for similar in rows], dtype=np.int64)
    return SimilarWords(
        sizes, np.concatenate([np.zeros(0, dtype=np.int64), *rows]), np.repeat(tags, sizes), word_indices
    )
