"""Arrays of Unicode code points for a batch of texts.

`JoinedText` contains the concatenated texts. Lexicons, word lists and word segmenters use it to find words. `Spellings`
contains the characters of each distinct token, as input for character and radical encoders. `TokenBatch` in `tokens.py`
creates both.
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

# The separator after each text in a `JoinedText`. Lexicon words cannot contain it, so matches cannot extend over two
# texts.
SEPARATOR = "\0"
# Line breaks, as in `str.splitlines`.
LINE_BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
# Long tokens are shortened to this many characters at each end, which limits their cost.
MAX_AT_EACH_END = 32

_CODEC = "utf-32-le"
CODE_POINT = np.dtype("<u4")
_NO_TOKEN = -1


@dataclass(frozen=True)
class Spellings:
    """The characters or radicals of the distinct tokens in a batch.

    keys (Keys): Code points of the characters in all distinct tokens, concatenated. *Shape:* (characters,)
    lengths (IntArray): Number of characters in each distinct token. *Shape:* (words,)
    words (IntArray): Index of the distinct token for each token in the batch. *Shape:* (tokens,)
    """

    keys: Keys
    lengths: IntArray
    words: IntArray


def truncate_middle(text: str) -> str:
    """Shorten a string to its first and last `MAX_AT_EACH_END` characters. Return shorter strings unchanged."""
    n = MAX_AT_EACH_END
    return text if len(text) <= 2 * n else text[:n] + text[-n:]


def lengths_of(texts: Collection[Sized]) -> IntArray:
    """Return the text lengths. *Shape:* (texts,)"""
    return np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))


def code_points(text: str) -> CodePoints:
    """Return the code points of a text. *Shape:* (characters,)"""
    return np.frombuffer(text.encode(_CODEC), dtype=CODE_POINT)


@dataclass(frozen=True)
class JoinedText:
    """The texts in a batch, concatenated with a separator after each text.

    Character and token indices count from the start of the batch.

    codes (CodePoints): Code points of the texts and separators. *Shape:* (characters,)
    first_characters (IntArray): Index of each token's first character. *Shape:* (tokens,)
    last_characters (IntArray): Index of each token's last character. *Shape:* (tokens,)
    lengths (IntArray): Text lengths in tokens. *Shape:* (texts,)
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
        """Index of the token that starts at each character, or -1 if no token starts there. *Shape:* (characters,)"""
        return self._tokens_at(self.first_characters)

    @cached_property
    def tokens_ending(self) -> IntArray:
        """Index of the token that ends with each character, or -1 if no token ends there. *Shape:* (characters,)"""
        return self._tokens_at(self.last_characters)

    def _tokens_at(self, indices: IntArray) -> IntArray:
        tokens = np.full(len(self), _NO_TOKEN, dtype=np.int64)
        tokens[indices] = np.arange(indices.size)
        return tokens

    @cached_property
    def simplified(self) -> JoinedText:
        """A copy with simplified Chinese characters and half-width letters, for looking up words (see `simplify`)."""
        return replace(self, codes=simplify_codes(self.codes))

    def slice(self, start: int, stop: int) -> str:
        """Return the characters from `start` to `stop` (exclusive) as a string."""
        return self.codes[start:stop].tobytes().decode(_CODEC)
