"""Words of lists in a text that a segmenter has divided: they stand, whatever it found in their place."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
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


def with_user_words(
    text: JoinedText, division: Division, lists: Sequence[tuple[WordList, IntArray]]
) -> tuple[Division, Division]:
    """A division in which each list's words are whole, the longest first from the left; a later list's over an
    earlier's: with their tags, and with those that the segmenter gives.

    Of a word that is cut, what is left becomes a word, or two, with its part of speech. A word without a tag has that
    of its last character's word.

    lists: each with the places of the Docs that it is for.
    """
    begins = np.zeros(len(text) + 1, dtype=bool)
    begins[0] = begins[np.cumsum(division.lengths)] = True
    read = np.repeat(division.tags, division.lengths)
    tags, untold = read.copy(), read.copy()
    for words, places in lists:
        finder = _FINDERS.get(words) or _FINDERS.setdefault(words, _Finder(words))
        for start, stop in _stretches(places, text.stops):
            firsts, ends, keys = finder.find(text, start, stop)
            sizes = ends - firsts
            inside = np.arange(sizes.sum()) + np.repeat(firsts - (np.cumsum(sizes) - sizes), sizes)
            begins[inside] = False
            begins[firsts] = begins[ends] = True
            tags[inside] = np.repeat(np.where(keys == 0, tags[ends - 1], keys), sizes)
            untold[inside] = np.repeat(read[ends - 1], sizes)
    starts = np.flatnonzero(begins[:-1])
    lengths = np.diff(starts, append=len(text))
    return Division(lengths, tags[starts]), Division(lengths, untold[starts])


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
        self._words = [word for word, _ in shown]
        self._automaton = AhoCorasick(self._words, MatchKind.LeftmostLongest, store_patterns=False)

    @cached_property
    def _of_all(self) -> AhoCorasick:
        return AhoCorasick(self._words, store_patterns=False)

    def find(self, text: JoinedText, start: int, stop: int) -> tuple[IntArray, IntArray, Keys]:
        """Begin and end of each word between two places, and the hash of its tag. *Shape* [W] each"""
        joined = text.slice(start, stop)
        table, whole = _table(self._automaton.find_matches_as_indexes(joined), text.codes, start)
        if not whole.all():
            # What is no word here has hidden those that overlap with it.
            table, whole = _table(self._of_all.find_matches_as_indexes(joined, overlapping=True), text.codes, start)
            table = _longest_from_left(table[whole])
        indices, firsts, ends = table.T
        return firsts, ends, self._keys[indices]


_FINDERS: WeakKeyDictionary[WordList, _Finder] = WeakKeyDictionary()


def _table(found: list[tuple[int, int, int]], codes: CodePoints, start: int) -> tuple[IntArray, BoolArray]:
    """Index, begin and end of each match, *Shape* [W, 3], and whether it is a word there."""
    table = np.fromiter(chain.from_iterable(found), dtype=np.int64, count=3 * len(found)).reshape(-1, 3)
    table[:, 1:] += start
    return table, ~_cuts_latin(codes, table[:, 1]) & ~_cuts_latin(codes, table[:, 2])


def _longest_from_left(table: IntArray) -> IntArray:
    kept, stop = [], 0
    for row, (_, first, end) in enumerate((ordered := table[np.lexsort((-table[:, 2], table[:, 1]))]).tolist()):
        if first >= stop:
            kept.append(row)
            stop = end
    return ordered[kept]


def _cuts_latin(codes: CodePoints, places: IntArray) -> BoolArray:
    """Whether both sides of a place are Latin letters or digits: 'AI' is not a word of 'MAIL'."""
    cut: BoolArray = _is_latin(codes[places]) & (places > 0) & _is_latin(codes[places - 1])
    return cut


def _is_latin(codes: CodePoints) -> BoolArray:
    lower = codes | 0x20
    found: BoolArray = ((lower >= 0x61) & (lower <= 0x7A)) | ((codes >= 0x30) & (codes <= 0x39))
    return found
