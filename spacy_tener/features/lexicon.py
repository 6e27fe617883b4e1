"""Immutable word lists (lexicons), and a trie that finds their words in a batch of texts.

`LexiconEmbed` uses lexicons for models that encode words, such as FLAT. `word_lists.py` uses the trie for lists that
users can change after training. `lexicon_sources.py` contains the registered functions that create lexicons.
"""

from __future__ import annotations

import re
import unicodedata
import weakref
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import cast

import numpy as np
import srsly
from numpy.typing import NDArray

from ..errors import UserError
from ..processes import cached_property
from ..sequences import starts
from ..types import BoolArray, IntArray
from .characters import SEPARATOR, CodePoints, JoinedText, code_points, lengths_of
from .keys import Keys, mix, search, simplify

# Texts are searched in parts with at most this many matches. A match needs about 70 bytes, so a part needs up to 20 MB.
_MATCHES_PER_WINDOW = 1 << 18
# Maximum number of words in a lexicon. A lexicon of this size needs about 700 MB and takes 8 seconds to build.
MAX_LEXICON_WORDS = 5_000_000
# Words must not contain the text separator, or surrogates, which cannot be encoded as UTF-8.
_INVALID = re.compile("[" + SEPARATOR + "\ud800-\udfff]")
# Number of bits for a code point in an edge, and the first node number that is not a code point.
_CODE_BITS, _FIRST_NODE = np.uint64(21), 0x110000
_NO_MATCHES = np.zeros((3, 0), dtype=np.int64)


@dataclass(frozen=True)
class Match:
    """The lexicon words that occur in a batch of texts, sorted by text, first token and last token.

    words (IntArray): Index of each word in the lexicon. *Shape:* (words,)
    heads (IntArray): Position of each word's first token in its text. *Shape:* (words,)
    tails (IntArray): Position of each word's last token in its text. *Shape:* (words,)
    counts (IntArray): Number of words in each text. *Shape:* (texts,)
    """

    words: IntArray
    heads: IntArray
    tails: IntArray
    counts: IntArray


class WordTrie:
    """A trie that finds all occurrences of words in a text. Its edges are stored in a sorted NumPy array.

    Each node represents a prefix. The node for a single character is its code point, and nodes for longer prefixes are
    numbered from 0x110000. An edge is stored as the 64-bit key `node << 21 | code point`, so that it is found by binary
    search:

        words  ab, abc      edges  a|b -> 0x110000 (word ab),  0x110000|c -> 0x110001 (word abc)

    The search starts at all characters of the text. Each iteration follows one edge from all remaining positions, which
    is a single call of `np.searchsorted`. The search is as fast as an Aho-Corasick automaton in Rust, and building the
    trie is three times as fast (research/results/lexicon.md).

    words (Mapping[str, int]): The words and their indices. Each word has at least two characters.
    """

    def __init__(self, words: Mapping[str, int]) -> None:
        lengths, codes = lengths_of(words), code_points("".join(words)).astype(np.uint64)
        first_indices, rest = starts(lengths), np.arange(lengths.size)
        indices = np.fromiter(words.values(), dtype=np.int64, count=lengths.size)
        # A mask of the hashed first two characters of all words (a Bloom filter with a single hash function). It
        # excludes most positions in a text, which makes the search twice as fast. With at least eight entries per word,
        # collisions are rare.
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
        # The concatenated edges are sorted, since nodes for longer prefixes have higher numbers. `_words` contains the
        # index of the word that each edge completes, or -1.
        self._edges, self._words = np.concatenate(edges), np.concatenate(ends)

    def find(self, codes: CodePoints, start: int, stop: int) -> IntArray:
        """Find all words that begin in a range of a text, including overlapping words. Shorter words come first.

        codes (CodePoints): Code points of the text, in simplified script. *Shape:* (characters,)
        start, stop (int): The character range.
        RETURNS (IntArray): For each match, the first character, the end (exclusive), and the word's index.
            *Shape:* (3, matches)
        """
        stop = min(stop, codes.size - 1)  # no bigram starts at the last separator
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
    """An immutable list of words with at least two characters. A word can have a tag, such as its part of speech.

    Invalid words are ignored: single characters, white space, and strings with a NUL or a surrogate. If a word occurs
    several times, the first tag is used. A lexicon with more than five million words raises an error.

    The trie is built by `prepare` or by the first search. It is not saved, since building it takes only 0.25 seconds
    for 350,000 words. Copies of a lexicon are the same object, and forked processes share the trie's memory.

    words (Iterable[str]): The words.
    tags (Iterable[str] | None): Each word's tag. An empty string stands for no tag.

    Attributes:

    words (list[str]): The valid words.
    tag_names (list[str]): An empty string, followed by the distinct tags.
    tags (NDArray[np.int32]): Index of each word's tag in `tag_names`. *Shape:* (words,)
    """

    words: list[str]
    tag_names: list[str]
    tags: NDArray[np.int32]

    def __init__(self, words: Iterable[str], tags: Iterable[str] | None = None) -> None:
        tag_of: dict[str, str] = {}
        for word, tag in zip(words, tags, strict=True) if tags is not None else ((word, "") for word in words):
            if is_valid_word(word):
                if len(tag_of) >= MAX_LEXICON_WORDS and word not in tag_of:
                    raise UserError(
                        f"The lexicon has more than {MAX_LEXICON_WORDS:,} words",
                        "Use fewer words, such as only the words of your domain, or exclude words with the settings "
                        "min_frequency and max_length of spacy_tener.WordList.v1.",
                    )
                tag_of.setdefault(word, tag)
        index_of = {name: index for index, name in enumerate(dict.fromkeys(["", *tag_of.values()]))}
        invalid = [name for name in index_of if _INVALID.search(name)]
        if invalid:
            raise UserError(
                f"The tag {invalid[0]!r} of a word in the lexicon cannot be saved",
                "Use tags without NUL characters or lone surrogates.",
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
        """Build the trie before the first search.

        This avoids a delay for the first text in a service, and allows forked processes to share the trie's memory.
        """
        self.trie  # noqa: B018 - a cached property

    def index(self, words: Sequence[str]) -> IntArray:
        """Return each word's index, or -1 for words that are not in the lexicon. *Shape:* (words,)"""
        return np.fromiter((self._index_of.get(simplify(word), -1) for word in words), dtype=np.int64, count=len(words))

    def find(self, text: JoinedText, max_words: int | None = None) -> Match:
        """Find all words that start and end at token boundaries, including overlapping and nested words.

        The search is case-sensitive. It ignores the difference between traditional and simplified characters, and
        between full-width and half-width letters (see `simplify`), and between the Unicode forms NFC and NFD.

        text (JoinedText): The texts.
        max_words (int | None): Maximum number of words that start with the same token. The longest words are returned.
            This limits the cost of texts with many nested words.
        RETURNS (Match): The words and their positions.
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
        """Yield the word indices, first tokens and last tokens of matches, for one part of the texts at a time.

        `max_words` is applied to each part, to limit the memory that matches need. *Shape:* (3, matches) each
        """
        for start in range(0, len(text) if self.words else 0, self._window):
            first_indices, ends, words = self.trie.find(text.simplified.codes, start, start + self._window)
            heads, tails = text.tokens_starting[first_indices], text.tokens_ending[ends - 1]
            matches = np.flatnonzero((heads >= 0) & (tails >= 0))
            # `WordTrie.find` returns shorter words first. A stable sort by first token therefore results in the order
            # (first token, last token).
            matches = matches[np.argsort(heads[matches], kind="stable")]
            if max_words is not None:
                matches = matches[longest_mask(heads[matches], max_words)]
            yield np.stack((words[matches], heads[matches], tails[matches]))

    @cached_property
    def trie(self) -> WordTrie:
        return WordTrie(self._index_of)

    @cached_property
    def _index_of(self) -> dict[str, int]:
        # If several words have the same form, the first is used.
        return index_forms(self.words[::-1], range(len(self.words))[::-1])

    def to_bytes(self) -> bytes:
        """Serialize the words and tags to compressed bytes."""
        message = {
            "words": SEPARATOR.join(self.words),
            "tag_names": self.tag_names,
            "tags": self.tags.astype("<i4").tobytes(),
        }
        # Compared with the default level, level 1 takes a fifth of the time and results in 10 % more bytes.
        data = zlib.compress(cast(bytes, srsly.msgpack_dumps(message)), level=1)
        _LOADED.setdefault(_digest(data), self)
        return data

    @classmethod
    def from_bytes(cls, data: bytes) -> Lexicon:
        """Load a lexicon from the result of `to_bytes`.

        If the same lexicon has already been loaded and is in use, the existing object is returned. Copies of a pipeline
        therefore share the lexicon and its trie.
        """
        key = _digest(data)
        lexicon = _LOADED.get(key)
        if lexicon is None:
            try:
                saved = srsly.msgpack_loads(zlib.decompress(data))
                words = saved["words"].split(SEPARATOR) if saved["words"] else []
                tags = np.frombuffer(saved["tags"], "<i4").astype(np.int32)
                if len(tags) != len(words) or tags.max(initial=0) >= len(saved["tag_names"]):
                    raise ValueError("the numbers of words and tags differ, or a tag index is out of range")
                lexicon = cls.__new__(cls)
                lexicon._fill(words, saved["tag_names"], tags)
            except (zlib.error, ValueError, KeyError, TypeError, AttributeError) as error:
                raise ValueError(
                    f"The data ({len(data)} bytes) is not a saved lexicon: {error!r}. Save the lexicon again."
                ) from error
            _LOADED[key] = lexicon
        return lexicon

    def __copy__(self) -> Lexicon:
        return self

    def __deepcopy__(self, memo: object) -> Lexicon:
        return self

    def __reduce__(self) -> tuple[object, tuple[bytes]]:
        return type(self).from_bytes, (self.to_bytes(),)


def index_forms(words: Sequence[str], indices: Sequence[int]) -> dict[str, int]:
    """Return the index of each word by all forms in which the word is searched.

    The forms are the simplified word (see `simplify`), and its Unicode forms NFC and NFD. A text can be in any of them,
    but is not normalized itself, because that would change its character offsets. A text that mixes the forms inside of
    a word is not supported. If several words have the same form, the last word is used.

    words (Sequence[str]): The words.
    indices (Sequence[int]): The index of each word.
    """
    if not words:
        return {}
    # Converting a single long string is faster than converting each word.
    simplified = simplify(SEPARATOR.join(words))
    index_of: dict[str, int] = {}
    for normal_form in ("NFD", "NFC"):
        if not unicodedata.is_normalized(normal_form, simplified):
            forms = simplify(unicodedata.normalize(normal_form, simplified)).split(SEPARATOR)
            # The trie supports only words with at least two characters.
            index_of.update(pair for pair in zip(forms, indices, strict=True) if len(pair[0]) > 1)
    index_of.update(zip(simplified.split(SEPARATOR), indices, strict=True))
    return index_of


def is_valid_word(word: str) -> bool:
    """Return whether a lexicon can contain a word."""
    return len(word) > 1 and not word.isspace() and not _INVALID.search(word)


_LOADED: weakref.WeakValueDictionary[bytes, Lexicon] = weakref.WeakValueDictionary()


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


def longest_mask(heads: IntArray, max_words: int) -> BoolArray:
    """Return a mask of the `max_words` longest words that start with each token. *Shape:* (words,)

    heads (IntArray): First token of each word. The words must be sorted by first token and last token.
        *Shape:* (words,)
    """
    first_indices = np.flatnonzero(np.diff(heads, prepend=-1))
    sizes = np.diff(first_indices, append=heads.size)
    ends = np.repeat(first_indices + sizes, sizes)
    return ends - np.arange(heads.size) <= max_words
