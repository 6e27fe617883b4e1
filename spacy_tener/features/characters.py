"""Characters as code points: those of the distinct strings of a batch, and those of its concatenated texts."""

from __future__ import annotations

from collections.abc import Collection, Sized
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..processes import cached_property
from ..types import IntArray
from .keys import Keys, simplify_codes

CodePoints = NDArray[np.uint32]

SEPARATOR = "\0"
"""Follows each Doc in a joined text. No word of a lexicon contains it, so none is found across Docs."""
LINE_BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
"""The characters at which `str.splitlines` ends a line."""
MAX_AT_EACH_END = 32
"""Characters that are read at each end of a word longer than twice this, against hostile text."""

_CODEC = "utf-32-le"
CODE_POINT = np.dtype("<u4")
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


def truncate_middle(text: str) -> str:
    """Return a string, or the two ends of one that is too long to be read completely."""
    n = MAX_AT_EACH_END
    return text if len(text) <= 2 * n else text[:n] + text[-n:]


def lengths_of(texts: Collection[Sized]) -> IntArray:
    """Return the length of each text. *Shape:* (texts,)"""
    return np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))


def code_points(text: str) -> CodePoints:
    """Return the code points of a text. *Shape:* (characters,)"""
    return np.frombuffer(text.encode(_CODEC), dtype=CODE_POINT)


@dataclass(frozen=True)
class JoinedText:
    """The texts of Docs, each followed by a separator. Tokens are numbered through the whole batch.

    codes (CodePoints): Code points. *Shape:* (characters,)
    first_characters (IntArray): Index of each token's first character. *Shape:* (tokens,)
    last_characters (IntArray): Index of each token's last character. *Shape:* (tokens,)
    lengths (IntArray): Tokens of each Doc. *Shape:* (docs,)
    stops (IntArray): End of each text, the index of its separator. *Shape:* (docs,)
    """

    codes: CodePoints
    first_characters: IntArray
    last_characters: IntArray
    lengths: IntArray
    stops: IntArray

    def __len__(self) -> int:
        return int(self.codes.size)

    @cached_property
    def tokens_starting(self) -> IntArray:
        """The token that starts at each character, -1 where none does. *Shape:* (characters,)"""
        return self._tokens_at(self.first_characters)

    @cached_property
    def tokens_ending(self) -> IntArray:
        """The token that ends with each character, -1 where none does. *Shape:* (characters,)"""
        return self._tokens_at(self.last_characters)

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
