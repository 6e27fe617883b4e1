"""Segmentation of Chinese texts into words with parts of speech.

`segment` runs the word segmenter jieba, and `apply_word_lists` replaces its words by the words of users' lists.
`SegmentEmbed` embeds the result. The component `lac` applies word lists to the segmentation of LAC.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from importlib.metadata import version
from typing import Any

import numpy as np
from spacy.strings import get_string_id

from ..errors import check_package
from ..sequences import ranges
from ..types import IntArray
from .characters import JoinedText, lengths_of
from .keys import Keys, mix
from .word_lists import WordList, find_list_words

# A text whose segmentation depends on jieba's dictionary, its HMM, and its treatment of digits, URLs and Latin letters.
_PROBE = (
    "吴重阳在中国银行工作，1996-2002年任深圳高速公路股份有限公司董事。陆毅曹芙嘉《蒲公英》http://t.cn/zYimvPe（分享自@土豆网）"
    "卡拉OK和T恤打5.5折，㐀㐀不懷著沈灵佳的C++、AT&T与a_b-c.d%！韩版潮长袖原宿卫衣ａ１\r\n然後就最後悔。泰国C.H.InternationalTradingCo."
)
_BEGIN, _END = 1, 2
_hash = lru_cache(maxsize=1000)(get_string_id)


@dataclass(frozen=True)
class Segmentation:
    """A segmentation of a `JoinedText` into words without gaps, including the separators.

    lengths (IntArray): Number of characters in each word. *Shape:* (words,)
    tags (Keys): Hash of each word's part of speech, or 0 for no part of speech. *Shape:* (words,)
    """

    lengths: IntArray
    tags: Keys


def token_keys(text: JoinedText, segmentation: Segmentation) -> Keys:
    """Return a key for each token's position in its word (B, I, E or S) and the word's part of speech.

    A token is B if its first character starts a word, E if its last character ends a word, S if both are true, and I if
    neither is true. The part of speech belongs to the word that contains the token's first character. A token that
    consists of several words is S.

    RETURNS (Keys): *Shape:* (tokens,)
    """
    ends = np.cumsum(segmentation.lengths)
    begins = np.zeros(len(text) + 1, dtype=bool)
    begins[0] = begins[ends] = True
    edges = (
        begins[text.first_characters] * _BEGIN
        + begins[np.maximum(text.last_characters, text.first_characters) + 1] * _END
    )
    return mix(np.repeat(segmentation.tags, segmentation.lengths)[text.first_characters], edges.astype(np.uint64))


def keys_of_tag(tag: str) -> Keys:
    """Return the keys of the four positions in words with a part of speech. *Shape:* (4,)"""
    return mix(np.full(4, get_string_id(tag), dtype=np.uint64), np.arange(4, dtype=np.uint64))


@lru_cache(maxsize=1)
def _jieba() -> Any:
    """Return a separate instance of jieba, so that words which other code adds do not change the segmentation."""
    check_package("rjieba", "Texts are divided into words by")
    import rjieba

    return rjieba.Jieba()


def jieba_version() -> tuple[str, str]:
    """Return a digest of jieba's output for a sample text, and the name and version of the package.

    Both are saved with a pipeline. A different digest means that the segmentation differs from the one in training.
    """
    words = repr(_jieba().tag(_PROBE)).encode()
    return f"jieba {blake2b(words, digest_size=8).hexdigest()}", f"rjieba {version('rjieba')}"


def segment(text: JoinedText) -> Segmentation:
    """Segment texts with jieba, which uses an HMM for words that are not in its dictionary.

    The package rjieba segments about two million characters per second.
    """
    # jieba's dictionary is in simplified script, thus `text.simplified`. All texts are segmented in a single call,
    # which is possible since jieba returns each separator as a separate word.
    pairs = _jieba().tag(text.simplified.slice(0, len(text)))
    words, tags = zip(*pairs, strict=True) if pairs else ((), ())
    return Segmentation(lengths_of(words), np.fromiter(map(_hash, tags), dtype=np.uint64, count=len(tags)))


def apply_word_lists(
    text: JoinedText, segmentation: Segmentation, lists: Sequence[tuple[WordList, IntArray]]
) -> tuple[Segmentation, Segmentation]:
    """Replace words of a segmentation by the words of lists.

    Words of a list are matched from left to right, the longest first. Later lists override earlier lists. If only a
    part of a word is replaced, the remaining parts become words with the same part of speech. A word of a list without
    a tag gets the part of speech that the segmenter assigns to its last character.

    lists (Sequence[tuple[WordList, IntArray]]): The lists, each with the indices of its Docs.
    RETURNS (tuple[Segmentation, Segmentation]): The new segmentation with the tags of the lists, and the same
        segmentation with the segmenter's tags only.
    """
    begins = np.zeros(len(text) + 1, dtype=bool)
    begins[0] = begins[np.cumsum(segmentation.lengths)] = True
    # The tag of each character: of the segmenter, with the tags of lists, and with the segmenter's tags for words of
    # lists.
    original = np.repeat(segmentation.tags, segmentation.lengths)
    tags, without_lists = original.copy(), original.copy()
    for words, docs in lists:
        first_indices, ends, keys = _find_longest(text, words, docs)
        inside = ranges(first_indices, ends - first_indices)
        begins[inside] = False
        begins[first_indices] = begins[ends] = True
        tags[inside] = np.repeat(np.where(keys == 0, tags[ends - 1], keys), ends - first_indices)
        without_lists[inside] = np.repeat(original[ends - 1], ends - first_indices)
    starts = np.flatnonzero(begins[:-1])
    lengths = np.diff(starts, append=len(text))
    return Segmentation(lengths, tags[starts]), Segmentation(lengths, without_lists[starts])


def _find_longest(text: JoinedText, words: WordList, docs: IntArray) -> tuple[IntArray, IntArray, Keys]:
    """Find the words of a list by forward maximum matching, without overlaps.

    RETURNS (tuple[IntArray, IntArray, Keys]): Start and end of each word, and the hash of its tag or 0. *Shape:*
        (words,) each
    """
    first_indices, ends, indices = find_list_words(words, text, docs)
    chosen, stop = [], 0
    for row in np.lexsort((-ends, first_indices)).tolist():
        entry = words.listed[indices[row]]
        if first_indices[row] >= stop and not entry.hidden:
            chosen.append((first_indices[row], ends[row], _hash(entry.tag) if entry.tag else 0))
            stop = ends[row]
    begins, stops, keys = zip(*chosen, strict=True) if chosen else ((), (), ())
    return np.array(begins, np.int64), np.array(stops, np.int64), np.array(keys, np.uint64)
