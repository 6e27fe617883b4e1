"""From the tokens of a batch to the characters of its distinct words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from spacy.strings import StringStore
from spacy.tokens import Doc

from ..types import IntArray
from .normalise import Keys, Normaliser, search, token_orths

HALF = 32
"""Of a word longer than twice this, only so many characters at each end are read: a bound against hostile text."""
_CACHE_LIMIT = 1 << 16


@dataclass(frozen=True)
class Spellings:
    """The characters of words, joined.

    A character's key is its code point. *Shape* keys: [C]; lengths, the number of characters of each word: [words]
    """

    keys: Keys
    lengths: IntArray


class SpellingCache:
    """Maps the ORTH hashes of words to their characters, case kept, digits of any script as `0` if wanted.

    A word is read once, in Python; afterwards its characters are found by a vectorised search. The cache is bounded:
    past some 65,000 words it starts again. Threads may share it.
    """

    def __init__(self, *, digits: bool) -> None:
        self._normaliser = Normaliser(digits=digits)
        # One attribute, replaced at once, so that no thread sees half of a change.
        self._known = _Known.nothing()

    def __call__(self, orths: Keys, stores: Sequence[StringStore]) -> Spellings:
        """The spellings of distinct words whose strings are in one of the stores. *Shape* orths: [words]"""
        known = self._known
        places, found = search(known.orths, orths)
        if not found.all():
            missing = orths[~found]
            if known.orths.size + missing.size > _CACHE_LIMIT:
                known, missing = _Known.nothing(), orths
            known = self._known = known.joined(missing, self._read(missing, stores))
            places, _ = search(known.orths, orths)
        return known.spellings(places)

    def _read(self, orths: Keys, stores: Sequence[StringStore]) -> Spellings:
        words = [_ends(next(store[orth] for store in stores if orth in store)) for orth in orths.tolist()]
        # One character for one: replacing digits keeps the lengths.
        text = self._normaliser("".join(words))
        keys = np.frombuffer(text.encode("utf-32-le"), dtype="<u4").astype(np.uint64)
        return Spellings(keys, np.fromiter(map(len, words), dtype=np.int64, count=len(words)))


def _ends(word: str) -> str:
    return word if len(word) <= 2 * HALF else word[:HALF] + word[-HALF:]


@dataclass(frozen=True)
class _Known:
    """What a cache holds: words by their hashes in order, each with its stretch of the characters.

    *Shape* orths, begins, lengths: [words]; characters: [C]
    """

    orths: Keys
    begins: IntArray
    lengths: IntArray
    characters: Keys

    @classmethod
    def nothing(cls) -> _Known:
        keys, places = np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.int64)
        return cls(keys, places, places, keys)

    def joined(self, orths: Keys, added: Spellings) -> _Known:
        begins = self.characters.size + np.cumsum(added.lengths) - added.lengths
        joined = np.concatenate((self.orths, orths))
        order = np.argsort(joined, kind="stable")
        return _Known(
            orths=joined[order],
            begins=np.concatenate((self.begins, begins))[order],
            lengths=np.concatenate((self.lengths, added.lengths))[order],
            characters=np.concatenate((self.characters, added.keys)),
        )

    def spellings(self, places: IntArray) -> Spellings:
        lengths = self.lengths[places]
        shifts = self.begins[places] - (np.cumsum(lengths) - lengths)
        return Spellings(self.characters[np.arange(lengths.sum()) + np.repeat(shifts, lengths)], lengths)


@dataclass(frozen=True)
class SpelledTokens:
    """The distinct words of a batch, spelled, and which of them each token is. *Shape* words: [tokens]"""

    spellings: Spellings
    words: IntArray


def spell(docs: Sequence[Doc], cache: SpellingCache) -> SpelledTokens:
    """The characters of each distinct word of the docs, once, and the word of every token of the docs joined."""
    orths, stores = token_orths(docs)
    distinct, words = np.unique(orths, return_inverse=True)
    return SpelledTokens(cache(distinct, stores), words)
