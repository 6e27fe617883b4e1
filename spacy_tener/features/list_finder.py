"""Search for the words of a list in joined texts."""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from itertools import chain

import numpy as np

from ..types import BoolArray, IntArray
from .characters import CodePoints, JoinedText
from .word_lists import WordList

_LAST_CODE = 0xFFFF
_SPACED = (range(0x0E00), range(0x1AB0, 0x1B00), range(0x1DC0, 0x2000), range(0xFE20, 0xFE30), range(0xFF10, 0xFF5B))
"""Code points of scripts that put spaces between words: those up to Thai's, full-width letters, marks on letters."""


def find_listed(words: WordList, text: JoinedText, docs: IntArray) -> IntArray:
    """Find the words of a list in some Docs of a batch, in any script, overlapping ones included, except where they cut
    a word of letters or a number.

    docs (IntArray): Indices of the Docs. *Shape:* (docs,)
    RETURNS (IntArray): First character and end of each word in the joined text, and its index in the list.
        *Shape:* (3, matches)
    """
    codes, tables = text.simplified.codes, [np.zeros((3, 0), dtype=np.int64)]
    for start, stop in _runs(docs, text.stops):
        table = words.trie.find(codes, start, stop)
        tables.append(table[:, ~_cuts_word(codes, table[:2]).any(axis=0)])
    return np.concatenate(tables, axis=1)


def _runs(docs: IntArray, stops: IntArray) -> list[tuple[int, int]]:
    """Return the begin and end of the texts of some Docs; consecutive Docs are one range."""
    first = np.flatnonzero(np.diff(docs, prepend=-2) != 1)
    last = np.append(first[1:], docs.size) - 1
    starts = np.append(0, stops[:-1] + 1)
    return list(zip(starts[docs[first]].tolist(), stops[docs[last]].tolist(), strict=True))


@lru_cache(maxsize=1)
def _classes() -> tuple[BoolArray, BoolArray, BoolArray]:
    """Return which code points are letters, marks on them, or digits, which are digits, and which are points within
    numbers.

    They are made when a list is first searched: most pipelines have none.
    """
    letters, digits, points = (np.zeros(_LAST_CODE + 1, dtype=bool) for _ in range(3))
    for code in chain.from_iterable(_SPACED):
        character = chr(code)
        letters[code] = character.isalnum() or unicodedata.category(character)[0] == "M"
        digits[code] = character.isdecimal()
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
