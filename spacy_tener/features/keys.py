"""Normalization of strings, their 64-bit keys, and the embedding row of each key.

A token is mapped to an embedding row in three steps:

    string      "Ａ1"     the token's text
    normalize   "A0"      `Normaliser`: simplified characters, lower case, digits replaced by 0
    key         hash      spaCy's 64-bit hash of the string; the key of a bigram combines two hashes (`mix`)
    row         17        `StringTable`, which assigns rows in the order in which keys first occur in training

`simplify` replaces one character by one character, so that offsets stay valid: traditional by simplified characters,
and full-width by half-width letters. The simplified characters are from OpenCC's tables
(https://github.com/BYVoid/OpenCC, Apache-2.0), which `scripts/make_simplified.py` converts. All other replacements are
the cases in which Unicode's NFKC maps one character to one character.
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
# Ranges that contain all code points for which NFKC gives a single different character. They exclude ideographs and
# Hangul syllables, which NFKC does not change and which would make building the table slow.
_NORMALISED = (range(0x80, 0x3400), range(0xA000, 0xAC00), range(0xF900, 0x20000), range(0x2F800, 0x2FA20))


def simplify(text: str) -> str:
    """Return a text in simplified script with half-width letters. The number of characters stays the same."""
    return text if text.isascii() else text.translate(_form_of_code())


def simplify_codes(codes: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Apply `simplify` to an array of code points. *Shape:* (characters,)"""
    # `mode="clip"` maps all code points beyond the table to its last entry, which is 0. Negative differences rely on
    # the overflow of unsigned addition.
    simplified: NDArray[np.uint32] = codes + _differences().take(codes, mode="clip")
    return simplified


@lru_cache(maxsize=1)
def _form_of_code() -> dict[int, str]:
    """Return the replacement of each code point that `simplify` changes, as for `str.translate`."""
    simplified = {line[0]: line[1] for line in _PAIRS.read_text(encoding="utf8").split()}
    forms = {ord(character): form for character, form in simplified.items()}
    for code in chain.from_iterable(_NORMALISED):
        form = unicodedata.normalize("NFKC", chr(code))
        if len(form) == 1 and ord(form) != code:
            forms[code] = simplified.get(form, form)
    return forms


@lru_cache(maxsize=1)
def _differences() -> NDArray[np.uint32]:
    """Return the number to add to each code point to get its replacement. *Shape:* (largest changed code point + 2,)"""
    form_of_code = _form_of_code()
    differences = np.zeros(max(form_of_code) + 2, dtype=np.uint32)
    codes = np.array(list(form_of_code), dtype=np.uint32)
    differences[codes] = np.array(list(map(ord, form_of_code.values())), dtype=np.uint32) - codes
    return differences


Keys = NDArray[np.uint64]

# The second element of the bigram that begins with the last token of a text, as in the released code of the papers.
END_MARK = "<eos>"

_DIGIT = re.compile(r"\d")
# Maximum number of strings in a `KeyCache`.
_MAX_STRINGS = 50_000
# Constants of `mix`. The multiplier is 2^64 divided by
# the golden ratio, a common choice for multiplicative hashing.
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)


def search(haystack: Keys, needles: Keys) -> tuple[IntArray, BoolArray]:
    """Find values in a sorted array.

    RETURNS (tuple[IntArray, BoolArray]): The index in the haystack for each needle, and whether the needle was found.
        The index of a missing needle is valid but arbitrary. *Shape:* (needles,) each
    """
    if haystack.size == 0:
        return np.zeros(needles.size, dtype=np.int64), np.zeros(needles.size, dtype=bool)
    indices = np.searchsorted(haystack, needles)
    np.minimum(indices, haystack.size - 1, out=indices)
    return indices, haystack[indices] == needles


def mix(first: Keys, second: Keys) -> Keys:
    """Combine pairs of keys into one key for each pair. *Shape:* (pairs,) each"""
    # The function is not symmetric, so that the bigrams "ab" and "ba" get different keys. Overflow is intended.
    mixed = (first ^ (first >> _SHIFT)) * _MULTIPLIER + second
    return (mixed ^ (mixed >> _SHIFT)) * _MULTIPLIER


class StringTable:
    """A map from keys to the rows of an embedding table.

    Row 0 is the unknown row. Keys get the rows from 1 in the order in which they are added.
    """

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
        """The keys, sorted by row. The first key has row 1. *Shape:* (rows - 1,)"""
        return self._sorted_keys[np.argsort(self._rows)]

    def rows(self, keys: Keys) -> IntArray:
        """Return the row of each key, and 0 for unknown keys. *Shape:* (keys,)"""
        indices, found = search(self._sorted_keys, keys)
        rows = np.zeros(keys.size, dtype=np.int64)
        rows[found] = self._rows[indices[found]]
        return rows

    def add(self, keys: Keys) -> int:
        """Assign rows to new keys in the order in which they first occur. Return the number of new keys."""
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
    """A function that normalizes the text of a token.

    digits (bool): Replace the digits of all scripts by `0`.
    lower (bool): Convert letters to lower case.
    simplify (bool): Convert traditional characters to simplified ones, and full-width letters to half-width ones.
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
        """Return spaCy's hash of the normalized string."""
        return get_string_id(self(text))


class KeyCache:
    """A map from the ORTH hashes of tokens to the keys of their normalized strings, which computes missing keys.

    The cache saves normalizing frequent strings again in each batch. It is emptied when it exceeds 50,000 strings.
    Threads can share it.
    """

    def __init__(self, normaliser: Normaliser) -> None:
        self.normaliser = normaliser
        self._key_of: dict[int, int] = {}

    def __call__(self, orths: Keys, stores: Sequence[StringStore]) -> Keys:
        """Return the keys of strings.

        orths (Keys): The ORTH hashes of the strings, usually the distinct strings in a batch. *Shape:* (strings,)
        stores (Sequence[StringStore]): String stores. Each string must be in at least one of them.
        RETURNS (Keys): *Shape:* (strings,)
        """
        if not (self.normaliser.digits or self.normaliser.lower or self.normaliser.simplify):
            return orths
        wanted = orths.tolist()
        key_of = self._key_of  # A local reference, since another thread may replace the dictionary.
        missing = [orth for orth in wanted if orth not in key_of]
        if len(key_of) + len(missing) > _MAX_STRINGS:
            key_of, missing = {}, wanted
            self._key_of = key_of
        key_of.update(zip(missing, map(self.normaliser.key, texts_of(missing, stores)), strict=True))
        return np.fromiter(map(key_of.__getitem__, wanted), dtype=np.uint64, count=len(wanted))


def texts_of(orths: Sequence[Any], stores: Sequence[StringStore]) -> list[str]:
    """Return the strings for a list of hashes, each from the first store that contains the hash."""
    if len(stores) == 1:
        return list(map(stores[0].__getitem__, orths))
    return [next(store[orth] for store in stores if orth in store) for orth in orths]


def pair_keys(keys: Keys, lengths: IntArray, end_key: int) -> Keys:
    """Return the keys of the bigrams of each token and the next one.

    keys (Keys): The keys of the tokens in all texts, concatenated. *Shape:* (tokens,)
    lengths (IntArray): Number of tokens in each text. *Shape:* (texts,)
    end_key (int): The key that follows the last token of a text.
    RETURNS (Keys): *Shape:* (tokens,)
    """
    following = np.empty_like(keys)
    following[:-1] = keys[1:]
    ends = np.cumsum(lengths) - 1
    following[ends[lengths > 0]] = end_key
    return mix(keys, following)


def unigram_key_array(strings: Iterable[str], normaliser: Normaliser) -> Keys:
    """Return the keys of the strings in a vectors file, as `KeyCache` computes them for tokens. *Shape:* (strings,)"""
    return np.fromiter(map(normaliser.key, strings), dtype=np.uint64)


def bigram_key_array(strings: Iterable[str], normaliser: Normaliser) -> Keys:
    """Return the keys of the bigrams in a vectors file, as `pair_keys` computes them for tokens. *Shape:* (strings,)

    A bigram is two characters, or one character and `END_MARK`. Any other string gets a key that does not occur in
    texts.
    """
    halves = [_halves(text) for text in strings]
    first, second = (unigram_key_array((pair[index] for pair in halves), normaliser) for index in (0, 1))
    return mix(first, second)


def _halves(bigram: str) -> tuple[str, str]:
    if bigram.endswith(END_MARK) and len(bigram) == len(END_MARK) + 1:
        return bigram[0], END_MARK
    return (bigram[0], bigram[1]) if len(bigram) == 2 else (bigram, "")
