"""Lexicons, whose words are found in texts by a trie."""

from __future__ import annotations

import re
import weakref
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import cast

import numpy as np
import srsly
from numpy.typing import NDArray

from ..errors import RemedyError
from ..processes import cached_property
from ..sequences import starts
from ..types import BoolArray, IntArray
from .characters import SEPARATOR, CodePoints, JoinedText, code_points, lengths_of
from .keys import Keys, mix, search, simplify

_MATCHES_PER_WINDOW = 1 << 18
"""The search takes some 70 bytes for each, so a window takes at most 20 MB."""
MAX_LEXICON_WORDS = 5_000_000
"""Maximum size of a lexicon: words and trie then take some 700 MB, and 8 seconds to build."""
_INVALID = re.compile("[" + SEPARATOR + "\ud800-\udfff]")
_CODE_BITS, _FIRST_NODE = np.uint64(21), 0x110000
"""Bits of a code point, and the number behind the last one."""
_NO_MATCHES = np.zeros((3, 0), dtype=np.int64)


@dataclass(frozen=True)
class Match:
    """The words found in a batch, text after text, sorted by (head, tail) in each of them.

    words (IntArray): Index of each word in the lexicon. *Shape:* (words,)
    heads (IntArray): First token of each word, as a position in its text. *Shape:* (words,)
    tails (IntArray): Last token of each word, inclusive. *Shape:* (words,)
    counts (IntArray): Number of words in each text. *Shape:* (texts,)
    """

    words: IntArray
    heads: IntArray
    tails: IntArray
    counts: IntArray


class WordTrie:
    """Finds words in joined texts. The node of a word's first character is its code point; others are numbered by the
    length of the beginnings that they stand for.

    The search goes from all positions of a text at once, one character further in each turn. It is as fast as an
    Aho-Corasick automaton in Rust, and built three times as fast: research/results/lexicon.md.

    words (Mapping[str, int]): The index of each word, which has two characters or more.
    """

    def __init__(self, words: Mapping[str, int]) -> None:
        lengths, codes = lengths_of(words), code_points("".join(words)).astype(np.uint64)
        first_indices, rest = starts(lengths), np.arange(lengths.size)
        indices = np.fromiter(words.values(), dtype=np.int64, count=lengths.size)
        # Hashes of the first two characters: most positions of a text end here, which makes the search twice as fast.
        self._shift = np.uint64(64 - (8 * lengths.size).bit_length())
        self._beginnings = np.zeros(1 << (64 - int(self._shift)), dtype=bool)
        self._beginnings[self._hash(codes[first_indices], codes[first_indices + 1])] = True
        nodes, n_nodes = codes[first_indices], _FIRST_NODE
        edges, ends = [np.zeros(0, dtype=np.uint64)], [np.zeros(0, dtype=np.int64)]
        for length in range(1, lengths.max(initial=0)):
            rest = rest[lengths[rest] > length]
            keys, children = np.unique(
                nodes[rest] << _CODE_BITS | codes[first_indices[rest] + length], return_inverse=True
            )
            nodes[rest] = children + n_nodes
            n_nodes += keys.size
            is_end = lengths[rest] == length + 1
            edges.append(keys)
            ends.append(np.full(keys.size, -1))
            ends[-1][children[is_end]] = indices[rest[is_end]]
        # Sorted, as longer ones have higher numbers; and the word that ends with each edge. *Shape:* (edges,) each
        self._edges, self._words = np.concatenate(edges), np.concatenate(ends)

    def find(self, codes: CodePoints, start: int, stop: int) -> IntArray:
        """Find the words that begin in a part of a joined text, overlapping ones included, the shorter ones first.

        RETURNS (IntArray): First character, end and index of each word. *Shape:* (3, words)
        """
        stop = min(stop, codes.size - 1)  # the last separator
        first, second = (codes[start + shift : stop + shift].astype(np.uint64) for shift in (0, 1))
        positions = np.flatnonzero(self._beginnings[self._hash(first, second)]) + start
        nodes, length, found = codes[positions].astype(np.uint64), 1, [_NO_MATCHES]
        while positions.size:
            children, is_edge = search(self._edges, nodes << _CODE_BITS | codes[positions + length])
            positions, children, length = positions[is_edge], children[is_edge], length + 1
            nodes, words = (children + _FIRST_NODE).astype(np.uint64), self._words[children]
            found.append(np.stack((positions, positions + length, words))[:, words >= 0])
        return np.concatenate(found, axis=1)

    def _hash(self, first: Keys, second: Keys) -> Keys:
        return mix(first, second) >> self._shift


class Lexicon:
    """Words of two or more characters, each with an optional tag. Immutable: a copy is the same object.

    The trie is built by `prepare`, or when it is first needed; forked processes share its memory, since searching does
    not write to it. It is not saved: building it from 350,000 words takes a quarter of a second.

    words (Iterable[str]): The first of equal words wins. Left out are strings of fewer than two characters (code
        points), of white space only, and those with a NUL or half a surrogate pair in them. More than five million are
        refused.
    tags (Iterable[str] | None): One for each of `words`, the empty string for none.
    """

    words: list[str]
    """The words in their order; all indices of words refer to it. Read-only."""
    tag_names: list[str]
    """The empty string, for no tag, and the distinct tags in order of appearance."""
    tags: NDArray[np.int32]
    """The index of each word's tag in `tag_names`. *Shape:* (words,)"""

    def __init__(self, words: Iterable[str], tags: Iterable[str] | None = None) -> None:
        tag_of: dict[str, str] = {}
        for word, tag in zip(words, tags, strict=True) if tags is not None else ((word, "") for word in words):
            if is_valid_word(word):
                if len(tag_of) >= MAX_LEXICON_WORDS and word not in tag_of:
                    raise RemedyError(
                        f"The lexicon has more than {MAX_LEXICON_WORDS:,} words",
                        "Give fewer: words of your domain only, or set the limits of spacy_tener.WordList.v1.",
                    )
                tag_of.setdefault(word, tag)
        index_of = {name: index for index, name in enumerate(dict.fromkeys(["", *tag_of.values()]))}
        invalid = [name for name in index_of if _INVALID.search(name)]
        if invalid:
            raise RemedyError(
                f"The tag {invalid[0]!r} of a lexicon's word cannot be saved",
                "Give tags without NUL and halves of surrogate pairs.",
            )
        indices = np.fromiter(map(index_of.__getitem__, tag_of.values()), dtype=np.int32, count=len(tag_of))
        self._fill(list(tag_of), list(index_of), indices)

    def _fill(self, words: list[str], tag_names: list[str], tags: NDArray[np.int32]) -> None:
        self.words, self.tag_names, self.tags = words, tag_names, tags
        self.tags.flags.writeable = False
        self._window = max(_MATCHES_PER_WINDOW // max(len(set(map(len, words))), 1), 1)

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and simplify(word) in self._index_of

    def prepare(self) -> None:
        """Build the trie now, so that a service's first text need not wait, and forked workers share it."""
        self.trie  # noqa: B018 - a cached property

    def index(self, words: Sequence[str]) -> IntArray:
        """Return the index of each word, -1 where the lexicon lacks it. *Shape:* (words,)"""
        return np.fromiter((self._index_of.get(simplify(word), -1) for word in words), dtype=np.int64, count=len(words))

    def find(self, text: JoinedText, max_words: int | None = None) -> Match:
        """Find every word whose first character begins a token and whose last character ends one.

        Overlapping and nested words are all found; case matters, but not the script or width of characters: words and
        texts are compared in the forms of their characters. A word that crosses the boundary of a text is not found.

        text (JoinedText): Texts with any tokens: characters, words, or both.
        max_words (int | None): Maximum number of words that begin at one token; the longest are kept. It bounds the
            cost of a hostile text.
        RETURNS (Match): The words and their tokens.
        """
        if max_words is not None and max_words < 0:
            raise ValueError(f"max_words must be at least 0; got {max_words}.")
        words, heads, tails = np.concatenate([_NO_MATCHES, *self._find_all(text, max_words)], axis=1)
        doc_of_token = np.repeat(np.arange(text.lengths.size), text.lengths)
        doc_of_word = doc_of_token[heads]
        first_tokens = starts(text.lengths)[doc_of_word]
        counts = np.bincount(doc_of_word, minlength=text.lengths.size)
        return Match(words=words, heads=heads - first_tokens, tails=tails - first_tokens, counts=counts)

    def _find_all(self, text: JoinedText, max_words: int | None) -> Iterator[IntArray]:
        """Yield words, heads and tails of one window of the text at a time, so that matches that `max_words` drops do
        not fill the memory. *Shape:* (3, words) each
        """
        for start in range(0, len(text) if self.words else 0, self._window):
            first_indices, ends, words = self.trie.find(text.simplified.codes, start, start + self._window)
            heads, tails = text.tokens_starting[first_indices], text.tokens_ending[ends - 1]
            matches = np.flatnonzero((heads >= 0) & (tails >= 0))
            # Matches come in the order of their lengths.
            matches = matches[np.argsort(heads[matches], kind="stable")]
            if max_words is not None:
                matches = matches[longest_mask(heads[matches], max_words)]
            yield np.stack((words[matches], heads[matches], tails[matches]))

    @cached_property
    def trie(self) -> WordTrie:
        return WordTrie(self._indices_of_forms())

    @cached_property
    def _index_of(self) -> dict[str, int]:
        return self._indices_of_forms()

    def _indices_of_forms(self) -> dict[str, int]:
        """Return the index of the first word of each form."""
        # All words are simplified at once: no word contains the separator.
        forms = simplify(SEPARATOR.join(self.words)).split(SEPARATOR) if self.words else []
        return dict(zip(reversed(forms), reversed(range(len(forms))), strict=True))

    def to_bytes(self) -> bytes:
        """Serialize the words and tags, compressed."""
        message = {
            "words": SEPARATOR.join(self.words),
            "tag_names": self.tag_names,
            "tags": self.tags.astype("<i4").tobytes(),
        }
        # The lowest level takes a fifth of the default's time, for a tenth more bytes.
        data = zlib.compress(cast(bytes, srsly.msgpack_dumps(message)), level=1)
        _LOADED.setdefault(_digest(data), self)
        return data

    @classmethod
    def from_bytes(cls, data: bytes) -> Lexicon:
        """Load a lexicon from bytes of `to_bytes`. Equal bytes give the same object while it lives in this process, so
        that copies of a pipeline share words and trie."""
        key = _digest(data)
        lexicon = _LOADED.get(key)
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
            _LOADED[key] = lexicon
        return lexicon

    def __copy__(self) -> Lexicon:
        return self

    def __deepcopy__(self, memo: object) -> Lexicon:
        return self

    def __reduce__(self) -> tuple[object, tuple[bytes]]:
        return type(self).from_bytes, (self.to_bytes(),)


def is_valid_word(word: str) -> bool:
    """Return True if a lexicon takes the word."""
    return len(word) > 1 and not word.isspace() and not _INVALID.search(word)


_LOADED: weakref.WeakValueDictionary[bytes, Lexicon] = weakref.WeakValueDictionary()


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


def longest_mask(heads: IntArray, max_words: int) -> BoolArray:
    """Return a mask of the `max_words` longest words of each head. The words are sorted by (head, tail).

    *Shape:* (words,)
    """
    first_indices = np.flatnonzero(np.diff(heads, prepend=-1))
    sizes = np.diff(first_indices, append=heads.size)
    ends = np.repeat(first_indices + sizes, sizes)
    return ends - np.arange(heads.size) <= max_words
