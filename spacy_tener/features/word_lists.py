"""Lists of words of a trained pipeline, which can change while it runs, unlike its lexicon.

The list without a name applies to all Docs. A named list applies to Docs with its name in their extension attribute
`doc._.tener_words`: one name, or several. A dictionary there has words of this Doc alone, each with its label.
"""

from __future__ import annotations

import unicodedata
import warnings
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from spacy.tokens import Doc

from ..processes import cached_property, make_lock
from ..types import BoolArray, IntArray
from .characters import CodePoints, JoinedText
from .keys import simplify
from .lexicon import Lexicon, Match, WordTrie, longest_mask
from .tokens import TokenBatch

ATTRIBUTE = "tener_words"
"""The extension attribute of a Doc that names its lists."""
LOCK = make_lock()
"""Held while lists change; reading needs no lock."""

if not Doc.has_extension(ATTRIBUTE):  # so that Docs can name lists before there are any
    Doc.set_extension(ATTRIBUTE, default=None)


class WordListEntry(NamedTuple):
    """An entry of a list of words.

    tag (str): A tag that the pipeline was trained with; the empty string if unknown. In `entity_lists` the label.
    hidden (bool): Whether this is a word of the pipeline's lexicon that is no longer found.
    """

    tag: str = ""
    hidden: bool = False


# One object for equal entries: of a million words, this saves 70 MB and the garbage collector's time.
make_entry = lru_cache(maxsize=4096)(WordListEntry)


@dataclass(frozen=True, eq=False)
class WordList:
    """An immutable list of words.

    saved (bool): Whether it is saved with the pipeline.
    """

    entries: Mapping[str, WordListEntry] = field(default_factory=dict)
    saved: bool = True

    @cached_property
    def lexicon(self) -> Lexicon:
        """Lexicon of the words, including hidden ones."""
        return Lexicon(self.entries, (entry.tag for entry in self.entries.values()))

    @cached_property
    def trie(self) -> WordTrie:
        """The places of words in the list, by their forms."""
        return WordTrie({simplify(word): index for index, word in enumerate(self.entries)})

    @cached_property
    def listed(self) -> list[WordListEntry]:
        return list(self.entries.values())

    @cached_property
    def hidden(self) -> BoolArray:
        """Mask of the hidden words. *Shape:* (words,)"""
        return np.array([self.entries[word].hidden for word in self.lexicon.words], dtype=bool)

    @cached_property
    def hidden_lengths(self) -> frozenset[int]:
        """The distinct lengths of hidden words, in characters."""
        return frozenset(len(word) for word, entry in self.entries.items() if entry.hidden)

    def __deepcopy__(self, memo: object) -> WordList:
        return self


class WordLists:
    """The lists of an embedder, or of `entity_lists`, by name. Threads may read while one changes them."""

    def __init__(self) -> None:
        # Replaced as a whole, so that no thread sees half of a change.
        self.lists: dict[str, WordList] = {}
        self._register()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Finish a copy: deep or unpickled."""
        self.__dict__.update(state)
        self._register()

    def _register(self) -> None:
        with LOCK:
            _INSTANCES.add(self)

    def put(self, name: str, words: WordList | None) -> None:
        """Add or replace a list, or remove it, with None."""
        with LOCK:
            changed = {**self.lists, name: words}
            self.lists = {key: value for key, value in changed.items() if value is not None}

    def active(self, docs: Sequence[Doc]) -> list[tuple[WordList, IntArray]]:
        """Return the lists that apply to any of the Docs, each with the indices of its Docs. Later lists have priority.

        Of the lists that a Doc names, the last has the highest priority for that Doc.
        """
        lists = self.lists
        if not lists:
            return []
        docs_of: dict[tuple[int, str], list[int]] = {(-1, ""): list(range(len(docs)))} if "" in lists else {}
        for index, doc in enumerate(docs):
            for rank, name in enumerate(list_names(doc)):
                docs_of.setdefault((rank, name), []).append(index)
        unknown = _find_unknown({name for _, name in docs_of} - set(lists))
        if unknown:
            present = ", ".join(map(repr, filter(None, lists)))
            warnings.warn(
                f"doc._.{ATTRIBUTE} names unknown lists of words, which are ignored: {', '.join(map(repr, unknown))}. "
                f"Known lists: {present or 'none'}.",
                stacklevel=2,
            )
        found = [(lists[name], np.array(docs_of[rank, name])) for rank, name in sorted(docs_of) if name in lists]
        return [(words, indices) for words, indices in found if words.entries]

    def to_message(self) -> dict[str, list[tuple[Any, ...]]]:
        """Serialize the lists that are saved with the pipeline."""
        return {
            name: [(word, *entry) for word, entry in words.entries.items()]
            for name, words in self.lists.items()
            if words.saved and (name or words.entries)
        }

    def from_message(self, message: Mapping[str, Any]) -> None:
        """Load saved lists, in place of all lists that would be saved."""
        saved = {
            name: WordList({word: make_entry(tag, hidden) for word, tag, hidden in rows})
            for name, rows in message.items()
        }
        with LOCK:
            self.lists = {name: words for name, words in self.lists.items() if not words.saved} | saved


_INSTANCES: weakref.WeakSet[WordLists] = weakref.WeakSet()
"""All lists of the process: a Doc may name one of words that are evidence, and one of entities."""


def _find_unknown(names: set[str]) -> list[str]:
    """Return the names that no list of the process has."""
    if not names:
        return []
    with LOCK:
        return sorted(names.difference(*(words.lists for words in _INSTANCES)))


def list_names(doc: Doc) -> list[str]:
    """Return the names of lists in a Doc's extension attribute."""
    return [part for part in _parts(doc) if isinstance(part, str)]


def labelled_words(doc: Doc) -> list[tuple[Any, Any]]:
    """Return the words with labels in a Doc's extension attribute, unchecked: for `entity_lists`, its own words."""
    return [pair for part in _parts(doc) if isinstance(part, Mapping) for pair in part.items()]


def _parts(doc: Doc) -> list[Any]:
    value = getattr(doc._, ATTRIBUTE) if doc.user_data else None
    if value is None:
        return []
    parts = [value] if isinstance(value, str | Mapping) or not isinstance(value, Iterable) else list(value)
    if not all(isinstance(part, str | Mapping) for part in parts):
        raise ValueError(
            f"doc._.{ATTRIBUTE} must be the name of a list of words, or several; got {value!r}. A dictionary has words "
            "with their labels."
        )
    return parts


@dataclass(frozen=True)
class LayeredMatch:
    """Words of several lexicons in a batch of texts.

    match (Match): The words; each index in `words` refers to the lexicon of the word's layer.
    layers (IntArray): 0 for words of the model's lexicon, 1 for those of the first list, ... *Shape:* (words,)
    """

    match: Match
    layers: IntArray

    def listed(self, lists: Sequence[WordList]) -> tuple[list[tuple[str, WordListEntry]], IntArray]:
        """Return the distinct words of lists, and the index among them of each match with a layer above 0.

        *Shape:* (words with a layer above 0,)
        """
        listed = np.flatnonzero(self.layers)
        pairs, indices = np.unique(
            np.stack((self.layers[listed], self.match.words[listed])), axis=1, return_inverse=True
        )
        entries = []
        for layer, index in pairs.T.tolist():
            word_list = lists[layer - 1]
            word = word_list.lexicon.words[index]
            entries.append((word, word_list.entries[word]))
        return entries, indices.reshape(-1)


def find_layered(
    lexicon: Lexicon, tokens: TokenBatch, lists: Sequence[tuple[WordList, IntArray]], max_words: int | None
) -> LayeredMatch:
    """Find the words of a lexicon and of lists, as `Lexicon.find` does. For a word in several, the last list's entry
    counts; if it is hidden there, the word is not found.

    lists (Sequence[tuple[WordList, IntArray]]): Each with the indices of the texts that it applies to.
    """
    layers = [(lexicon, np.arange(len(tokens))), *((words.lexicon, indices) for words, indices in lists)]
    # Words that begin at one token differ in length, so at most one hidden word of each length is among the longest.
    hidden_lengths = frozenset().union(*(words.hidden_lengths for words, _ in lists))
    limit = None if max_words is None else max_words + len(hidden_lengths)
    columns = []
    for layer, (words, indices) in enumerate(layers):
        text = tokens.joined if len(indices) == len(tokens) else tokens.select(indices).joined
        match = words.find(text, limit)
        layer_of_word = np.full(match.words.size, layer)
        columns.append((np.repeat(indices, match.counts), match.heads, match.tails, layer_of_word, match.words))
    # Doc, head, tail, layer and index of each word, in this order. *Shape:* (5, words)
    table = np.concatenate(columns, axis=1)
    table = table[:, np.lexsort(table[3::-1])]
    highest = (np.diff(table[:3], axis=1, append=-1) != 0).any(axis=0)
    hidden = np.zeros(highest.size, dtype=bool)
    for layer, (word_list, _) in enumerate(lists, start=1):
        of_layer = np.flatnonzero(table[3] == layer)
        hidden[of_layer] = word_list.hidden[table[4, of_layer]]
    table = table[:, highest & ~hidden]
    if max_words is not None:
        heads = (np.diff(table[:2], axis=1, prepend=-1) != 0).any(axis=0).cumsum()
        table = table[:, longest_mask(heads, max_words)]
    counts = np.bincount(table[0], minlength=len(tokens))
    return LayeredMatch(Match(words=table[4], heads=table[1], tails=table[2], counts=counts), layers=table[3])


_LAST_CODE = 0xFFFF
_SPACED = (range(0x0E00), range(0x1AB0, 0x1B00), range(0x1DC0, 0x2000), range(0xFE20, 0xFE30), range(0xFF10, 0xFF5B))
"""Code points of scripts that put spaces between words: those up to Thai's, full-width letters, marks on letters."""


def find_list_words(words: WordList, text: JoinedText, docs: IntArray) -> IntArray:
    """Find the words of a list in some Docs of a batch, in any script, overlapping ones included, except where they cut
    a word of letters or a number.

    docs (IntArray): Indices of the Docs. *Shape:* (docs,)
    RETURNS (IntArray): First character and end of each word in the joined text, and its index in the list.
        *Shape:* (3, matches)
    """
    codes, tables = text.simplified.codes, [np.zeros((3, 0), dtype=np.int64)]
    for start, stop in _runs(docs, text.stops):
        table = words.trie.find(codes, start, stop)
        tables.append(table[:, ~_cuts_word(codes, table[:2]).any(axis=0)])
    return np.concatenate(tables, axis=1)


def _runs(docs: IntArray, stops: IntArray) -> list[tuple[int, int]]:
    """Return the begin and end of the texts of some Docs; consecutive Docs are one range."""
    first = np.flatnonzero(np.diff(docs, prepend=-2) != 1)
    last = np.append(first[1:], docs.size) - 1
    starts = np.append(0, stops[:-1] + 1)
    return list(zip(starts[docs[first]].tolist(), stops[docs[last]].tolist(), strict=True))


@lru_cache(maxsize=1)
def edge_classes() -> tuple[BoolArray, BoolArray, BoolArray]:
    """Return which code points are letters, marks on them, or digits, which are digits, and which are points within
    numbers.

    They are made when a list is first searched: most pipelines have none.
    """
    letters, digits, points = (np.zeros(_LAST_CODE + 1, dtype=bool) for _ in range(3))
    for code in chain.from_iterable(_SPACED):
        character = chr(code)
        letters[code] = character.isalnum() or unicodedata.category(character)[0] == "M"
        digits[code] = character.isdecimal()
    points[[ord(mark) for mark in ".,"]] = True
    return letters, digits, points


def _cuts_word(codes: CodePoints, edges: IntArray) -> BoolArray:
    """Mark edges within a word of letters, as of 'AI' in 'MAIL', or within a number, as of '50' in '3.50'."""
    # Wider than the rule of decoding (`letter_neighbours`): digits and other scripts count, a list weighs no context.
    # Of the characters before and after an edge. The separator stands for those outside of the text.
    letters, digits, points = edge_classes()
    padded = np.minimum(np.concatenate(([0, 0], codes, [0])), _LAST_CODE)
    earlier, before, after, later = (padded[edges + shift] for shift in range(4))
    is_in_word = letters[before] & letters[after]
    point_before = digits[earlier] & points[before] & digits[after]
    point_after = digits[before] & points[after] & digits[later]
    mask: BoolArray = is_in_word | point_before | point_after
    return mask
