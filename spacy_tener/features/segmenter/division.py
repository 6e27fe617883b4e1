"""A text divided into words, and what its tokens are within these."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from spacy.strings import get_string_id

from ...types import IntArray
from ..keys import Keys
from ..lexicon.text import JoinedText

_BEGIN, _END = 1, 2
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Division:
    """The words of a text, which follow upon each other without a gap.

    lengths: characters of each word. *Shape: [W]*
    tags: hash of each word's part of speech, 0 for none. *Shape: [W]*
    """

    lengths: IntArray
    tags: Keys


def token_keys(text: JoinedText, division: Division) -> Keys:
    """A key for what each token is within the words of its text: an edge with a part of speech.

    A token begins a word where its first character does, and ends one where its last character does: B, E, both (S) or
    neither (I). The part of speech is that of the word in which its first character lies. So a character gets the
    usual BIES tag of its word; a token that is a word of the segmenter's, or several of them, is S.

    *Shape* [tokens]
    """
    ends = np.cumsum(division.lengths)
    begins = np.zeros(len(text) + 1, dtype=bool)
    begins[0] = begins[ends] = True
    edges = begins[text.firsts] * _BEGIN + begins[np.maximum(text.lasts, text.firsts) + 1] * _END
    return _mix(np.repeat(division.tags, division.lengths)[text.firsts], edges)


def keys_of_tag(tag: str) -> Keys:
    """The keys that tokens in words of this part of speech may have. *Shape* [4]"""
    return _mix(np.full(4, get_string_id(tag), dtype=np.uint64), np.arange(4))


def _mix(tags: Keys, edges: IntArray) -> Keys:
    keys: Keys = tags ^ (edges.astype(np.uint64) + np.uint64(1)) * _MULTIPLIER
    return keys
