"""Segmentation of texts into words with parts of speech by jieba, and listed words that override it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from importlib.metadata import version
from itertools import chain
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from ahocorasick_rs import AhoCorasick
from spacy.strings import get_string_id

from ..batching.sequences import ranges
from ..errors import check_package
from ..types import BoolArray, IntArray
from .characters import CodePoints, JoinedText, lengths_of
from .forms import simplify
from .keys import Keys, mix
from .word_lists import WordList

_PROBE = (
    "吴重阳在中国银行工作，1996-2002年任深圳高速公路股份有限公司董事。陆毅曹芙嘉《蒲公英》http://t.cn/zYimvPe（分享自@土豆网）"
    "卡拉OK和T恤打5.5折，㐀㐀不懷著沈灵佳的C++、AT&T与a_b-c.d%！韩版潮长袖原宿卫衣ａ１\r\n然後就最後悔。泰国C.H.InternationalTradingCo."
)
_BEGIN, _END = 1, 2


@dataclass(frozen=True)
class Division:
    """A segmentation of a text into words, without gaps.

    lengths (IntArray): Characters of each word. *Shape:* (words,)
    tags (Keys): Hash of each word's part of speech, 0 for none. *Shape:* (words,)
    """

    lengths: IntArray
    tags: Keys


def token_keys(text: JoinedText, division: Division) -> Keys:
    """Return a key for each token's position in a word, B, I, E or S, and the word's part of speech. *Shape:* (tokens,)

    A token begins a word if its first character does, and ends one if its last character does: B, E, both (S) or
    neither (I). The part of speech is that of the word with its first character. A token that is one or several of the
    segmenter's words is S.
    """
    ends = np.cumsum(division.lengths)
    begins = np.zeros(len(text) + 1, dtype=bool)
    begins[0] = begins[ends] = True
    edges = begins[text.firsts] * _BEGIN + begins[np.maximum(text.lasts, text.firsts) + 1] * _END
    return mix(np.repeat(division.tags, division.lengths)[text.firsts], edges.astype(np.uint64))


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


def divide(text: JoinedText) -> Division:
    """Divide joined texts by the Chinese word segmenter jieba, with its HMM for words that its dictionary lacks.

    It reads the forms of characters: its dictionary is in simplified script.

    The package rjieba does the work, at some two million characters a second. All texts are divided in one call: the
    separator after each text is a word of its own.
    """
    pairs = _jieba().tag(text.simplified.slice(0, len(text)))
    words, tags = zip(*pairs, strict=True) if pairs else ((), ())
    return Division(lengths_of(words), np.fromiter(map(_hash, tags), dtype=np.uint64, count=len(tags)))


@lru_cache(maxsize=1000)
def _hash(tag: str) -> int:
    return get_string_id(tag)


def with_listed_words(
    text: JoinedText, division: Division, lists: Sequence[tuple[WordList, IntArray]]
) -> tuple[Division, Division]:
    """Return the segmentation with the words of lists, once with the lists' tags and once with the segmenter's.

    Lists are matched from the left, longest word first; later lists override earlier ones. The remains of a word that
    is cut become one or two words with its part of speech. A listed word without a tag gets the segmenter's tag at its
    last character.

    lists (Sequence[tuple[WordList, IntArray]]): Each with the indices of its Docs.
    """
    begins = np.zeros(len(text) + 1, dtype=bool)
    begins[0] = begins[np.cumsum(division.lengths)] = True
    # Tags of characters: the segmenter's, the lists', and the segmenter's for listed words.
    original = np.repeat(division.tags, division.lengths)
    tags, without_lists = original.copy(), original.copy()
    for words, docs in lists:
        finder = _FINDERS.get(words) or _FINDERS.setdefault(words, _Finder(words))
        for start, stop in _runs(docs, text.stops):
            firsts, ends, keys = finder.find(text, start, stop)
            inside = ranges(firsts, ends - firsts)
            begins[inside] = False
            begins[firsts] = begins[ends] = True
            tags[inside] = np.repeat(np.where(keys == 0, tags[ends - 1], keys), ends - firsts)
            without_lists[inside] = np.repeat(original[ends - 1], ends - firsts)
    starts = np.flatnonzero(begins[:-1])
    lengths = np.diff(starts, append=len(text))
    return Division(lengths, tags[starts]), Division(lengths, without_lists[starts])


def _runs(docs: IntArray, stops: IntArray) -> list[tuple[int, int]]:
    """Return the begin and end of the texts of some Docs; consecutive Docs are one range."""
    first = np.flatnonzero(np.diff(docs, prepend=-2) != 1)
    last = np.append(first[1:], docs.size) - 1
    starts = np.append(0, stops[:-1] + 1)
    return list(zip(starts[docs[first]].tolist(), stops[docs[last]].tolist(), strict=True))


class _Finder:
    """Matcher of a word list that finds the longest words from the left, without overlaps."""

    def __init__(self, words: WordList) -> None:
        tags = {simplify(word): entry.tag for word, entry in words.entries.items() if not entry.hidden}
        self._keys = np.array([get_string_id(tag) if tag else 0 for tag in tags.values()], dtype=np.uint64)
        self._automaton = AhoCorasick(list(tags), store_patterns=False)

    def find(self, text: JoinedText, start: int, stop: int) -> tuple[IntArray, IntArray, Keys]:
        """Return begin and end of each word between two indices, and the hash of its tag. *Shape:* (words,) each"""
        matches = self._automaton.find_matches_as_indexes(text.simplified.slice(start, stop), overlapping=True)
        table = np.fromiter(chain.from_iterable(matches), dtype=np.int64, count=3 * len(matches)).reshape(-1, 3)
        edges = table[:, 1:] + start
        # 'AI' in 'MAIL' is not a word.
        codes = text.simplified.codes
        cut = _is_latin(codes[edges]) & (edges > 0) & _is_latin(codes[edges - 1])
        intact = np.flatnonzero(~cut.any(axis=1))
        firsts, ends = edges[intact].T
        chosen, stop = [], 0
        for row in np.lexsort((-ends, firsts)).tolist():
            if firsts[row] >= stop:
                chosen.append(row)
                stop = ends[row]
        return firsts[chosen], ends[chosen], self._keys[table[intact[chosen], 0]]


_FINDERS: WeakKeyDictionary[WordList, _Finder] = WeakKeyDictionary()


def _is_latin(codes: CodePoints) -> BoolArray:
    """Mark Latin letters and digits."""
    lower = codes | 0x20
    mask: BoolArray = ((lower >= 0x61) & (lower <= 0x7A)) | ((codes >= 0x30) & (codes <= 0x39))
    return mask
