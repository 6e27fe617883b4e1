"""Arrays of Unicode code points, for the texts of a batch and for its distinct strings.

`JoinedText` contains the concatenated texts of a batch, in which lexicons, word lists and the word segmenter find
words. `Spellings` contains the characters of each distinct token, the input of character and radical encoders.
`TokenBatch` in `tokens.py` creates both.
"""

from __future__ import annotations

from collections.abc import Collection, Sized
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..processes import cached_property
from ..types import IntArray
from .keys import Keys, simplify_codes

CodePoints = NDArray[np.uint32]

# The character after each text in a `JoinedText`. Lexicons refuse words that contain it, so no match can span two
# texts.
SEPARATOR = "\0"
# The characters at which `str.splitlines` ends a line.
LINE_BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
# Number of characters that are used at each end of a long token, which limits the cost of a token of a million
# characters.
MAX_AT_EACH_END = 32

_CODEC = "utf-32-le"
CODE_POINT = np.dtype("<u4")
_NO_TOKEN = -1


@dataclass(frozen=True)
class Spellings:
    """The characters, or the radicals, of the distinct tokens in a batch.

    keys (Keys): Code points of the characters of all distinct tokens, concatenated. *Shape:* (characters,)
    lengths (IntArray): Number of characters of each distinct token. *Shape:* (words,)
    words (IntArray): Index of the distinct token for each token in the batch. *Shape:* (tokens,)
    """

    keys: Keys
    lengths: IntArray
    words: IntArray


def truncate_middle(text: str) -> str:
    """Return a string without its middle part if it is longer than twice `MAX_AT_EACH_END`."""
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
    """The concatenated texts of a batch, with a separator after each text.

    All indices of characters and tokens refer to the whole batch.

    codes (CodePoints): Code points of the texts and separators. *Shape:* (characters,)
    first_characters (IntArray): Index of each token's first character. *Shape:* (tokens,)
    last_characters (IntArray): Index of each token's last character. *Shape:* (tokens,)
    lengths (IntArray): Number of tokens in each text. *Shape:* (texts,)
    stops (IntArray): Index of the separator after each text. *Shape:* (texts,)
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
        """The index of the token that starts at each character, or -1. *Shape:* (characters,)"""
        return self._tokens_at(self.first_characters)

    @cached_property
    def tokens_ending(self) -> IntArray:
        """The index of the token that ends with each character, or -1. *Shape:* (characters,)"""
        return self._tokens_at(self.last_characters)

    def _tokens_at(self, indices: IntArray) -> IntArray:
        tokens = np.full(len(self), _NO_TOKEN, dtype=np.int64)
        tokens[indices] = np.arange(indices.size)
        return tokens

    @cached_property
    def simplified(self) -> JoinedText:
        """The texts in simplified script and half-width letters, in which words are looked up (see `simplify`)."""
        return replace(self, codes=simplify_codes(self.codes))

    def slice(self, start: int, stop: int) -> str:
        """Return the characters between two indices as a string."""
        return self.codes[start:stop].tobytes().decode(_CODEC)
