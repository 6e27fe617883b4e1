"""Segmenters, which divide texts into words with parts of speech, and the words of lists over theirs."""

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
from ..errors import MissingPackageError, check_choice
from ..types import BoolArray, IntArray
from .characters import CodePoints, JoinedText, lengths_of
from .keys import Keys, mix
from .word_lists import WordList

SOURCE_DOC = "spacy_tener_source_doc"
"""In the `user_data` of a Doc whose tokens are the characters of another: that one, and where in it they begin."""

_PROBE = (
    "吴重阳在中国银行工作，1996-2002年任深圳高速公路股份有限公司董事。陆毅曹芙嘉《蒲公英》http://t.cn/zYimvPe（分享自@土豆网）"
    "卡拉OK和T恤打5.5折，㐀㐀不懷著沈灵佳的C++、AT&T与a_b-c.d%！韩版潮长袖原宿卫衣ａ１\r\n然後就最後悔。泰国C.H.InternationalTradingCo."
)
_ATTRS = {"TAG": TAG, "POS": POS}
_BEGIN, _END = 1, 2


@dataclass(frozen=True)
class Division:
    """The words of a text, which follow upon each other without a gap.

    lengths: characters of each word. *Shape: [W]*
    tags: hash of each word's part of speech, 0 for none. *Shape: [W]*
    """

    lengths: IntArray
    tags: Keys


def token_keys(text: JoinedText, division: Division) -> Keys:
    """Return a key for what each token is within the words of its text: an edge with a part of speech.

    A token begins a word where its first character does, and ends one where its last character does: B, E, both (S) or
    neither (I). The part of speech is that of the word in which its first character lies. So a character gets the
    usual BIES tag of its word; a token that is a word of the segmenter's, or several of them, is S.

    *Shape* [tokens]
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
        """A digest of its reading, and the software that reads: saved with a pipeline."""

    @property
    def requirement(self) -> str | None:
        """The package that is needed where the pipeline runs, as pip writes it."""

    def divide(self, docs: Sequence[Doc], text: JoinedText) -> Division:
        """Divide the Docs' texts, joined; the separator behind each text is a word of one character."""


SegmenterSource = Callable[[], Segmenter]


def jieba_segmenter() -> SegmenterSource:
    """Divide text by the Chinese word segmenter jieba, with its HMM for words that its dictionary lacks.

    Registered as `spacy_tener.JiebaSegmenter.v1`. The package rjieba does the work, at some two million characters a
    second. It is in the extra `zh`.
    """
    return JiebaSegmenter


def token_segmenter(attr: str = "TAG") -> SegmenterSource:
    """Take the tokens of the Doc as words, with parts of speech that components before this one have set.

    Registered as `spacy_tener.TokenSegmenter.v1`. For the view `characters` over whatever made the tokens and tags:
    pkuseg, `zh_core_web_sm`, LTP.

    attr (str): `TAG` or `POS`.
    """
    check_choice("attr of spacy_tener.TokenSegmenter.v1", attr, _ATTRS)
    return partial(TokenSegmenter, attr)


@lru_cache(maxsize=1)
def _jieba() -> Any:
    """Return an instance of our own, to which nobody else adds words."""
    try:
        import rjieba
    except ImportError as error:
        raise MissingPackageError(
            "Texts are divided into words by the package rjieba, which is not installed",
            "Install it by `pip install 'spacy_tener[zh]'`.",
        ) from error
    return rjieba.Jieba()


@dataclass(frozen=True)
class JiebaSegmenter:
    """jieba's words, whatever the tokens are."""

    @property
    def identity(self) -> tuple[str, str]:
        read = repr(_jieba().tag(_PROBE)).encode()
        return f"jieba {blake2b(read, digest_size=8).hexdigest()}", f"rjieba {version('rjieba')}"

    @property
    def requirement(self) -> str:
        return f"rjieba>={version('rjieba')}"

    def divide(self, docs: Sequence[Doc], text: JoinedText) -> Division:
        # One call for all texts: a separator is a word of its own, and no word reaches past one.
        pairs = _jieba().tag(text.slice(0, len(text)))
        words, tags = zip(*pairs, strict=True) if pairs else ((), ())
        return Division(lengths_of(words), np.fromiter(map(_hash, tags), dtype=np.uint64, count=len(tags)))


@lru_cache(maxsize=1000)
def _hash(tag: str) -> int:
    return get_string_id(tag)


@dataclass(frozen=True)
class TokenSegmenter:
    """The tokens of the Docs; of Docs of characters, the tokens of the Docs that these were taken from.

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
        """Return lengths and tags of a text's words; the space behind a token is one without a tag.

        *Shape* [2, words]
        """
        source, start = doc.user_data.get(SOURCE_DOC, (doc, 0)) if doc.user_data else (doc, 0)
        stop = start + len(doc.text)
        # The tokens of this piece only: a long Doc is read in many pieces.
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
    """Return a division in which each list's words are whole, the longest first from the left; a later list's over an
    earlier's: with their tags, and with those that the segmenter gives.

    Of a word that is cut, what is left becomes a word, or two, with its part of speech. A word without a tag has that
    of its last character's word.

    lists: each with the places of the Docs that it is for.
    """
    begins = np.zeros(len(text) + 1, dtype=bool)
    begins[0] = begins[np.cumsum(division.lengths)] = True
    read = np.repeat(division.tags, division.lengths)
    tags, untold = read.copy(), read.copy()
    for words, places in lists:
        finder = _FINDERS.get(words) or _FINDERS.setdefault(words, _Finder(words))
        for start, stop in _runs(places, text.stops):
            firsts, ends, keys = finder.find(text, start, stop)
            inside = ranges(firsts, ends - firsts)
            begins[inside] = False
            begins[firsts] = begins[ends] = True
            tags[inside] = np.repeat(np.where(keys == 0, tags[ends - 1], keys), ends - firsts)
            untold[inside] = np.repeat(read[ends - 1], ends - firsts)
    starts = np.flatnonzero(begins[:-1])
    lengths = np.diff(starts, append=len(text))
    return Division(lengths, tags[starts]), Division(lengths, untold[starts])


def _runs(places: IntArray, stops: IntArray) -> list[tuple[int, int]]:
    """Return where the texts of some Docs begin and end; those that follow upon each other as one."""
    first = np.flatnonzero(np.diff(places, prepend=-2) != 1)
    last = np.append(first[1:], places.size) - 1
    starts = np.append(0, stops[:-1] + 1)
    return list(zip(starts[places[first]].tolist(), stops[places[last]].tolist(), strict=True))


class _Finder:
    """Finds the words of a list that do not overlap."""

    def __init__(self, words: WordList) -> None:
        shown = [(word, entry.tag) for word, entry in words.entries.items() if not entry.hidden]
        self._keys = np.array([get_string_id(tag) if tag else 0 for _, tag in shown], dtype=np.uint64)
        self._words = [word for word, _ in shown]
        self._automaton = AhoCorasick(self._words, MatchKind.LeftmostLongest, store_patterns=False)

    @cached_property
    def _of_all(self) -> AhoCorasick:
        return AhoCorasick(self._words, store_patterns=False)

    def find(self, text: JoinedText, start: int, stop: int) -> tuple[IntArray, IntArray, Keys]:
        """Return begin and end of each word between two places, and the hash of its tag. *Shape* [W] each"""
        joined = text.slice(start, stop)
        table, whole = _table(self._automaton.find_matches_as_indexes(joined), text.codes, start)
        if not whole.all():
            # What is no word here has hidden those that overlap with it.
            table, whole = _table(self._of_all.find_matches_as_indexes(joined, overlapping=True), text.codes, start)
            table = _longest_from_left(table[whole])
        indices, firsts, ends = table.T
        return firsts, ends, self._keys[indices]


_FINDERS: WeakKeyDictionary[WordList, _Finder] = WeakKeyDictionary()


def _table(found: list[tuple[int, int, int]], codes: CodePoints, start: int) -> tuple[IntArray, BoolArray]:
    """Return index, begin and end of each match, *shape* [W, 3], and whether it is a word there: 'AI' is none in
    'MAIL'."""
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
