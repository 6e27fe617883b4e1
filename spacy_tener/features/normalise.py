"""How a token's text becomes the string that an embedding table knows it by."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from spacy.attrs import ORTH
from spacy.strings import StringStore, get_string_id
from spacy.tokens import Doc

Keys = NDArray[np.uint64]

_DECIMAL = re.compile(r"\d")
_CACHE_LIMIT = 1_000_000
_NOTHING: tuple[Keys, Keys] = (np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.uint64))


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
    search. The cache is bounded: past a million distinct strings it starts again. Threads may share it.
    """

    def __init__(self, normaliser: Normaliser) -> None:
        self.normaliser = normaliser
        # Hashes in order, and their keys: one attribute, replaced at once, so that no thread sees half of a change.
        self._known: tuple[Keys, Keys] = _NOTHING

    def __call__(self, orths: Keys, stores: Sequence[StringStore]) -> Keys:
        """The keys of tokens whose strings are in one of the stores. *Shape* [N] -> [N]"""
        if not (self.normaliser.digits or self.normaliser.lower):
            return orths
        known, keys = self._known
        places, found = search(known, orths)
        if not found.all():
            missing = np.unique(orths[~found])
            if known.size + missing.size > _CACHE_LIMIT:
                (known, keys), missing = _NOTHING, np.unique(orths)
            known, keys = self._known = self._joined(known, keys, missing, stores)
            places, _ = search(known, orths)
        return keys[places]

    def _joined(self, known: Keys, keys: Keys, orths: Keys, stores: Sequence[StringStore]) -> tuple[Keys, Keys]:
        texts = (next(store[orth] for store in stores if orth in store) for orth in orths.tolist())
        added = np.fromiter(map(self.normaliser.key, texts), dtype=np.uint64, count=orths.size)
        joined = np.concatenate((known, orths))
        order = np.argsort(joined, kind="stable")
        return joined[order], np.concatenate((keys, added))[order]


def token_orths(docs: Sequence[Doc]) -> tuple[Keys, list[StringStore]]:
    """The ORTH hashes of all tokens of the docs joined, and where their strings are: docs need not share a vocab.

    *Shape* [N]
    """
    stores = {id(doc.vocab): doc.vocab.strings for doc in docs}
    orths = [doc.to_array(ORTH) for doc in docs]
    return np.concatenate(orths) if orths else _NOTHING[0], list(stores.values())


def search(haystack: Keys, needles: Keys) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Where each needle stands in the sorted haystack, and whether it does."""
    if haystack.size == 0:
        return np.zeros(needles.size, dtype=np.int64), np.zeros(needles.size, dtype=bool)
    places = np.searchsorted(haystack, needles)
    np.minimum(places, haystack.size - 1, out=places)
    return places, haystack[places] == needles
