"""Segmentation of texts into words with parts of speech by jieba, and listed words that override it."""

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

_PROBE = (
    "吴重阳在中国银行工作，1996-2002年任深圳高速公路股份有限公司董事。陆毅曹芙嘉《蒲公英》http://t.cn/zYimvPe（分享自@土豆网）"
    "卡拉OK和T恤打5.5折，㐀㐀不懷著沈灵佳的C++、AT&T与a_b-c.d%！韩版潮长袖原宿卫衣ａ１\r\n然後就最後悔。泰国C.H.InternationalTradingCo."
)
_BEGIN, _END = 1, 2
_hash = lru_cache(maxsize=1000)(get_string_id)


@dataclass(frozen=True)
class Segmentation:
    """A segmentation of a text into words, without gaps.

    lengths (IntArray): Characters of each word. *Shape:* (words,)
    tags (Keys): Hash of each word's part of speech, 0 for none. *Shape:* (words,)
    """

    lengths: IntArray
    tags: Keys


def token_keys(text: JoinedText, segmentation: Segmentation) -> Keys:
    """Return a key for each token's position in a word, B, I, E or S, and the word's part of speech. *Shape:* (tokens,)

    A token begins a word if its first character does, and ends one if its last character does: B, E, both (S) or
    neither (I). The part of speech is that of the word with its first character. A token that is one or several of the
    segmenter's words is S.
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
    """Return the keys that tokens in words of this part of speech may have. *Shape:* (4,)"""
    return mix(np.full(4, get_string_id(tag), dtype=np.uint64), np.arange(4, dtype=np.uint64))


@lru_cache(maxsize=1)
def _jieba() -> Any:
    """Return an instance of our own, to which no other code adds words."""
    check_package("rjieba", "Texts are divided into words by")
    import rjieba

    return rjieba.Jieba()


def jieba_version() -> tuple[str, str]:
    """Return a digest of jieba's output on a sample text, and its software; saved with a pipeline."""
    words = repr(_jieba().tag(_PROBE)).encode()
    return f"jieba {blake2b(words, digest_size=8).hexdigest()}", f"rjieba {version('rjieba')}"


def segment(text: JoinedText) -> Segmentation:
    """Divide joined texts by the Chinese word segmenter jieba, with its HMM for words that its dictionary lacks.

    It reads the forms of characters: its dictionary is in simplified script.

    The package rjieba does the work, at some two million characters a second. All texts are divided in one call: the
    separator after each text is a word of its own.
    """
    pairs = _jieba().tag(text.simplified.slice(0, len(text)))
    words, tags = zip(*pairs, strict=True) if pairs else ((), ())
    return Segmentation(lengths_of(words), np.fromiter(map(_hash, tags), dtype=np.uint64, count=len(tags)))


def apply_word_lists(
    text: JoinedText, segmentation: Segmentation, lists: Sequence[tuple[WordList, IntArray]]
) -> tuple[Segmentation, Segmentation]:
    """Return the segmentation with the words of lists, once with the lists' tags and once with the segmenter's.

    Lists are matched from the left, longest word first; later lists override earlier ones. The remains of a word that
    is cut become one or two words with its part of speech. A listed word without a tag gets the segmenter's tag at its
    last character.

    lists (Sequence[tuple[WordList, IntArray]]): Each with the indices of its Docs.
    """
    begins = np.zeros(len(text) + 1, dtype=bool)
    begins[0] = begins[np.cumsum(segmentation.lengths)] = True
    # Tags of characters: the segmenter's, the lists', and the segmenter's for listed words.
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
    """Find the longest words of a list from the left, without overlaps.

    RETURNS (Tuple[IntArray, IntArray, Keys]): Begin and end of each word, and the hash of its tag. *Shape:* (words,)
        each
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
