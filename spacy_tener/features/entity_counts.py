"""Counts of how often a gazetteer's words were entities in training, without the occurrence in question, whose label
would leak."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..types import IntArray
from .characters import JoinedText
from .keys import Keys, mix, search

UNSEEN, NEVER, SELDOM, OFTEN, ALWAYS = range(5)
"""Share of a word's occurrences that are entities of its most frequent label: unknown; 0; up to 0.5; up to 0.9; above
0.9."""
_SHARES = np.array([0.5, 0.9])
_CONTEXT = 6


@dataclass(frozen=True)
class EntityCounts:
    """Occurrences of words in training: in column 0 those that are no entity, in the others those of each label.

    words: keys, sorted. *Shape: [W]*; counts: *Shape: [W, labels + 1]*
    places: keys of words in context (`place_keys`), sorted. *Shape: [P]*; place_counts: *Shape: [P, labels + 1]*
    """

    words: Keys
    counts: IntArray
    places: Keys
    place_counts: IntArray

    @classmethod
    def of(cls, words: Keys, places: Keys, columns: IntArray, n_labels: int) -> EntityCounts:
        """Count occurrences. columns: for each, 0 for no entity, else 1 + the index of its label."""
        return cls(*_count(words, columns, n_labels), *_count(places, columns, n_labels))

    def judge(self, words: Keys, places: Keys) -> tuple[IntArray, IntArray]:
        """Return how often each word is an entity, from `UNSEEN` to `ALWAYS`, and 1 + the index of its most frequent
        label, 0 for none. Occurrences of the word in the same context are not counted. *Shape* [n] each"""
        counts = _look_up(self.words, self.counts, words) - _look_up(self.places, self.place_counts, places)
        # Without labels, a column of zeros for one.
        total, entities = counts.sum(axis=1), np.pad(counts[:, 1:], ((0, 0), (0, int(counts.shape[1] == 1))))
        best, most = entities.argmax(axis=1), entities.max(axis=1)
        level = SELDOM + np.searchsorted(_SHARES, most / np.maximum(total, 1))
        level = np.where(total < 1, UNSEEN, np.where(most < 1, NEVER, level))
        return level, np.where(level >= SELDOM, best + 1, 0)


def _count(keys: Keys, columns: IntArray, n_labels: int) -> tuple[Keys, IntArray]:
    distinct, which = np.unique(keys, return_inverse=True)
    counts = np.zeros((distinct.size, n_labels + 1), dtype=np.int64)
    np.add.at(counts, (which, columns), 1)
    return distinct, counts


def _look_up(known: Keys, counts: IntArray, keys: Keys) -> IntArray:
    places, found = search(known, keys)
    rows = np.zeros((keys.size, counts.shape[1]), dtype=np.int64)
    rows[found] = counts[places[found]]
    return rows


def place_keys(text: JoinedText, words: Keys, docs: IntArray, firsts: IntArray, lasts: IntArray) -> Keys:
    """Return a key for each occurrence of a word: of the word and the six characters on each side of it in its Doc.

    *Shape* [W] each; firsts, lasts: indices of the first and last character in the joined text
    """
    begins = np.append(0, text.stops[:-1] + 1)[docs]
    ends = text.stops[docs]
    keys = words.copy()
    for offset in range(1, _CONTEXT + 1):
        for places, inside in ((firsts - offset, firsts - offset >= begins), (lasts + offset, lasts + offset < ends)):
            codes = np.where(inside, text.codes[np.clip(places, 0, len(text) - 1)], 0).astype(np.uint64)
            keys = mix(keys, codes)
    return keys
