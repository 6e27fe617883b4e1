"""Keys (64-bit hashes of strings and pairs of strings), and their rows in embedding tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from spacy.attrs import ORTH
from spacy.strings import StringStore, get_string_id
from spacy.tokens import Doc

from ..types import BoolArray, IntArray

Keys = NDArray[np.uint64]

END_MARK = "<eos>"
"""Second half of a text's last bigram, as in the released code of the papers."""

_DECIMAL = re.compile(r"\d")
_MAX_STRINGS = 1_000_000
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)


def search(haystack: Keys, needles: Keys) -> tuple[IntArray, BoolArray]:
    """Return the index of each needle in the sorted haystack, and a mask of those found. *Shape* [N] each"""
    if haystack.size == 0:
        return np.zeros(needles.size, dtype=np.int64), np.zeros(needles.size, dtype=bool)
    places = np.searchsorted(haystack, needles)
    np.minimum(places, haystack.size - 1, out=places)
    return places, haystack[places] == needles


def mix(first: Keys, second: Keys) -> Keys:
    """Hash two keys to one. *Shape* [N] each"""
    # Odd multiplier and shifted xor: not symmetric, so "ab" and "ba" differ. Overflow is intended.
    mixed = (first ^ (first >> _SHIFT)) * _MULTIPLIER + second
    return (mixed ^ (mixed >> _SHIFT)) * _MULTIPLIER


class KeyMap:
    """Immutable map from distinct keys to 64-bit numbers, which threads may share.

    Keys are kept in sorted runs, each at least twice as long as the next; runs that are not are merged. A key is thus
    moved at most once for each doubling of the map, so that adding one costs little however large the map is.
    """

    def __init__(self, runs: tuple[tuple[Keys, Keys], ...] = ()) -> None:
        self.runs = runs

    def __len__(self) -> int:
        return sum(keys.size for keys, _ in self.runs)

    def get(self, keys: Keys) -> tuple[Keys, BoolArray]:
        """Return the number of each key, any number for an unknown key, and a mask of the known ones.

        *Shape* [N] each
        """
        if not self.runs:
            return np.zeros(keys.size, dtype=np.uint64), np.zeros(keys.size, dtype=bool)
        (known, numbers), *others = self.runs
        places, found = search(known, keys)
        values = numbers[places]
        for known, numbers in others:
            missing = np.flatnonzero(~found)
            if not missing.size:
                break
            places, found[missing] = search(known, keys[missing])
            values[missing] = numbers[places]
        return values, found

    def joined(self, keys: Keys, values: Keys) -> KeyMap:
        """Return a new map with more keys, which must be distinct and not in this one."""
        if not keys.size:
            return self
        runs = [*self.runs, _sorted(keys, values)]
        while len(runs) > 1 and runs[-2][0].size < 2 * runs[-1][0].size:
            (left, numbers), (right, more) = runs.pop(-2), runs.pop()
            runs.append(_sorted(np.concatenate((left, right)), np.concatenate((numbers, more))))
        return KeyMap(tuple(runs))


def _sorted(keys: Keys, values: Keys) -> tuple[Keys, Keys]:
    # The stable sort merges sorted runs fast.
    order = np.argsort(keys, kind="stable")
    return keys[order], values[order]


class StringTable:
    """Rows of an embedding table by key. Row 0 is for unknown strings; every other row is one key's, in the order in
    which they were added."""

    def __init__(self, keys: Keys | None = None) -> None:
        self._rows = KeyMap()
        if keys is not None:
            self.add(keys)

    def __len__(self) -> int:
        """Return the number of rows, including row 0."""
        return len(self._rows) + 1

    @property
    def keys(self) -> Keys:
        """The keys in the order of their rows, from row 1."""
        ordered = np.zeros(len(self._rows), dtype=np.uint64)
        for keys, rows in self._rows.runs:
            ordered[rows - np.uint64(1)] = keys
        return ordered

    def rows(self, keys: Keys) -> IntArray:
        """Return the row of each key, 0 for unknown ones. *Shape* [N] -> [N]"""
        rows, known = self._rows.get(keys)
        return np.where(known, rows, np.uint64(0)).astype(np.int64)

    def add(self, keys: Keys) -> int:
        """Add a row for every new key, in the order of first appearance. Returns the number of new keys."""
        _, known = self._rows.get(keys)
        distinct, first = np.unique(keys[~known], return_index=True)
        if distinct.size:
            rows = np.empty(distinct.size, dtype=np.uint64)
            rows[np.argsort(first)] = np.arange(len(self), len(self) + distinct.size, dtype=np.uint64)
            self._rows = self._rows.joined(distinct, rows)
        return int(distinct.size)


@dataclass(frozen=True)
class Normaliser:
    """Normalisation of a token's text. digits: replace digits of any script by `0`. lower: convert to lower case."""

    digits: bool = True
    lower: bool = False

    def __call__(self, text: str) -> str:
        if self.lower:
            text = text.lower()
        return _DECIMAL.sub("0", text) if self.digits else text

    def key(self, text: str) -> int:
        """Return the key of a string: that of its normalised form in spaCy's StringStore."""
        return get_string_id(self(text))


class KeyCache:
    """A map from the ORTH hashes of tokens to the keys of their normalised strings.

    A distinct string is normalised once, in Python; later tokens with the same hash are looked up by a vectorised
    search. The cache is emptied when it would hold more than a million strings. Threads may share it.
    """

    def __init__(self, normaliser: Normaliser) -> None:
        self.normaliser = normaliser
        # Replaced as a whole, so that no thread sees half of a change.
        self._known = KeyMap()

    def __call__(self, orths: Keys, stores: Sequence[StringStore]) -> Keys:
        """Return the keys of tokens whose strings are in one of the stores. *Shape* [N] -> [N]"""
        if not (self.normaliser.digits or self.normaliser.lower):
            return orths
        known = self._known
        keys, found = known.get(orths)
        if found.all():
            return keys
        missing = np.unique(orths[~found])
        if len(known) + missing.size > _MAX_STRINGS:
            known, missing = KeyMap(), np.unique(orths)
        added = map(self.normaliser.key, texts_of(missing, stores))
        known = self._known = known.joined(missing, np.fromiter(added, dtype=np.uint64, count=missing.size))
        return known.get(orths)[0]


def token_orths(docs: Sequence[Doc]) -> tuple[Keys, list[StringStore]]:
    """Return the ORTH hashes of all tokens of the docs, joined, *shape* [N], and the stores of their strings: docs need
    not share a vocab."""
    orths = [doc.to_array(ORTH) for doc in docs]
    return np.concatenate(orths) if orths else np.zeros(0, dtype=np.uint64), string_stores(docs)


def string_stores(docs: Sequence[Doc]) -> list[StringStore]:
    """Return the distinct string stores of the docs, usually one."""
    return list({id(doc.vocab.strings): doc.vocab.strings for doc in docs}.values())


def texts_of(orths: Keys, stores: Sequence[StringStore]) -> list[str]:
    """Return the strings of hashes. A hash means the same string in every store that has it."""
    if len(stores) == 1:
        return list(map(stores[0].__getitem__, orths.tolist()))
    return [next(store[orth] for store in stores if orth in store) for orth in orths.tolist()]


def pair_keys(keys: Keys, lengths: IntArray, end_key: int) -> Keys:
    """Return the key of each bigram: of each token and the next one, or the end mark after the last token of a text.

    *Shape* keys: [N], of several texts joined; lengths: [texts]; result: [N]
    """
    following = np.empty_like(keys)
    following[:-1] = keys[1:]
    ends = np.cumsum(lengths) - 1
    following[ends[lengths > 0]] = end_key
    return mix(keys, following)


def unigram_key_array(strings: Iterable[str], normaliser: Normaliser) -> Keys:
    """Return the keys of a vectors file's strings, as embedders look them up."""
    return np.fromiter(map(normaliser.key, strings), dtype=np.uint64)


def bigram_key_array(strings: Iterable[str], normaliser: Normaliser) -> Keys:
    """Return the keys of the bigrams of a vectors file: two characters, or one character and `END_MARK`.

    A string of any other length gets a key that no bigram of a text has.
    """
    pairs = [_halves(text) for text in strings]
    first = unigram_key_array((pair[0] for pair in pairs), normaliser)
    second = unigram_key_array((pair[1] for pair in pairs), normaliser)
    return mix(first, second)


def _halves(bigram: str) -> tuple[str, str]:
    if bigram.endswith(END_MARK) and len(bigram) == len(END_MARK) + 1:
        return bigram[0], END_MARK
    return (bigram[0], bigram[1]) if len(bigram) == 2 else (bigram, "")
