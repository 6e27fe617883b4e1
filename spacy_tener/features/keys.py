"""Forms of strings, their keys (64-bit hashes of strings and pairs of strings), and the rows of keys in tables.

The forms are simplified characters of traditional ones, and half-width letters of full-width ones, one for one. The
simplified characters are those of OpenCC's tables (https://github.com/BYVoid/OpenCC, Apache-2.0), written by
`scripts/make_simplified.py`. All others are Unicode's NFKC, where one character stays one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from spacy.strings import StringStore, get_string_id

from ..types import BoolArray, IntArray

_PAIRS = Path(__file__).parent / "simplified.txt"
_NORMALISED = (range(0x80, 0x3400), range(0xA000, 0xAC00), range(0xF900, 0x20000), range(0x2F800, 0x2FA20))
"""Code points among which are all that NFKC changes to one other. Not ideographs and Hangul, which are many."""


def simplify(text: str) -> str:
    """Return a text with the form of each character."""
    return text if text.isascii() else text.translate(_form_of_code())


def simplify_codes(codes: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the form of each code point. *Shape:* (characters,)"""
    # Code points behind the table read its last entry, which is 0; sums wrap around.
    simplified: NDArray[np.uint32] = codes + _differences().take(codes, mode="clip")
    return simplified


@lru_cache(maxsize=1)
def _form_of_code() -> dict[int, str]:
    """Return the form of each code point that has another one."""
    simplified = {line[0]: line[1] for line in _PAIRS.read_text(encoding="utf8").split()}
    forms = {ord(character): form for character, form in simplified.items()}
    for code in chain.from_iterable(_NORMALISED):
        form = unicodedata.normalize("NFKC", chr(code))
        if len(form) == 1 and ord(form) != code:
            forms[code] = simplified.get(form, form)
    return forms


@lru_cache(maxsize=1)
def _differences() -> NDArray[np.uint32]:
    """Return the number that makes each code point its form."""
    form_of_code = _form_of_code()
    differences = np.zeros(max(form_of_code) + 2, dtype=np.uint32)
    codes = np.array(list(form_of_code), dtype=np.uint32)
    differences[codes] = np.array(list(map(ord, form_of_code.values())), dtype=np.uint32) - codes
    return differences


Keys = NDArray[np.uint64]

END_MARK = "<eos>"
"""Second half of a text's last bigram, as in the released code of the papers."""

_DIGIT = re.compile(r"\d")
_MAX_STRINGS = 50_000
"""Strings that a `KeyCache` holds before it is emptied."""
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)


def search(haystack: Keys, needles: Keys) -> tuple[IntArray, BoolArray]:
    """Return the index of each needle in the sorted haystack, and a mask of those found. *Shape:* (needles,) each"""
    if haystack.size == 0:
        return np.zeros(needles.size, dtype=np.int64), np.zeros(needles.size, dtype=bool)
    indices = np.searchsorted(haystack, needles)
    np.minimum(indices, haystack.size - 1, out=indices)
    return indices, haystack[indices] == needles


def mix(first: Keys, second: Keys) -> Keys:
    """Hash two keys to one. *Shape:* (pairs,) each"""
    # Odd multiplier and shifted xor: not symmetric, so "ab" and "ba" differ. Overflow is intended.
    mixed = (first ^ (first >> _SHIFT)) * _MULTIPLIER + second
    return (mixed ^ (mixed >> _SHIFT)) * _MULTIPLIER


class StringTable:
    """Rows of an embedding table by key. Row 0 is for unknown strings; every other row is one key's, in the order in
    which they were added."""

    def __init__(self, keys: Keys | None = None) -> None:
        self._sorted_keys = np.zeros(0, dtype=np.uint64)
        self._rows = np.zeros(0, dtype=np.int64)
        if keys is not None:
            self.add(keys)

    def __len__(self) -> int:
        """Return the number of rows, including row 0."""
        return self._rows.size + 1

    @property
    def keys(self) -> Keys:
        """The keys in the order of their rows, from row 1."""
        return self._sorted_keys[np.argsort(self._rows)]

    def rows(self, keys: Keys) -> IntArray:
        """Return the row of each key, 0 for unknown ones. *Shape:* (keys,)"""
        indices, found = search(self._sorted_keys, keys)
        rows = np.zeros(keys.size, dtype=np.int64)
        rows[found] = self._rows[indices[found]]
        return rows

    def add(self, keys: Keys) -> int:
        """Add a row for every new key, in the order of first appearance. Return the number of new keys."""
        _, found = search(self._sorted_keys, keys)
        new_keys, first = np.unique(keys[~found], return_index=True)
        new_rows = np.empty(new_keys.size, dtype=np.int64)
        new_rows[np.argsort(first)] = np.arange(len(self), len(self) + new_keys.size)
        joined = np.concatenate((self._sorted_keys, new_keys))
        order = np.argsort(joined, kind="stable")
        self._sorted_keys = joined[order]
        self._rows = np.concatenate((self._rows, new_rows))[order]
        return int(new_keys.size)


@dataclass(frozen=True)
class Normaliser:
    """Normalisation of a token's text.

    digits (bool): Whether digits of any script are replaced by `0`.
    lower (bool): Whether letters are converted to lower case.
    simplify (bool): Whether each character is replaced by its form: simplified, and half-width.
    """

    digits: bool = True
    lower: bool = False
    simplify: bool = False

    def __call__(self, text: str) -> str:
        if self.simplify:
            text = simplify(text)
        if self.lower:
            text = text.lower()
        return _DIGIT.sub("0", text) if self.digits else text

    def key(self, text: str) -> int:
        """Return the key of a string: that of its normalised form in spaCy's StringStore."""
        return get_string_id(self(text))


class KeyCache:
    """A map from the ORTH hashes of tokens to the keys of their normalised strings. Threads may share it.

    A distinct string is normalised once. The cache is emptied when it would hold more than 50,000.
    """

    def __init__(self, normaliser: Normaliser) -> None:
        self.normaliser = normaliser
        self._key_of: dict[int, int] = {}

    def __call__(self, orths: Keys, stores: Sequence[StringStore]) -> Keys:
        """Return the key of each string.

        orths (Keys): The hashes of the strings, usually those of a batch's distinct strings. *Shape:* (strings,)
        stores (Sequence[StringStore]): String stores, one of which has the string.
        RETURNS (Keys): *Shape:* (strings,)
        """
        if not (self.normaliser.digits or self.normaliser.lower or self.normaliser.simplify):
            return orths
        wanted = orths.tolist()
        key_of = self._key_of  # another thread may replace it
        missing = [orth for orth in wanted if orth not in key_of]
        if len(key_of) + len(missing) > _MAX_STRINGS:
            key_of, missing = {}, wanted
            self._key_of = key_of
        key_of.update(zip(missing, map(self.normaliser.key, texts_of(missing, stores)), strict=True))
        return np.fromiter(map(key_of.__getitem__, wanted), dtype=np.uint64, count=len(wanted))


def texts_of(orths: Sequence[Any], stores: Sequence[StringStore]) -> list[str]:
    """Return the strings of hashes. A hash means the same string in every store that has it."""
    if len(stores) == 1:
        return list(map(stores[0].__getitem__, orths))
    return [next(store[orth] for store in stores if orth in store) for orth in orths]


def pair_keys(keys: Keys, lengths: IntArray, end_key: int) -> Keys:
    """Return the key of each bigram: of each token and the next one, or the end mark after the last token of a text.

    keys (Keys): Of the tokens of several texts, joined. *Shape:* (tokens,)
    lengths (IntArray): Tokens of each text. *Shape:* (texts,)
    RETURNS (Keys): *Shape:* (tokens,)
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
    halves = [_halves(text) for text in strings]
    first, second = (unigram_key_array((pair[index] for pair in halves), normaliser) for index in (0, 1))
    return mix(first, second)


def _halves(bigram: str) -> tuple[str, str]:
    if bigram.endswith(END_MARK) and len(bigram) == len(END_MARK) + 1:
        return bigram[0], END_MARK
    return (bigram[0], bigram[1]) if len(bigram) == 2 else (bigram, "")
