"""Word lists that users add to a trained pipeline, and can change at any time, unlike the lexicon of its model.

Word lists extend the lexicon of `LexiconEmbed`, correct the words of segmenters, and are the entity lists of the
component `entity_lists`. The list with an empty name applies to all Docs. A named list applies to Docs that opt in to
it with the extension attribute `doc._.tener_words`, which contains one or several names. For `entity_lists`, the
attribute can also contain dictionaries with words for a single Doc and their labels:

    doc._.tener_words = ["customers", {"Acme": "ORG"}]
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

# The extension attribute with the names of the lists that apply to a Doc.
ATTRIBUTE = "tener_words"
# Lists are replaced under this lock. Using lists needs no lock, since they are immutable.
LOCK = make_lock()

# The extension is registered on import, so that users can set the attribute before they add a list.
if not Doc.has_extension(ATTRIBUTE):
    Doc.set_extension(ATTRIBUTE, default=None)


class WordListEntry(NamedTuple):
    """The entry for a word in a word list.

    tag (str): The tag of the word, which must occur in training, or the empty string. In `entity_lists`, the label.
    hidden (bool): Whether the entry removes a word of the lexicon, which is then no longer found.
    """

    tag: str = ""
    hidden: bool = False


# Equal entries share one object. This saves 70 MB for a million words, and time for garbage collection.
make_entry = lru_cache(maxsize=4096)(WordListEntry)


@dataclass(frozen=True, eq=False)
class WordList:
    """An immutable list of words.

    entries (Mapping[str, WordListEntry]): The words and their entries.
    saved (bool): Whether the list is saved with the pipeline.
    """

    entries: Mapping[str, WordListEntry] = field(default_factory=dict)
    saved: bool = True

    @cached_property
    def lexicon(self) -> Lexicon:
        """The words as a lexicon, including hidden words."""
        return Lexicon(self.entries, (entry.tag for entry in self.entries.values()))

    @cached_property
    def trie(self) -> WordTrie:
        """A trie of the simplified words, which returns the index of each word in `listed`."""
        return WordTrie({simplify(word): index for index, word in enumerate(self.entries)})

    @cached_property
    def listed(self) -> list[WordListEntry]:
        return list(self.entries.values())

    @cached_property
    def hidden(self) -> BoolArray:
        """A mask of the hidden words in the lexicon. *Shape:* (words,)"""
        return np.array([self.entries[word].hidden for word in self.lexicon.words], dtype=bool)

    @cached_property
    def hidden_lengths(self) -> frozenset[int]:
        """The distinct lengths of hidden words, in characters."""
        return frozenset(len(word) for word, entry in self.entries.items() if entry.hidden)

    def __deepcopy__(self, memo: object) -> WordList:
        return self


class WordLists:
    """The word lists of an embedder or of `entity_lists`, by name. Threads can share them while one changes a list."""

    def __init__(self) -> None:
        # The dictionary is replaced and never modified, so that other threads see either the old or the new lists.
        self.lists: dict[str, WordList] = {}
        self._register()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Register a copied or unpickled object."""
        self.__dict__.update(state)
        self._register()

    def _register(self) -> None:
        with LOCK:
            _INSTANCES.add(self)

    def put(self, name: str, words: WordList | None) -> None:
        """Add or replace a list. If `words` is None, remove the list."""
        with LOCK:
            changed = {**self.lists, name: words}
            self.lists = {key: value for key, value in changed.items() if value is not None}

    def active(self, docs: Sequence[Doc]) -> list[tuple[WordList, IntArray]]:
        """Return the lists that apply to at least one of the Docs, by ascending priority, with the indices of these
        Docs.

        The unnamed list has the lowest priority, and the last list that a Doc names has the highest priority for the
        Doc. A name that does not exist causes a warning.
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
        """Return the lists that are saved with the pipeline, for serialization."""
        return {
            name: [(word, *entry) for word, entry in words.entries.items()]
            for name, words in self.lists.items()
            if words.saved and (name or words.entries)
        }

    def from_message(self, message: Mapping[str, Any]) -> None:
        """Replace all lists that are saved with the pipeline by the lists that `to_message` returned."""
        saved = {
            name: WordList({word: make_entry(tag, hidden) for word, tag, hidden in rows})
            for name, rows in message.items()
        }
        with LOCK:
            self.lists = {name: words for name, words in self.lists.items() if not words.saved} | saved


# All lists of the process. A Doc can name lists of different components, so that a name is unknown only if no component
# has a list with this name.
_INSTANCES: weakref.WeakSet[WordLists] = weakref.WeakSet()


def _find_unknown(names: set[str]) -> list[str]:
    """Return the names for which no component of the process has a list."""
    if not names:
        return []
    with LOCK:
        return sorted(names.difference(*(words.lists for words in _INSTANCES)))


def list_names(doc: Doc) -> list[str]:
    """Return the names of lists in the extension attribute of a Doc."""
    return [part for part in _parts(doc) if isinstance(part, str)]


def labelled_words(doc: Doc) -> list[tuple[Any, Any]]:
    """Return the words and labels in the extension attribute of a Doc, without checking them."""
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
    """The words of a lexicon and of word lists that occur in a batch of texts.

    match (Match): The matched words. The indices in `match.words` refer to the lexicon of the word's layer.
    layers (IntArray): 0 for words of the model's lexicon, 1 for words of the first list, and so on. *Shape:* (words,)
    """

    match: Match
    layers: IntArray

    def listed(self, lists: Sequence[WordList]) -> tuple[list[tuple[str, WordListEntry]], IntArray]:
        """Return the distinct words that come from lists.

        lists (Sequence[WordList]): The lists, in the order of the layers.
        RETURNS (tuple[list[tuple[str, WordListEntry]], IntArray]): The distinct words with their entries, and the index
            of the distinct word for each match with a layer above 0. *Shape:* (matches of lists,)
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
    """Find the words of a lexicon and of word lists in a batch of texts, like `Lexicon.find`.

    If a word is in several lists, the entry of the last list is used. If this entry is hidden, the word is not found.

    lexicon (Lexicon): The lexicon of the model.
    tokens (TokenBatch): The texts.
    lists (Sequence[tuple[WordList, IntArray]]): The lists, each with the indices of the texts to which it applies.
    max_words (int | None): Maximum number of words that start with the same token.
    RETURNS (LayeredMatch): The words.
    """
    layers = [(lexicon, np.arange(len(tokens))), *((words.lexicon, indices) for words, indices in lists)]
    # Hidden words are removed after the search. Words with the same first token have different lengths, so that at most
    # one hidden word of each length can take the place of another word among the longest.
    hidden_lengths = frozenset().union(*(words.hidden_lengths for words, _ in lists))
    limit = None if max_words is None else max_words + len(hidden_lengths)
    columns = []
    for layer, (words, indices) in enumerate(layers):
        text = tokens.joined if len(indices) == len(tokens) else tokens.select(indices).joined
        match = words.find(text, limit)
        layer_of_word = np.full(match.words.size, layer)
        columns.append((np.repeat(indices, match.counts), match.heads, match.tails, layer_of_word, match.words))
    # The text, head, tail, layer and index of each word. Sorting by these columns puts the matches of one word in
    # several layers next to each other, with the highest layer last. *Shape:* (5, words)
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
# Code points of scripts that separate words by spaces: scripts before Thai, full-width letters, and combining marks.
_SPACED = (range(0x0E00), range(0x1AB0, 0x1B00), range(0x1DC0, 0x2000), range(0xFE20, 0xFE30), range(0xFF10, 0xFF5B))


def find_list_words(words: WordList, text: JoinedText, docs: IntArray) -> IntArray:
    """Find the words of a list in some Docs of a batch by characters, including overlapping words.

    Matches inside a word or a number are left out: 'AI' does not match in 'MAIL'. This applies to scripts that separate
    words by spaces.

    words (WordList): The list.
    text (JoinedText): The texts of the batch.
    docs (IntArray): Indices of the Docs. *Shape:* (docs,)
    RETURNS (IntArray): The first character, the end (exclusive), and the index in the list for each match. *Shape:*
        (3, matches)
    """
    codes, tables = text.simplified.codes, [np.zeros((3, 0), dtype=np.int64)]
    for start, stop in _runs(docs, text.stops):
        table = words.trie.find(codes, start, stop)
        # The original characters, because the simplified form of the numbers in '①AI' and 'AI²' is a digit.
        tables.append(table[:, ~_cuts_word(text.codes, table[:2]).any(axis=0)])
    return np.concatenate(tables, axis=1)


def _runs(docs: IntArray, stops: IntArray) -> list[tuple[int, int]]:
    """Return the ranges of characters that contain the texts of some Docs. Consecutive Docs form a single range."""
    first = np.flatnonzero(np.diff(docs, prepend=-2) != 1)
    last = np.append(first[1:], docs.size) - 1
    starts = np.append(0, stops[:-1] + 1)
    return list(zip(starts[docs[first]].tolist(), stops[docs[last]].tolist(), strict=True))


@lru_cache(maxsize=1)
def edge_classes() -> tuple[BoolArray, BoolArray, BoolArray]:
    """Return masks of code points: letters, marks and digits; digits; and decimal separators. *Shape:* (65536,) each

    The masks contain only scripts that separate words by spaces. They are computed when a list is first searched, since
    most pipelines contain no list.
    """
    letters, digits, points = (np.zeros(_LAST_CODE + 1, dtype=bool) for _ in range(3))
    for code in chain.from_iterable(_SPACED):
        # Letters, marks and decimal digits. Superscript numbers have the category No: they are notes or exponents.
        category = unicodedata.category(chr(code))
        letters[code] = category[0] in "LM" or category == "Nd"
        digits[code] = category == "Nd"
    # The full-width comma separates clauses, not digits.
    points[[ord(mark) for mark in ".,\N{FULLWIDTH FULL STOP}"]] = True
    return letters, digits, points


def _cuts_word(codes: CodePoints, edges: IntArray) -> BoolArray:
    """Return whether boundaries are inside a word, such as 'AI' in 'MAIL', or inside a number, such as '50' in '3.50'.

    codes (CodePoints): The text. *Shape:* (characters,)
    edges (IntArray): Boundaries, as the index of the character after each boundary.
    RETURNS (BoolArray): A mask with the shape of `edges`.
    """
    # This rule also applies to digits and other scripts, unlike the rule for predicted entities (`letter_neighbours`),
    # since a list cannot take the context into account. Zeros stand for the characters before and after the text.
    letters, digits, points = edge_classes()
    padded = np.minimum(np.concatenate(([0, 0], codes, [0])), _LAST_CODE)
    earlier, before, after, later = (padded[edges + shift] for shift in range(4))
    is_in_word = letters[before] & letters[after]
    point_before = digits[earlier] & points[before] & digits[after]
    point_after = digits[before] & points[after] & digits[later]
    mask: BoolArray = is_in_word | point_before | point_after
    return mask
