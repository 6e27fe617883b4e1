"""Search for the words of a list in joined texts, by an Aho-Corasick automaton."""

from __future__ import annotations

from functools import lru_cache
from itertools import chain
from weakref import WeakKeyDictionary

import numpy as np
from ahocorasick_rs import AhoCorasick

from ..types import BoolArray, IntArray
from .characters import CodePoints, JoinedText
from .keys import simplify
from .word_lists import WordList

_LAST_CODE = 0xFFFF
_SPACED = (range(0x0E00), range(0x1E00, 0x2000), range(0xFF10, 0xFF5B))
"""Code points of scripts that put spaces between words: those up to Thai's, and full-width letters."""


class ListFinder:
    """Finds the words of a list in any script, overlapping ones included, except where they cut a word of letters or a
    number."""

    def __init__(self, words: WordList) -> None:
        self.words = list(words.entries)
        index_of = {simplify(word): index for index, word in enumerate(self.words)}
        # In alphabetical order, in which neighbours share prefixes, it is built sooner.
        forms = sorted(index_of)
        self._order = np.array([index_of[form] for form in forms], dtype=np.int64)
        self._automaton = AhoCorasick(forms, store_patterns=False)

    @classmethod
    def of(cls, words: WordList) -> ListFinder:
        """Return the finder of a list, which is built once."""
        return _FINDERS.get(words) or _FINDERS.setdefault(words, cls(words))

    def find(self, text: JoinedText, docs: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Find the words in some Docs of a batch.

        docs (IntArray): Indices of the Docs. *Shape:* (docs,)
        RETURNS (Tuple[IntArray, IntArray, IntArray]): First character and end of each word in the joined text, and its
            index in `words`. *Shape:* (matches,) each
        """
        text, tables = text.simplified, [np.zeros((0, 3), dtype=np.int64)]
        for start, stop in _runs(docs, text.stops):
            matches = self._automaton.find_matches_as_indexes(text.slice(start, stop), overlapping=True)
            table = np.fromiter(chain.from_iterable(matches), dtype=np.int64, count=3 * len(matches)).reshape(-1, 3)
            table[:, 1:] += start
            tables.append(table[~_cuts_word(text.codes, table[:, 1:]).any(axis=1)])
        patterns, firsts, ends = np.concatenate(tables).T
        return firsts, ends, self._order[patterns]


_FINDERS: WeakKeyDictionary[WordList, ListFinder] = WeakKeyDictionary()


def _runs(docs: IntArray, stops: IntArray) -> list[tuple[int, int]]:
    """Return the begin and end of the texts of some Docs; consecutive Docs are one range."""
    first = np.flatnonzero(np.diff(docs, prepend=-2) != 1)
    last = np.append(first[1:], docs.size) - 1
    starts = np.append(0, stops[:-1] + 1)
    return list(zip(starts[docs[first]].tolist(), stops[docs[last]].tolist(), strict=True))


@lru_cache(maxsize=1)
def _classes() -> tuple[BoolArray, BoolArray, BoolArray]:
    """Return which code points are letters or digits, which are digits, and which are points within numbers.

    They are made when a list is first searched: most pipelines have none.
    """
    letters, digits, points = (np.zeros(_LAST_CODE + 1, dtype=bool) for _ in range(3))
    for code in chain.from_iterable(_SPACED):
        letters[code], digits[code] = chr(code).isalnum(), chr(code).isdecimal()
    points[[ord(mark) for mark in ".,"]] = True
    return letters, digits, points


def _cuts_word(codes: CodePoints, edges: IntArray) -> BoolArray:
    """Mark edges within a word of letters, as of 'AI' in 'MAIL', or within a number, as of '50' in '3.50'."""
    # Wider than the rule of decoding (`letter_neighbours`): digits and other scripts count, a list weighs no context.
    # Of the characters before and after an edge. The separator stands for those outside of the text.
    letters, digits, points = _classes()
    padded = np.minimum(np.concatenate(([0, 0], codes, [0])), _LAST_CODE)
    earlier, before, after, later = (padded[edges + shift] for shift in range(4))
    is_in_word = letters[before] & letters[after]
    point_before = digits[earlier] & points[before] & digits[after]
    point_after = digits[before] & points[after] & digits[later]
    mask: BoolArray = is_in_word | point_before | point_after
    return mask
