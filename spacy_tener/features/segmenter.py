"""Segmenters, which divide texts into words with parts of speech, and listed words that override theirs."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from hashlib import blake2b
from importlib.metadata import version
from itertools import chain
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np
from ahocorasick_rs import AhoCorasick, MatchKind
from spacy.attrs import IDX, LENGTH, POS, TAG
from spacy.strings import get_string_id
from spacy.tokens import Doc, Token

from ..batching.sequences import ranges
from ..errors import MissingPackageError, check_choice, install
from ..types import BoolArray, IntArray
from .characters import CodePoints, JoinedText, lengths_of
from .keys import Keys, mix
from .word_lists import WordList

SOURCE_DOC = "spacy_tener_source_doc"
"""Key of the `user_data` of a Doc whose tokens are characters of another Doc: the other Doc, and their offset in it."""

_PROBE = (
    "吴重阳在中国银行工作，1996-2002年任深圳高速公路股份有限公司董事。陆毅曹芙嘉《蒲公英》http://t.cn/zYimvPe（分享自@土豆网）"
    "卡拉OK和T恤打5.5折，㐀㐀不懷著沈灵佳的C++、AT&T与a_b-c.d%！韩版潮长袖原宿卫衣ａ１\r\n然後就最後悔。泰国C.H.InternationalTradingCo."
)
_ATTRS = {"TAG": TAG, "POS": POS}
_BEGIN, _END = 1, 2


@dataclass(frozen=True)
class Division:
    """A segmentation of a text into words, without gaps.

    lengths: characters of each word. *Shape: [W]*
    tags: hash of each word's part of speech, 0 for none. *Shape: [W]*
    """

    lengths: IntArray
    tags: Keys


def token_keys(text: JoinedText, division: Division) -> Keys:
    """Return a key for each token's position in a word, B, I, E or S, and the word's part of speech. *Shape* [tokens]

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
    """Return the keys that tokens in words of this part of speech may have. *Shape* [4]"""
    return mix(np.full(4, get_string_id(tag), dtype=np.uint64), np.arange(4, dtype=np.uint64))


class Segmenter(Protocol):
    """Divides texts into words."""

    @property
    def identity(self) -> tuple[str, str]:
        """A digest of the segmenter's output on a sample text, and its software; saved with a pipeline."""

    @property
    def requirement(self) -> str | None:
        """The package that the pipeline needs where it runs, as a requirement of pip."""

    def divide(self, docs: Sequence[Doc], text: JoinedText) -> Division:
        """Segment the joined texts of Docs; the separator after each text is a word of one character."""


SegmenterSource = Callable[[], Segmenter]


def jieba_segmenter() -> SegmenterSource:
    """Divide text by the Chinese word segmenter jieba, with its HMM for words that its dictionary lacks.

    Registered as `spacy_tener.JiebaSegmenter.v1`. The package rjieba does the work, at some two million characters a
    second. It is in the extra `zh`.
    """
    return JiebaSegmenter


def token_segmenter(attr: str = "TAG") -> SegmenterSource:
    """Take the tokens of the Doc as words, with parts of speech that earlier components have set.

    Registered as `spacy_tener.TokenSegmenter.v1`. For the view `characters` of Docs with tokens and tags of another
    tool: pkuseg, `zh_core_web_sm`, LTP.

    attr (str): `TAG` or `POS`.
    """
    check_choice("attr of spacy_tener.TokenSegmenter.v1", attr, _ATTRS)
    return partial(TokenSegmenter, attr)


@lru_cache(maxsize=1)
def _jieba() -> Any:
    """Return an instance of our own, to which no other code adds words."""
    try:
        import rjieba
    except ImportError as error:
        raise MissingPackageError(
            "Texts are divided into words by the package rjieba, which is not installed",
            install("rjieba"),
        ) from error
    return rjieba.Jieba()


@dataclass(frozen=True)
class JiebaSegmenter:
    """Segmentation by jieba, independent of the tokens."""

    @property
    def identity(self) -> tuple[str, str]:
        read = repr(_jieba().tag(_PROBE)).encode()
        return f"jieba {blake2b(read, digest_size=8).hexdigest()}", f"rjieba {version('rjieba')}"

    @property
    def requirement(self) -> str:
        return f"rjieba>={version('rjieba')}"

    def divide(self, docs: Sequence[Doc], text: JoinedText) -> Division:
        # One call for all texts: jieba makes each separator a word of its own.
        pairs = _jieba().tag(text.slice(0, len(text)))
        words, tags = zip(*pairs, strict=True) if pairs else ((), ())
        return Division(lengths_of(words), np.fromiter(map(_hash, tags), dtype=np.uint64, count=len(tags)))


@lru_cache(maxsize=1000)
def _hash(tag: str) -> int:
    return get_string_id(tag)


@dataclass(frozen=True)
class TokenSegmenter:
    """Segmentation by the tokens of the Docs; for Docs of characters, by the tokens of their source Docs.

    attr: `TAG` or `POS`.
    """

    attr: str

    @property
    def identity(self) -> tuple[str, str]:
        return f"tokens {self.attr}", "the tokens' own"

    @property
    def requirement(self) -> None:
        return None

    def divide(self, docs: Sequence[Doc], text: JoinedText) -> Division:
        separator = np.array([[1], [0]], dtype=np.uint64)
        parts = [part for doc in docs for part in (self._words(doc), separator)]
        lengths, tags = np.concatenate(parts, axis=1) if parts else np.zeros((2, 0), dtype=np.uint64)
        return Division(lengths.astype(np.int64), tags)

    def _words(self, doc: Doc) -> Keys:
        """Return lengths and tags of a text's words; a space after a token is a word without a tag.

        *Shape* [2, words]
        """
        source, start = doc.user_data.get(SOURCE_DOC, (doc, 0)) if doc.user_data else (doc, 0)
        stop = start + len(doc.text)
        # The tokens of this window only: a long Doc is read in many windows.
        first = max(bisect_right(source, start, key=_place) - 1, 0)
        tokens: Any = source[first : bisect_left(source, stop, key=_place)]
        table = tokens.to_array([IDX, LENGTH, _ATTRS[self.attr]])
        begins, sizes = table[:, :2].astype(np.int64).T
        edges = np.unique(np.concatenate(([start, stop], begins, begins + sizes)))
        edges = edges[(start <= edges) & (edges <= stop)]
        owner = np.searchsorted(begins, edges[:-1], side="right") - 1
        tags = np.where(edges[:-1] < (begins + sizes)[owner], table[owner, 2], np.uint64(0))
        return np.stack((np.diff(edges).astype(np.uint64), tags))


def _place(token: Token) -> int:
    return token.idx


def with_listed_words(
    text: JoinedText, division: Division, lists: Sequence[tuple[WordList, IntArray]]
) -> tuple[Division, Division]:
    """Return the segmentation with the words of lists, once with the lists' tags and once with the segmenter's.

    Lists are matched from the left, longest word first; later lists override earlier ones. The remains of a word that
    is cut become one or two words with its part of speech. A listed word without a tag gets the segmenter's tag at its
    last character.

    lists: each with the indices of its Docs.
    """
    begins = np.zeros(len(text) + 1, dtype=bool)
    begins[0] = begins[np.cumsum(division.lengths)] = True
    # Tags of characters: the segmenter's, the lists', and the segmenter's for listed words.
    original = np.repeat(division.tags, division.lengths)
    tags, without_lists = original.copy(), original.copy()
    for words, places in lists:
        finder = _FINDERS.get(words) or _FINDERS.setdefault(words, _Finder(words))
        for start, stop in _runs(places, text.stops):
            firsts, ends, keys = finder.find(text, start, stop)
            inside = ranges(firsts, ends - firsts)
            begins[inside] = False
            begins[firsts] = begins[ends] = True
            tags[inside] = np.repeat(np.where(keys == 0, tags[ends - 1], keys), ends - firsts)
            without_lists[inside] = np.repeat(original[ends - 1], ends - firsts)
    starts = np.flatnonzero(begins[:-1])
    lengths = np.diff(starts, append=len(text))
    return Division(lengths, tags[starts]), Division(lengths, without_lists[starts])


def _runs(places: IntArray, stops: IntArray) -> list[tuple[int, int]]:
    """Return the begin and end of the texts of some Docs; consecutive Docs are one range."""
    first = np.flatnonzero(np.diff(places, prepend=-2) != 1)
    last = np.append(first[1:], places.size) - 1
    starts = np.append(0, stops[:-1] + 1)
    return list(zip(starts[places[first]].tolist(), stops[places[last]].tolist(), strict=True))


class _Finder:
    """Matcher of a word list that finds the longest words from the left, without overlaps."""

    def __init__(self, words: WordList) -> None:
        shown = [(word, entry.tag) for word, entry in words.entries.items() if not entry.hidden]
        self._keys = np.array([get_string_id(tag) if tag else 0 for _, tag in shown], dtype=np.uint64)
        self._words = [word for word, _ in shown]
        self._automaton = AhoCorasick(self._words, MatchKind.LeftmostLongest, store_patterns=False)

    @cached_property
    def _of_all(self) -> AhoCorasick:
        return AhoCorasick(self._words, store_patterns=False)

    def find(self, text: JoinedText, start: int, stop: int) -> tuple[IntArray, IntArray, Keys]:
        """Return begin and end of each word between two indices, and the hash of its tag. *Shape* [W] each"""
        joined = text.slice(start, stop)
        table, whole = _table(self._automaton.find_matches_as_indexes(joined), text.codes, start)
        if not whole.all():
            # Matches that are only parts of words have hidden words that overlap with them.
            table, whole = _table(self._of_all.find_matches_as_indexes(joined, overlapping=True), text.codes, start)
            table = _longest_from_left(table[whole])
        indices, firsts, ends = table.T
        return firsts, ends, self._keys[indices]


_FINDERS: WeakKeyDictionary[WordList, _Finder] = WeakKeyDictionary()


def _table(found: list[tuple[int, int, int]], codes: CodePoints, start: int) -> tuple[IntArray, BoolArray]:
    """Return index, begin and end of each match, *shape* [W, 3], and a mask of whole words: 'AI' in 'MAIL' is none."""
    table = np.fromiter(chain.from_iterable(found), dtype=np.int64, count=3 * len(found)).reshape(-1, 3)
    table[:, 1:] += start
    places = table[:, 1:]
    cut = _is_latin(codes[places]) & (places > 0) & _is_latin(codes[places - 1])
    return table, np.logical_not(cut.any(axis=1))


def _longest_from_left(table: IntArray) -> IntArray:
    kept, stop = [], 0
    for row, (_, first, end) in enumerate((ordered := table[np.lexsort((-table[:, 2], table[:, 1]))]).tolist()):
        if first >= stop:
            kept.append(row)
            stop = end
    return ordered[kept]


def _is_latin(codes: CodePoints) -> BoolArray:
    """Mark Latin letters and digits."""
    lower = codes | 0x20
    found: BoolArray = ((lower >= 0x61) & (lower <= 0x7A)) | ((codes >= 0x30) & (codes <= 0x39))
    return found
