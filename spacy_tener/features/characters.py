"""From the tokens of a batch to the characters of its distinct words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from spacy.tokens import Doc

from ..types import IntArray
from .keys import Keys
from .normalise import Normaliser, texts_of, token_orths

HALF = 32
"""Of a word longer than twice this, only so many characters at each end are read: a bound against hostile text."""


@dataclass(frozen=True)
class Spellings:
    """The characters of words, joined.

    A character's key is its code point. *Shape* keys: [C]; lengths, the number of characters of each word: [words]
    """

    keys: Keys
    lengths: IntArray


@dataclass(frozen=True)
class SpelledTokens:
    """The distinct words of a batch, spelled, and which of them each token is. *Shape* words: [tokens]"""

    spellings: Spellings
    words: IntArray


def spell(docs: Sequence[Doc], *, digits: bool) -> SpelledTokens:
    """The characters of each distinct word of the docs, once, and the word of every token of the docs joined.

    digits: Whether digits of any script are read as `0`. Case is kept.
    """
    orths, stores = token_orths(docs)
    distinct, words = np.unique(orths, return_inverse=True)
    spelled = texts_of(distinct, stores)
    lengths = _lengths(spelled)
    if lengths.max(initial=0) > 2 * HALF:
        spelled = [_ends(text) for text in spelled]
        lengths = _lengths(spelled)
    # One character for one: replacing digits keeps the lengths.
    return SpelledTokens(Spellings(code_points(Normaliser(digits=digits)("".join(spelled))), lengths), words)


def _lengths(texts: list[str]) -> IntArray:
    return np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))


def code_points(text: str) -> Keys:
    return np.frombuffer(text.encode("utf-32-le"), dtype="<u4").astype(np.uint64)


def stretches(begins: IntArray, lengths: IntArray) -> IntArray:
    """The places of several stretches, joined: begins [2, 7] and lengths [3, 1] give [2, 3, 4, 7]."""
    places: IntArray = np.arange(lengths.sum()) + np.repeat(begins - (np.cumsum(lengths) - lengths), lengths)
    return places


def _ends(word: str) -> str:
    return word if len(word) <= 2 * HALF else word[:HALF] + word[-HALF:]
