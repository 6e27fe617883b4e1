"""Words of lists in a text that a segmenter has divided: they stand, whatever it found in their place."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from weakref import WeakKeyDictionary

import numpy as np
from ahocorasick_rs import AhoCorasick, MatchKind
from spacy.strings import get_string_id

from ...types import BoolArray, IntArray
from ..keys import Keys
from ..lexicon.lists import WordList
from ..lexicon.text import CodePoints, JoinedText
from .division import Division


def with_user_words(text: JoinedText, division: Division, lists: Sequence[tuple[WordList, IntArray]]) -> Division:
    """A division in which each list's words are whole, the longest first from the left; a later list's over an
    earlier's.

    Of a word that is cut, what is left becomes a word, or two, with its part of speech. A word without a tag has that
    of its last character's word.

    lists: each with the places of the Docs that it is for.
    """
    begins = np.zeros(len(text) + 1, dtype=bool)
    begins[0] = begins[np.cumsum(division.lengths)] = True
    tags = np.repeat(division.tags, division.lengths)
    for words, places in lists:
        finder = _FINDERS.get(words) or _FINDERS.setdefault(words, _Finder(words))
        for start, stop in _stretches(places, text.stops):
            firsts, ends, keys = finder.find(text, start, stop)
            _set_words(begins, tags, firsts, ends, np.where(keys == 0, tags[ends - 1], keys))
    starts = np.flatnonzero(begins[:-1])
    return Division(np.diff(starts, append=len(text)), tags[starts])


def _set_words(begins: BoolArray, tags: Keys, firsts: IntArray, ends: IntArray, keys: Keys) -> None:
    sizes = ends - firsts
    inside = np.arange(sizes.sum()) + np.repeat(firsts - (np.cumsum(sizes) - sizes), sizes)
    begins[inside] = False
    begins[firsts] = begins[ends] = True
    tags[inside] = np.repeat(keys, sizes)


def _stretches(places: IntArray, stops: IntArray) -> list[tuple[int, int]]:
    """Where the texts of some Docs begin and end; those that follow upon each other as one."""
    first = np.flatnonzero(np.diff(places, prepend=-2) != 1)
    last = np.append(first[1:], places.size) - 1
    starts = np.append(0, stops[:-1] + 1)
    return list(zip(starts[places[first]].tolist(), stops[places[last]].tolist(), strict=True))


class _Finder:
    """Finds the words of a list that do not overlap."""

    def __init__(self, words: WordList) -> None:
        shown = [(word, entry.tag) for word, entry in words.entries.items() if not entry.hidden]
        self._keys = np.array([get_string_id(tag) if tag else 0 for _, tag in shown], dtype=np.uint64)
        self._automaton = AhoCorasick([word for word, _ in shown], MatchKind.LeftmostLongest, store_patterns=False)

    def find(self, text: JoinedText, start: int, stop: int) -> tuple[IntArray, IntArray, Keys]:
        """Begin and end of each word between two places, and the hash of its tag. *Shape* [W] each"""
        found = self._automaton.find_matches_as_indexes(text.slice(start, stop))
        flat = np.fromiter(chain.from_iterable(found), dtype=np.int64, count=3 * len(found))
        indices, firsts, ends = flat.reshape(-1, 3).T
        firsts, ends = firsts + start, ends + start
        whole = ~_cuts_latin(text.codes, firsts) & ~_cuts_latin(text.codes, ends)
        return firsts[whole], ends[whole], self._keys[indices[whole]]


_FINDERS: WeakKeyDictionary[WordList, _Finder] = WeakKeyDictionary()


def _cuts_latin(codes: CodePoints, places: IntArray) -> BoolArray:
    """Whether both sides of a place are Latin letters or digits: 'AI' is not a word of 'MAIL'."""
    cut: BoolArray = _is_latin(codes[places]) & (places > 0) & _is_latin(codes[places - 1])
    return cut


def _is_latin(codes: CodePoints) -> BoolArray:
    lower = codes | 0x20
    found: BoolArray = ((lower >= 0x61) & (lower <= 0x7A)) | ((codes >= 0x30) & (codes <= 0x39))
    return found
