"""Normalize strings, hash them to 64-bit keys, and map keys to embedding rows.

    string      "Ａ1"     the text of a token
    normalize   "A0"      `Normalizer`: simplified characters, half-width letters, digits replaced by 0
    hash        key       spaCy's 64-bit hash of the string. The key of a bigram combines two hashes (`mix`)
    row         17        `StringTable`: index in the embedding table, in the order in which keys are added

`simplify` converts traditional to simplified characters, and full-width to half-width letters. Each character is
replaced by a single character, so that character offsets do not change. The simplified characters are from OpenCC
(https://github.com/BYVoid/OpenCC, Apache-2.0), converted by `scripts/make_simplified.py`. All other replacements are
from the Unicode normalization form NFKC.
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
# Code points that NFKC can replace by a single other character. Ideographs and Hangul syllables are excluded: NFKC does
# not change them, and normalizing them would take long.
_NORMALISED = (range(0x80, 0x3400), range(0xA000, 0xAC00), range(0xF900, 0x20000), range(0x2F800, 0x2FA20))


def simplify(text: str) -> str:
    """Convert a text to simplified Chinese characters and half-width letters. The text length stays the same."""
    return text if text.isascii() else text.translate(_form_of_code())


def compare_key(word: str) -> str:
    """Return a string that is equal for all spellings of a word that differ only in script, width or Unicode form.

    The Unicode form NFC has a single character for `é`. NFD has two: the letter and the accent.
    """
    return unicodedata.normalize("NFC", simplify(word))


def simplify_codes(codes: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Convert code points to simplified Chinese characters and half-width letters. *Shape:* (characters,)"""
    # The last difference is 0, so `mode="clip"` leaves larger code points unchanged. Negative differences rely on
    # unsigned overflow.
    simplified: NDArray[np.uint32] = codes + _differences().take(codes, mode="clip")
    return simplified


@lru_cache(maxsize=1)
def _form_of_code() -> dict[int, str]:
    """Return the translation table for `simplify`, in the format of `str.translate`."""
    simplified = {line[0]: line[1] for line in _PAIRS.read_text(encoding="utf8").split()}
    forms = {ord(character): form for character, form in simplified.items()}
    for code in chain.from_iterable(_NORMALISED):
        form = unicodedata.normalize("NFKC", chr(code))
        if len(form) == 1 and ord(form) != code:
            forms[code] = simplified.get(form, form)
    return forms


@lru_cache(maxsize=1)
def _differences() -> NDArray[np.uint32]:
    """Return the differences between simplified and original code points, to simplify an array by an addition.

    The index is the original code point. The last element is 0. *Shape:* (largest changed code point + 2,)
    """
    form_of_code = _form_of_code()
    differences = np.zeros(max(form_of_code) + 2, dtype=np.uint32)
    codes = np.array(list(form_of_code), dtype=np.uint32)
    differences[codes] = np.array(list(map(ord, form_of_code.values())), dtype=np.uint32) - codes
    return differences


Keys = NDArray[np.uint64]

# Second element of the bigram at the end of a text. The string is the same as in the published code of FLAT and TENER.
END_MARK = "<eos>"

_DIGIT = re.compile(r"\d")
# Maximum number of strings in a `KeyCache`.
_MAX_STRINGS = 50_000
# Constants for `mix`. The multiplier is 2^64 divided by the golden ratio, as in Fibonacci hashing.
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)


def search(haystack: Keys, needles: Keys) -> tuple[IntArray, BoolArray]:
    """Find keys in a sorted array by binary search.

    haystack (Keys): The sorted keys.
    needles (Keys): The keys to find. *Shape:* (needles,)
    RETURNS (tuple[IntArray, BoolArray]): Each needle's index in the haystack, and a mask of the needles that were
        found. A missing needle's index is arbitrary, but in range. *Shape:* (needles,) each
    """
    if haystack.size == 0:
        return np.zeros(needles.size, dtype=np.int64), np.zeros(needles.size, dtype=bool)
    indices = np.searchsorted(haystack, needles)
    np.minimum(indices, haystack.size - 1, out=indices)
    return indices, haystack[indices] == needles


def mix(first: Keys, second: Keys) -> Keys:
    """Combine the hashes of two strings into the hash of their bigram. *Shape:* (pairs,) each"""
    # Shifts and multiplications make the function asymmetric, so that "ab" and "ba" get different keys. Overflow is
    # intended.
    mixed = (first ^ (first >> _SHIFT)) * _MULTIPLIER + second
    return (mixed ^ (mixed >> _SHIFT)) * _MULTIPLIER


class StringTable:
    """A mapping from keys (64-bit hashes of strings) to embedding rows.

    Row 0 is the embedding for unknown keys. New keys get the next row, starting with row 1.
    """

    def __init__(self, keys: Keys | None = None) -> None:
        self._sorted_keys = np.zeros(0, dtype=np.uint64)
        self._rows = np.zeros(0, dtype=np.int64)
        if keys is not None:
            self.add(keys)

    def __len__(self) -> int:
        """Return the number of embedding rows, including row 0."""
        return self._rows.size + 1

    @property
    def keys(self) -> Keys:
        """The keys, ordered by row, starting with row 1. *Shape:* (rows - 1,)"""
        return self._sorted_keys[np.argsort(self._rows)]

    def rows(self, keys: Keys) -> IntArray:
        """Return each key's embedding row, or 0 for unknown keys. *Shape:* (keys,)"""
        indices, found = search(self._sorted_keys, keys)
        rows = np.zeros(keys.size, dtype=np.int64)
        rows[found] = self._rows[indices[found]]
        return rows

    def add(self, keys: Keys) -> int:
        """Add keys that are not in the table, in the order of first occurrence. Return the number of added keys."""
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
class Normalizer:
    """A function that normalizes strings.

    digits (bool): Whether to replace digits by `0`, in all scripts.
    lower (bool): Whether to convert letters to lower case.
    simplify (bool): Whether to convert traditional to simplified characters, and full-width to half-width letters.
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
        """Return spaCy's 64-bit hash of the normalized string."""
        return get_string_id(self(text))


class KeyCache:
    """A cache that maps a token's ORTH hash to the hash of its normalized string.

    Strings are normalized when they first occur. The cache is cleared when it exceeds 50,000 strings. Threads can share
    a cache.
    """

    def __init__(self, normalizer: Normalizer) -> None:
        self.normalizer = normalizer
        self._key_of: dict[int, int] = {}

    def __call__(self, orths: Keys, stores: Sequence[StringStore]) -> Keys:
        """Return the hashes of normalized strings.

        orths (Keys): The ORTH hashes of the strings. *Shape:* (strings,)
        stores (Sequence[StringStore]): StringStores that together contain all strings.
        RETURNS (Keys): The hashes. *Shape:* (strings,)
        """
        if not (self.normalizer.digits or self.normalizer.lower or self.normalizer.simplify):
            return orths
        wanted = orths.tolist()
        key_of = self._key_of  # keep a reference: another thread may clear the cache
        missing = [orth for orth in wanted if orth not in key_of]
        if len(key_of) + len(missing) > _MAX_STRINGS:
            key_of, missing = {}, wanted
            self._key_of = key_of
        key_of.update(zip(missing, map(self.normalizer.key, texts_of(missing, stores)), strict=True))
        return np.fromiter(map(key_of.__getitem__, wanted), dtype=np.uint64, count=len(wanted))


def texts_of(orths: Sequence[Any], stores: Sequence[StringStore]) -> list[str]:
    """Return the string for each hash, from the first StringStore that contains the hash."""
    if len(stores) == 1:
        return list(map(stores[0].__getitem__, orths))
    return [next(store[orth] for store in stores if orth in store) for orth in orths]


def pair_keys(keys: Keys, lengths: IntArray, end_key: int) -> Keys:
    """Return the hash of the bigram that starts with each token.

    keys (Keys): Token hashes in all texts, concatenated. *Shape:* (tokens,)
    lengths (IntArray): Text lengths in tokens. *Shape:* (texts,)
    end_key (int): The hash that follows the last token of each text.
    RETURNS (Keys): The bigram hashes. *Shape:* (tokens,)
    """
    following = np.empty_like(keys)
    following[:-1] = keys[1:]
    ends = np.cumsum(lengths) - 1
    following[ends[lengths > 0]] = end_key
    return mix(keys, following)


def unigram_key_array(strings: Iterable[str], normalizer: Normalizer) -> Keys:
    """Return the hash of each normalized string, for the strings of pretrained vectors. *Shape:* (strings,)"""
    return np.fromiter(map(normalizer.key, strings), dtype=np.uint64)


def bigram_key_array(strings: Iterable[str], normalizer: Normalizer) -> Keys:
    """Return the hash of each bigram in the vocabulary of pretrained vectors. *Shape:* (strings,)

    A bigram is two characters, or one character followed by `END_MARK`. Any other string gets a hash that never
    occurs in a text (see `pair_keys`).
    """
    halves = [_halves(text) for text in strings]
    first, second = (unigram_key_array((pair[index] for pair in halves), normalizer) for index in (0, 1))
    return mix(first, second)


def _halves(bigram: str) -> tuple[str, str]:
    if bigram.endswith(END_MARK) and len(bigram) == len(END_MARK) + 1:
        return bigram[0], END_MARK
    return (bigram[0], bigram[1]) if len(bigram) == 2 else (bigram, "")
