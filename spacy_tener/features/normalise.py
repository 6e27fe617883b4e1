"""How a token's text becomes the string that an embedding table knows it by."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from spacy.strings import StringStore, get_string_id

Keys = NDArray[np.uint64]

_DECIMAL = re.compile(r"\d")
_CACHE_LIMIT = 1_000_000


@dataclass(frozen=True)
class Normaliser:
    """Digits of any script become `0`, letters lower case: each as an option."""

    digits: bool = True
    lower: bool = False

    def __call__(self, text: str) -> str:
        if self.lower:
            text = text.lower()
        return _DECIMAL.sub("0", text) if self.digits else text

    def key(self, text: str) -> int:
        """The key of a string: what spaCy's StringStore has for its normalised form."""
        return get_string_id(self(text))


class KeyCache:
    """Maps the ORTH hashes of tokens to the keys of their normalised strings.

    A distinct string is normalised once, in Python; every later token with the same hash is found by a vectorised
    search. The cache is bounded: past a million distinct strings it starts again.
    """

    def __init__(self, normaliser: Normaliser) -> None:
        self.normaliser = normaliser
        self._clear()

    def _clear(self) -> None:
        self._orths: Keys = np.zeros(0, dtype=np.uint64)
        self._keys: Keys = np.zeros(0, dtype=np.uint64)

    def __call__(self, orths: Keys, strings: StringStore) -> Keys:
        """*Shape* [N] -> [N]"""
        if not (self.normaliser.digits or self.normaliser.lower):
            return orths
        places, known = search(self._orths, orths)
        if not known.all():
            missing = np.unique(orths[~known])
            if self._orths.size + missing.size > _CACHE_LIMIT:
                self._clear()
                missing = np.unique(orths)
            self._learn(missing, strings)
            places, _ = search(self._orths, orths)
        return self._keys[places]

    def _learn(self, orths: Keys, strings: StringStore) -> None:
        keys = np.fromiter(
            (self.normaliser.key(strings[int(orth)]) for orth in orths), dtype=np.uint64, count=orths.size
        )
        joined = np.concatenate((self._orths, orths))
        order = np.argsort(joined, kind="stable")
        self._orths, self._keys = joined[order], np.concatenate((self._keys, keys))[order]


def search(haystack: Keys, needles: Keys) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Where each needle stands in the sorted haystack, and whether it does."""
    if haystack.size == 0:
        return np.zeros(needles.size, dtype=np.int64), np.zeros(needles.size, dtype=bool)
    places = np.searchsorted(haystack, needles)
    np.minimum(places, haystack.size - 1, out=places)
    return places, haystack[places] == needles
