"""A batch of Docs as one text, with the places where tokens begin and end: what an automaton searches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from spacy.attrs import ORTH, SPACY
from spacy.tokens import Doc

from ...types import IntArray
from ..normalise import string_stores, texts_of

CodePoints = NDArray[np.uint32]

SEPARATOR = "\0"
"""Stands behind each Doc, so that nothing is found across Docs: no word of a lexicon contains it."""

_CODEC = "utf-32-le"
_CODE_POINT = np.dtype("<u4")
_NO_TOKEN = -1


@dataclass(frozen=True)
class JoinedText:
    """The texts of Docs, one after the other.

    Tokens are counted through the whole batch. A place inside a token, in white space or on a separator is -1.

    codes: the code points. *Shape: [n]*
    firsts: the place of each token's first character. *Shape: [tokens]*
    lasts: the place of each token's last character. *Shape: [tokens]*
    lengths: tokens of each Doc. *Shape: [Docs]*
    stops: the place behind each text, where its separator is. *Shape: [Docs]*
    """

    codes: CodePoints
    firsts: IntArray
    lasts: IntArray
    lengths: IntArray
    stops: IntArray

    def __len__(self) -> int:
        return int(self.codes.size)

    @cached_property
    def starting(self) -> IntArray:
        """The token that starts at a place. *Shape: [n]*"""
        return _places(self.firsts, len(self))

    @cached_property
    def ending(self) -> IntArray:
        """The token whose last character is at a place. *Shape: [n]*"""
        return _places(self.lasts, len(self))

    def slice(self, start: int, stop: int) -> str:
        return self.codes[start:stop].tobytes().decode(_CODEC)


def join_texts(docs: Sequence[Doc]) -> JoinedText:
    """Join the texts of Docs. No Python code runs per token, only per distinct string."""
    lengths = np.fromiter(map(len, docs), dtype=np.int64, count=len(docs))
    table = np.concatenate([np.zeros((0, 2), np.uint64), *(doc.to_array([ORTH, SPACY]) for doc in docs if len(doc))])
    orths, strings = np.unique(table[:, 0], return_inverse=True)
    codes, begins, sizes = _flatten(texts_of(orths, string_stores(docs)))
    # Of each token: its characters, these with the space behind it, and the separators before it.
    sizes = sizes[strings]
    widths = sizes + table[:, 1].astype(np.int64)
    separators = np.repeat(np.arange(lengths.size), lengths)
    starts = np.cumsum(widths) - widths
    place = np.arange(int(widths.sum()))
    joined = np.zeros(place.size + lengths.size, dtype=_CODE_POINT)
    joined[place + np.repeat(separators, widths)] = codes[place + np.repeat(begins[strings] - starts, widths)]
    starts += separators
    text_widths = np.bincount(separators, weights=widths, minlength=lengths.size).astype(np.int64)
    stops = np.cumsum(text_widths) + np.arange(lengths.size)
    return JoinedText(codes=joined, firsts=starts, lasts=starts + sizes - 1, lengths=lengths, stops=stops)


def _flatten(texts: list[str]) -> tuple[CodePoints, IntArray, IntArray]:
    """The code points of all strings, each with a space behind it; where each string begins, and its length."""
    codes = np.frombuffer(" ".join([*texts, ""]).encode(_CODEC), dtype=_CODE_POINT)
    sizes = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
    return codes, np.cumsum(sizes + 1) - (sizes + 1), sizes


def _places(tokens_at: IntArray, size: int) -> IntArray:
    places = np.full(size, _NO_TOKEN, dtype=np.int64)
    places[tokens_at] = np.arange(tokens_at.size)
    return places
