"""String tables: which row of an embedding table a string has."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..types import IntArray
from .keys import KeyMap, Keys
from .normalise import Normaliser

END_MARK = "<eos>"
"""Stands behind the last token of a text in its last bigram, as in the released code of the papers."""

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)


class StringTable:
    """Rows by key. Row 0 is the unknown string; every other row belongs to one key, in the order of their arrival.

    Keys are 64-bit hashes: of a string (`Normaliser.key`), or of a pair of neighbours (`pair_keys`).
    """

    def __init__(self, keys: Keys | None = None) -> None:
        self._rows = KeyMap()
        if keys is not None:
            self.add(keys)

    def __len__(self) -> int:
        """Number of rows, with the unknown row."""
        return len(self._rows) + 1

    @property
    def keys(self) -> Keys:
        """The keys in the order of their rows, from row 1."""
        ordered = np.zeros(len(self._rows), dtype=np.uint64)
        for keys, rows in self._rows.runs:
            ordered[rows - np.uint64(1)] = keys
        return ordered

    def rows(self, keys: Keys) -> IntArray:
        """*Shape* [N] -> [N], 0 for a key that has no row."""
        rows, known = self._rows.get(keys)
        return np.where(known, rows, np.uint64(0)).astype(np.int64)

    def add(self, keys: Keys) -> int:
        """Give a row to every key that has none yet, in the order of first appearance. Returns how many were new."""
        _, known = self._rows.get(keys)
        distinct, first = np.unique(keys[~known], return_index=True)
        if distinct.size:
            rows = np.empty(distinct.size, dtype=np.uint64)
            rows[np.argsort(first)] = np.arange(len(self), len(self) + distinct.size, dtype=np.uint64)
            self._rows = self._rows.joined(distinct, rows)
        return int(distinct.size)


def pair_keys(keys: Keys, lengths: IntArray, end_key: int) -> Keys:
    """The key of each token together with the next one's; the last token of each text is paired with the end mark.

    *Shape* keys: [N], of several texts joined; lengths: [texts]; result: [N]
    """
    following = np.empty_like(keys)
    following[:-1] = keys[1:]
    ends = np.cumsum(lengths) - 1
    following[ends[lengths > 0]] = end_key
    return _mix(keys, following)


def _mix(first: Keys, second: Keys) -> Keys:
    # Odd multiplier and shifted xor: not symmetric, so "ab" and "ba" differ; wraps around by intent.
    mixed = (first ^ (first >> _SHIFT)) * _MULTIPLIER + second
    return (mixed ^ (mixed >> _SHIFT)) * _MULTIPLIER


def unigram_key_array(strings: Iterable[str], normaliser: Normaliser) -> Keys:
    """Keys of the strings of a vectors file, as the embedder will look them up."""
    return np.fromiter((normaliser.key(text) for text in strings), dtype=np.uint64)


def bigram_key_array(strings: Iterable[str], normaliser: Normaliser) -> Keys:
    """Keys of the bigrams of a vectors file: two characters, or one character and `END_MARK`.

    A string of any other length is no bigram: it gets the key of a pair that no text contains.
    """
    pairs = [_halves(text) for text in strings]
    first = unigram_key_array((pair[0] for pair in pairs), normaliser)
    second = unigram_key_array((pair[1] for pair in pairs), normaliser)
    return _mix(first, second)


def _halves(bigram: str) -> tuple[str, str]:
    if bigram.endswith(END_MARK) and len(bigram) == len(END_MARK) + 1:
        return bigram[0], END_MARK
    return (bigram[0], bigram[1]) if len(bigram) == 2 else (bigram, "")
