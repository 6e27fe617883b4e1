"""Characters of Docs as code points: of a batch's distinct words, and of all its texts joined."""

from __future__ import annotations

from collections.abc import Collection, Sequence, Sized
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from spacy.attrs import ORTH, SPACY
from spacy.tokens import Doc

from ..processes import cached_property
from ..sequences import starts
from ..types import IntArray
from .keys import Keys, Normaliser, simplify_codes, string_stores, texts_of, token_orths

CodePoints = NDArray[np.uint32]

SEPARATOR = "\0"
"""Follows each Doc in a joined text. No word of a lexicon contains it, so none is found across Docs."""
LINE_BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
"""The characters at which `str.splitlines` ends a line."""
MOST_AT_EACH_END = 32
"""Characters that are read at each end of a word longer than twice this, against hostile text."""

_CODEC = "utf-32-le"
_CODE_POINT = np.dtype("<u4")
_NO_TOKEN = -1


@dataclass(frozen=True)
class Spellings:
    """The characters of a batch's distinct words.

    keys (Keys): Code points of the characters, word after word. *Shape:* (characters,)
    lengths (IntArray): Number of characters of each word. *Shape:* (words,)
    words (IntArray): Index of the word of each token of the batch. *Shape:* (tokens,)
    """

    keys: Keys
    lengths: IntArray
    words: IntArray


def spell(docs: Sequence[Doc], normaliser: Normaliser) -> Spellings:
    """Return the characters of each distinct word of the Docs.

    normaliser (Normaliser): One that keeps the lengths of strings: it does not convert to lower case.
    """
    orths, stores = token_orths(docs)
    distinct, words = np.unique(orths, return_inverse=True)
    texts = texts_of(distinct.tolist(), stores)
    spellings = [_without_middle(text) for text in texts]
    codes = code_points(normaliser("".join(spellings)))
    return Spellings(codes.astype(np.uint64), lengths_of(spellings), words)


def _without_middle(text: str) -> str:
    n = MOST_AT_EACH_END
    return text if len(text) <= 2 * n else text[:n] + text[-n:]


def lengths_of(texts: Collection[Sized]) -> IntArray:
    """Return the length of each text. *Shape:* (texts,)"""
    return np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))


def code_points(text: str) -> CodePoints:
    """Return the code points of a text. *Shape:* (characters,)"""
    return np.frombuffer(text.encode(_CODEC), dtype=_CODE_POINT)


@dataclass(frozen=True)
class JoinedText:
    """The texts of Docs, each followed by a separator. Tokens are numbered through the whole batch.

    codes (CodePoints): Code points. *Shape:* (characters,)
    firsts (IntArray): Index of each token's first character. *Shape:* (tokens,)
    lasts (IntArray): Index of each token's last character. *Shape:* (tokens,)
    lengths (IntArray): Tokens of each Doc. *Shape:* (docs,)
    stops (IntArray): End of each text, the index of its separator. *Shape:* (docs,)
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
        """The token that starts at each character, -1 where none does. *Shape:* (characters,)"""
        return self._tokens_at(self.firsts)

    @cached_property
    def ending(self) -> IntArray:
        """The token that ends with each character, -1 where none does. *Shape:* (characters,)"""
        return self._tokens_at(self.lasts)

    def _tokens_at(self, indices: IntArray) -> IntArray:
        tokens = np.full(len(self), _NO_TOKEN, dtype=np.int64)
        tokens[indices] = np.arange(indices.size)
        return tokens

    @cached_property
    def simplified(self) -> JoinedText:
        """The texts with the form of each character, in which words are looked up."""
        return replace(self, codes=simplify_codes(self.codes))

    def slice(self, start: int, stop: int) -> str:
        """Return the text between two indices."""
        return self.codes[start:stop].tobytes().decode(_CODEC)


def join_texts(docs: Sequence[Doc]) -> JoinedText:
    """Join the texts of Docs. No Python code runs per token, only per distinct string."""
    lengths = lengths_of(docs)
    columns: list[Any] = [doc.to_array([ORTH, SPACY]) for doc in docs if len(doc)]
    table = np.concatenate([np.zeros((0, 2), np.uint64), *columns])
    orths, strings = np.unique(table[:, 0], return_inverse=True)
    texts = texts_of(orths.tolist(), string_stores(docs))
    # Each distinct string with a space behind it.
    codes, sizes = code_points(" ".join([*texts, ""])), lengths_of(texts)
    begins = starts(sizes + 1)[strings]
    # For each token: number of characters, the same with a following space, and number of separators before it.
    sizes = sizes[strings]
    widths = sizes + table[:, 1].astype(np.int64)
    separators = np.repeat(np.arange(lengths.size), lengths)
    firsts = starts(widths)
    indices = np.arange(int(widths.sum()))
    joined = np.zeros(indices.size + lengths.size, dtype=_CODE_POINT)
    joined[indices + np.repeat(separators, widths)] = codes[indices + np.repeat(begins - firsts, widths)]
    firsts += separators
    text_widths = np.bincount(separators, weights=widths, minlength=lengths.size).astype(np.int64)
    stops = np.cumsum(text_widths) + np.arange(lengths.size)
    return JoinedText(codes=joined, firsts=firsts, lasts=firsts + sizes - 1, lengths=lengths, stops=stops)
