"""Who divides texts into words with their parts of speech."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from hashlib import blake2b
from importlib.metadata import version
from importlib.util import find_spec
from typing import Protocol

import numpy as np
from spacy.attrs import IDX, LENGTH, POS, TAG
from spacy.strings import get_string_id
from spacy.tokens import Doc

from ...errors import check_choice
from ..keys import Keys
from ..lexicon.text import JoinedText
from .division import Division
from .jieba_python import JiebaTagger

SOURCE_DOC = "spacy_tener_source_doc"
"""In the `user_data` of a Doc whose tokens are the characters of another: that one, and where in it they begin."""

_PROBE = (
    "吴重阳在中国银行工作，1996-2002年任深圳高速公路股份有限公司董事。陆毅曹芙嘉《蒲公英》http://t.cn/zYimvPe（分享自@土豆网）"
    "卡拉OK和T恤打5.5折，㐀㐀不懷著沈灵佳的C++、AT&T与a_b-c.d%！韩版潮长袖原宿卫衣ａ１\r\n然後就最後悔。泰国C.H.InternationalTradingCo."
)
_ATTRS = {"TAG": TAG, "POS": POS}


class Segmenter(Protocol):
    """Divides texts into words."""

    @property
    def identity(self) -> tuple[str, str]:
        """What a pipeline learns from and is saved with: how the segmenter reads, and by which software it does."""

    @property
    def requirement(self) -> str | None:
        """The package that is needed where the pipeline runs, as pip writes it."""

    def divide(self, docs: Sequence[Doc], text: JoinedText) -> Division:
        """The words of the Docs' texts, joined, and one of one character for the separator behind each text."""


SegmenterSource = Callable[[], Segmenter]


def jieba_segmenter() -> SegmenterSource:
    """The Chinese word segmenter jieba, with its HMM for words that its dictionary lacks.

    Registered as `spacy_tener.JiebaSegmenter.v1`. rjieba does the work, at some two million characters a second, or
    where it is not installed jieba, at a hundredth of that speed and with the same result. Both are in the extra `zh`.
    """
    return JiebaSegmenter


def token_segmenter(attr: str = "TAG") -> SegmenterSource:
    """The tokens of the Doc as words, with parts of speech that components before this one have set.

    Registered as `spacy_tener.TokenSegmenter.v1`. For the view `characters` over whatever made the tokens and tags:
    pkuseg, `zh_core_web_sm`, LTP.

    attr (str): `TAG` or `POS`.
    """
    check_choice("attr of spacy_tener.TokenSegmenter.v1", attr, _ATTRS)
    return partial(TokenSegmenter, attr)


@dataclass(frozen=True)
class JiebaSegmenter:
    """jieba's words, whatever the tokens are."""

    @property
    def identity(self) -> tuple[str, str]:
        tagger, software = _jieba()
        return f"jieba {blake2b(repr(tagger.tag(_PROBE)).encode(), digest_size=8).hexdigest()}", software

    @property
    def requirement(self) -> str:
        return _jieba()[1].replace(" ", ">=")

    def divide(self, docs: Sequence[Doc], text: JoinedText) -> Division:
        # One call for all texts: a separator is a word of its own, and no word reaches past one.
        pairs = _jieba()[0].tag(text.slice(0, len(text)))
        words, tags = zip(*pairs, strict=True) if pairs else ((), ())
        lengths = np.fromiter(map(len, words), dtype=np.int64, count=len(words))
        return Division(lengths, np.fromiter(map(_HASHES.__getitem__, tags), dtype=np.uint64, count=len(tags)))


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
        """Lengths and tags of a text's words; the space behind a token is one without a tag. *Shape* [2, words]"""
        source, start = doc.user_data.get(SOURCE_DOC, (doc, 0)) if doc.user_data else (doc, 0)
        table = source.to_array([IDX, LENGTH, _ATTRS[self.attr]])
        begins, sizes = table[:, :2].astype(np.int64).T
        stop = start + len(doc.text)
        edges = np.unique(np.concatenate(([start, stop], begins, begins + sizes)))
        edges = edges[(start <= edges) & (edges <= stop)]
        owner = np.searchsorted(begins, edges[:-1], side="right") - 1
        tags = np.where(edges[:-1] < (begins + sizes)[owner], table[owner, 2], np.uint64(0))
        return np.stack((np.diff(edges).astype(np.uint64), tags))


class _Hashes(dict[str, int]):
    """The hashes of parts of speech, of which there are some sixty."""

    def __missing__(self, tag: str) -> int:
        self[tag] = key = get_string_id(tag)
        return key


_HASHES = _Hashes()


class _Tagger(Protocol):
    def tag(self, text: str) -> list[tuple[str, str]]: ...


@lru_cache(maxsize=1)
def _jieba() -> tuple[_Tagger, str]:
    """What does jieba's work here, and its name: an instance of its own, to which nobody else adds words."""
    if find_spec("rjieba"):
        tagger: _Tagger = importlib.import_module("rjieba").Jieba()
        return tagger, f"rjieba {version('rjieba')}"
    if find_spec("jieba"):
        return JiebaTagger(), f"jieba {version('jieba')}"
    raise ImportError(
        "Texts are divided into words by the package rjieba, or by jieba, and neither is installed. Install rjieba "
        "with `pip install 'spacy_tener[zh]'`"
    )
