"""The words of a lexicon in a text, by an Aho-Corasick automaton."""

from __future__ import annotations

import re
import warnings
import weakref
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import chain
from typing import cast

import numpy as np
import srsly
from ahocorasick_rs import AhoCorasick
from numpy.typing import NDArray
from spacy.tokens import Doc

from ..batching.sequences import starts
from ..errors import RemedyError
from ..types import BoolArray, IntArray
from .characters import SEPARATOR, JoinedText, join_texts

# Bytes of one match in the library's answer come to some 170: what a window may cost is 45 MB.
_MATCHES_PER_WINDOW = 1 << 18
MOST_WORDS = 5_000_000
"""Their words and automaton take some 600 MB, and 20 seconds to build."""
_UNFIT = re.compile("[" + SEPARATOR + "\ud800-\udfff]")
_NOTHING = np.zeros((3, 0), dtype=np.int64)


@dataclass(frozen=True)
class Match:
    """The words found in a batch of Docs, joined Doc after Doc, within a Doc ordered by (head, tail).

    words: index of each word in the lexicon. *Shape: [W]*
    heads: first token of each word, as a position in its Doc. *Shape: [W]*
    tails: last token of each word, inclusive. *Shape: [W]*
    counts: words of each Doc. *Shape: [Docs]*
    """

    words: IntArray
    heads: IntArray
    tails: IntArray
    counts: IntArray


class Lexicon:
    """Words of two or more characters, each with a tag or none. It never changes, so copies of it are itself.

    The automaton is built by `prepare`, or when it is first needed; forked processes share its memory, since searching
    writes nothing to it. It is not saved: building it anew from the words takes half a second for 350,000 of them.

    words (Iterable[str]): The first of equal words wins. Left out are strings of fewer than two characters (code
        points), of white space only, and those with a NUL or half a surrogate pair in them. More than five million are
        refused.
    tags (Iterable[str] | None): One for each of `words`, the empty string for none.
    """

    words: list[str]
    """In their order; a word's index here is its identity. To be read only."""
    tag_names: list[str]
    """The distinct tags in the order of their appearance, behind the empty string: no tag."""
    tags: NDArray[np.int32]
    """The index of each word's tag in `tag_names`. *Shape: [words]*"""

    def __init__(self, words: Iterable[str], tags: Iterable[str] | None = None) -> None:
        tag_of: dict[str, str] = {}
        for word, tag in zip(words, tags, strict=True) if tags is not None else ((word, "") for word in words):
            if is_fit(word):
                if len(tag_of) >= MOST_WORDS and word not in tag_of:
                    raise RemedyError(
                        f"The lexicon has more than {MOST_WORDS:,} words",
                        "Give fewer: those that your texts are about, or by the source's min_frequency or max_length.",
                    )
                tag_of.setdefault(word, tag)
        index_of = {name: index for index, name in enumerate(dict.fromkeys(["", *tag_of.values()]))}
        indices = np.fromiter(map(index_of.__getitem__, tag_of.values()), dtype=np.int32, count=len(tag_of))
        self._fill(list(tag_of), list(index_of), indices)

    def _fill(self, words: list[str], tag_names: list[str], tags: NDArray[np.int32]) -> None:
        self.words, self.tag_names, self.tags = words, tag_names, tags
        self.tags.flags.writeable = False
        lengths = set(map(len, words))
        self._reach = max(lengths, default=1) - 1
        self._window = max(_MATCHES_PER_WINDOW // max(len(lengths), 1), self._reach)

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._index_of

    def prepare(self) -> None:
        """Build the automaton now: before a service's first text, and before its workers are forked, which share it."""
        self._automaton  # noqa: B018 - cached by reading it

    def index(self, words: Sequence[str]) -> IntArray:
        """Return the index of each word, -1 where the lexicon lacks it. *Shape* [W]"""
        return np.fromiter((self._index_of.get(word, -1) for word in words), dtype=np.int64, count=len(words))

    def find(self, docs: Sequence[Doc], max_words: int | None = None) -> Match:
        """Find every word whose first character begins a token and whose last character ends one.

        Words that overlap or lie in each other are all found; upper and lower case differ; no word crosses Docs.

        docs (Sequence[Doc]): Segmented in whatever way: into characters, words, or both.
        max_words (int | None): At most so many words are kept of those that begin at one token, the longest first. It
            bounds what a hostile text can cost: there are never more than `max_words` words for each token.
        RETURNS (Match): The words and where they are.
        """
        if max_words is not None and max_words < 0:
            raise ValueError(f"max_words is the greatest number of words at one token, but got {max_words}.")
        text = join_texts(docs)
        words, heads, tails = np.concatenate([_NOTHING, *self._find_all(text, max_words)], axis=1)
        doc_of_token = np.repeat(np.arange(text.lengths.size), text.lengths)
        doc_of_word = doc_of_token[heads]
        first_tokens = starts(text.lengths)[doc_of_word]
        counts = np.bincount(doc_of_word, minlength=text.lengths.size)
        return Match(words=words, heads=heads - first_tokens, tails=tails - first_tokens, counts=counts)

    def _find_all(self, text: JoinedText, max_words: int | None) -> Iterator[IntArray]:
        """Yield words, heads and tails, a window of the text at a time, so that what the limit drops never piles up.

        A window is searched past its end by the longest word less one: whatever begins in it is found whole. *Shape*
        [3, W] each
        """
        for start in range(0, len(text) if self.words else 0, self._window):
            words, firsts, lasts = self._search(text.slice(start, start + self._window + self._reach))
            heads, tails = text.starting[firsts + start], text.ending[lasts + start]
            kept = np.flatnonzero((firsts < self._window) & (heads >= 0) & (tails >= 0))
            # They come in the order of their ends.
            kept = kept[np.argsort(heads[kept], kind="stable")]
            if max_words is not None:
                kept = kept[are_longest(heads[kept], max_words)]
            yield np.stack((words[kept], heads[kept], tails[kept]))

    def _search(self, text: str) -> tuple[IntArray, IntArray, IntArray]:
        """Find the words in a text, and the places of their first and last characters. *Shape* [W] each"""
        found = self._automaton.find_matches_as_indexes(text, overlapping=True)
        flat = np.fromiter(chain.from_iterable(found), dtype=np.int64, count=3 * len(found))
        patterns, firsts, ends = flat.reshape(-1, 3).T
        return self._order[patterns], firsts, ends - 1

    @cached_property
    def _order(self) -> IntArray:
        """The words in the order in which the automaton has them, which is that of the alphabet: neighbours share
        their beginnings, and building is up to three times as fast."""
        return np.asarray(sorted(range(len(self)), key=self.words.__getitem__), dtype=np.int64)

    @cached_property
    def _automaton(self) -> AhoCorasick:
        return AhoCorasick([self.words[index] for index in self._order.tolist()], store_patterns=False)

    @cached_property
    def _index_of(self) -> dict[str, int]:
        return {word: index for index, word in enumerate(self.words)}

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The tags that words have; the empty string among them where some have none."""
        return frozenset(self.tag_names[index] for index in np.unique(self.tags).tolist())

    def to_bytes(self) -> bytes:
        """Serialize the words and tags, compressed."""
        if any(SEPARATOR in name for name in self.tag_names):
            raise ValueError("A tag of the lexicon contains NUL. Use tags without it.")
        message = {
            "words": SEPARATOR.join(self.words),
            "tag_names": self.tag_names,
            "tags": self.tags.astype("<i4").tobytes(),
        }
        # The lowest level: a fifth of the time of the usual one, for a tenth more bytes.
        data = zlib.compress(cast(bytes, srsly.msgpack_dumps(message)), level=1)
        _LIVING.setdefault(_digest(data), self)
        return data

    @classmethod
    def from_bytes(cls, data: bytes) -> Lexicon:
        """Load what `to_bytes` gave. Equal bytes give the same lexicon as long as it lives in this process, so that
        copies of a pipeline share words and automaton."""
        key = _digest(data)
        lexicon = _LIVING.get(key)
        if lexicon is None:
            try:
                saved = srsly.msgpack_loads(zlib.decompress(data))
                words = saved["words"].split(SEPARATOR) if saved["words"] else []
                tags = np.frombuffer(saved["tags"], "<i4").astype(np.int32)
                if len(tags) != len(words) or tags.max(initial=0) >= len(saved["tag_names"]):
                    raise ValueError("words and tags do not match")
                lexicon = cls.__new__(cls)
                lexicon._fill(words, saved["tag_names"], tags)
            except (zlib.error, ValueError, KeyError, TypeError, AttributeError) as error:
                raise ValueError(f"These {len(data)} bytes are no lexicon: {error!r}. Save it again.") from error
            _LIVING[key] = lexicon
        return lexicon

    def __copy__(self) -> Lexicon:
        return self

    def __deepcopy__(self, memo: object) -> Lexicon:
        return self

    def __reduce__(self) -> tuple[object, tuple[bytes]]:
        return type(self).from_bytes, (self.to_bytes(),)


def warn_if_empty(lexicon: Lexicon, layer: str) -> None:
    """Warn about a lexicon without words."""
    if not len(lexicon):
        warnings.warn(
            f"The lexicon of {layer} is empty: no word will be found in any text. Check its source in the config, and "
            "its limits on frequency and length.",
            stacklevel=3,
        )


def is_fit(word: str) -> bool:
    """Return whether a lexicon takes a word."""
    return len(word) > 1 and not word.isspace() and not _UNFIT.search(word)


_LIVING: weakref.WeakValueDictionary[bytes, Lexicon] = weakref.WeakValueDictionary()


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


def are_longest(heads: IntArray, max_words: int) -> BoolArray:
    """Mark the words to keep, of words in the order of (head, tail): the last `max_words` of each head. *Shape* [W]"""
    firsts = np.flatnonzero(np.diff(heads, prepend=-1))
    sizes = np.diff(firsts, append=heads.size)
    ends = np.repeat(firsts + sizes, sizes)
    return ends - np.arange(heads.size) <= max_words
