"""How a token's text becomes the string that an embedding table knows it by."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from spacy.attrs import ORTH
from spacy.strings import StringStore, get_string_id
from spacy.tokens import Doc

from .keys import KeyMap, Keys

_DECIMAL = re.compile(r"\d")
_MAX_STRINGS = 1_000_000


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
        # Replaced at once, so that no thread sees half of a change.
        self._known = KeyMap()

    def __call__(self, orths: Keys, stores: Sequence[StringStore]) -> Keys:
        """The keys of tokens whose strings are in one of the stores. *Shape* [N] -> [N]"""
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
    """The ORTH hashes of all tokens of the docs joined, and where their strings are: docs need not share a vocab.

    *Shape* [N]
    """
    orths = [doc.to_array(ORTH) for doc in docs]
    return np.concatenate(orths) if orths else np.zeros(0, dtype=np.uint64), string_stores(docs)


def string_stores(docs: Sequence[Doc]) -> list[StringStore]:
    """The distinct stores of the docs' strings: one, as a rule."""
    return list({id(doc.vocab.strings): doc.vocab.strings for doc in docs}.values())


def texts_of(orths: Keys, stores: Sequence[StringStore]) -> list[str]:
    """The strings of hashes. A hash means the same string in every store that has it."""
    if len(stores) == 1:
        return list(map(stores[0].__getitem__, orths.tolist()))
    return [next(store[orth] for store in stores if orth in store) for orth in orths.tolist()]
