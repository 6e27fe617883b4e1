"""Word lists that users add to a trained pipeline.

Unlike a model's lexicon, word lists can be changed without training.

Word lists are used in three ways: they extend the lexicon in `LexiconEmbed`, correct the output of word segmenters, and
are the gazetteers in the component `entity_lists`. The unnamed list applies to all Docs. A named list applies only to
Docs that contain the list's name in the extension attribute `doc._.tener_words`. For `entity_lists`, this attribute can
also contain words and labels that apply to a single Doc:

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
from .lexicon import Lexicon, Match, WordTrie, index_forms, longest_mask
from .tokens import TokenBatch

# Extension attribute with the names of the lists that apply to a Doc.
ATTRIBUTE = "tener_words"
# Lock for replacing word lists. Matching needs no lock, since word lists are immutable.
LOCK = make_lock()

# The attribute is registered on import, so that users can set it before they add a word list.
if not Doc.has_extension(ATTRIBUTE):
    Doc.set_extension(ATTRIBUTE, default=None)


class WordListEntry(NamedTuple):
    """The properties of a word in a word list.

    tag (str): In `entity_lists`, the entity label. Otherwise a word tag that occurs in the training data, or the empty
        string.
    hidden (bool): Whether the word is removed from the lexicon, so that it no longer matches.
    """

    tag: str = ""
    hidden: bool = False


# Cache entries, so that all words with the same tag share one object. This saves 70 MB for a million words.
make_entry = lru_cache(maxsize=4096)(WordListEntry)


@dataclass(frozen=True, eq=False)
class WordList:
    """An immutable word list.

    entries (Mapping[str, WordListEntry]): The entry for each word.
    saved (bool): Whether the list is saved with the pipeline.
    """

    entries: Mapping[str, WordListEntry] = field(default_factory=dict)
    saved: bool = True

    @cached_property
    def lexicon(self) -> Lexicon:
        """A lexicon that contains all words in the list, including hidden words."""
        return Lexicon(self.entries, (entry.tag for entry in self.entries.values()))

    @cached_property
    def trie(self) -> WordTrie:
        """A trie of all forms of the words. The value of each form is the index of its word in `listed`."""
        return WordTrie(self.forms)

    @cached_property
    def forms(self) -> dict[str, int]:
        """The index in `listed` for each form of a word in simplified Chinese script (see `index_forms`)."""
        return index_forms(list(self.entries), range(len(self.entries)))

    @cached_property
    def listed(self) -> list[WordListEntry]:
        return list(self.entries.values())

    @cached_property
    def hidden(self) -> BoolArray:
        """Whether each word in `lexicon` is hidden. *Shape:* (words,)"""
        return np.array([self.entries[word].hidden for word in self.lexicon.words], dtype=bool)

    @cached_property
    def hidden_lengths(self) -> frozenset[int]:
        """The lengths of all forms of hidden words in characters, without duplicates."""
        return frozenset(len(form) for form, index in self.forms.items() if self.listed[index].hidden)

    def __deepcopy__(self, memo: object) -> WordList:
        return self


class WordLists:
    """All word lists in an embedding layer or in `entity_lists`, by name. This class is thread-safe."""

    def __init__(self) -> None:
        # Changes replace this dictionary instead of modifying it, so that other threads can use it without a lock.
        self.lists: dict[str, WordList] = {}
        self._register()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a copied or unpickled object, and register it like a new object."""
        self.__dict__.update(state)
        self._register()

    def _register(self) -> None:
        with LOCK:
            _INSTANCES.add(self)

    def put(self, name: str, words: WordList | None) -> None:
        """Add or replace the word list with the given name. If `words` is None, remove the list."""
        with LOCK:
            changed = {**self.lists, name: words}
            self.lists = {key: value for key, value in changed.items() if value is not None}

    def active(self, docs: Sequence[Doc]) -> list[tuple[WordList, IntArray]]:
        """Return the word lists that apply to at least one of the Docs.

        If several lists contain the same word, later lists take precedence. The unnamed list comes first, then named
        lists in the order in which the Docs name them. Unknown names cause a warning.

        docs (Sequence[Doc]): The Docs.
        RETURNS (list[tuple[WordList, IntArray]]): The lists, each with the indices of the Docs to which it applies.
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
                f"doc._.{ATTRIBUTE} contains unknown names of word lists, which are ignored: "
                f"{', '.join(map(repr, unknown))}. "
                f"Known lists: {present or 'none'}.",
                stacklevel=2,
            )
        found = [(lists[name], np.array(docs_of[rank, name])) for rank, name in sorted(docs_of) if name in lists]
        return [(words, indices) for words, indices in found if words.entries]

    def to_message(self) -> dict[str, list[tuple[Any, ...]]]:
        """Return all lists that are saved with the pipeline, in a format that can be serialized with msgpack."""
        return {
            name: [(word, *entry) for word, entry in words.entries.items()]
            for name, words in self.lists.items()
            if words.saved and (name or words.entries)
        }

    def from_message(self, message: Mapping[str, Any]) -> None:
        """Load word lists that were serialized by `to_message`.

        They replace all lists that are saved with the pipeline.
        """
        saved = {
            name: WordList({word: make_entry(tag, hidden=hidden) for word, tag, hidden in rows})
            for name, rows in message.items()
        }
        with LOCK:
            self.lists = {name: words for name, words in self.lists.items() if not words.saved} | saved


# The word lists of all components in this process. A Doc can name lists from several components. A component warns
# about a name only if no other component has a list with this name.
_INSTANCES: weakref.WeakSet[WordLists] = weakref.WeakSet()


def _find_unknown(names: set[str]) -> list[str]:
    """Return the names that no component in this process uses for a word list."""
    if not names:
        return []
    with LOCK:
        return sorted(names.difference(*(words.lists for words in _INSTANCES)))


def list_names(doc: Doc) -> list[str]:
    """Return the names of word lists in the attribute `doc._.tener_words`."""
    return [part for part in _parts(doc) if isinstance(part, str)]


def labelled_words(doc: Doc) -> list[tuple[Any, Any]]:
    """Return the words and labels in the attribute `doc._.tener_words`. Their types are not checked."""
    return [pair for part in _parts(doc) if isinstance(part, Mapping) for pair in part.items()]


def _parts(doc: Doc) -> list[Any]:
    value = getattr(doc._, ATTRIBUTE) if doc.user_data else None
    if value is None:
        return []
    parts = [value] if isinstance(value, str | Mapping) or not isinstance(value, Iterable) else list(value)
    if not all(isinstance(part, str | Mapping) for part in parts):
        raise ValueError(
            f"doc._.{ATTRIBUTE} must be the name of a word list, a dictionary of words and labels, or a list of "
            f"these; got {value!r}."
        )
    return parts


@dataclass(frozen=True)
class LayeredMatch:
    """The matches of a lexicon and several word lists in a batch of texts.

    match (Match): The matched words. `match.words` contains indices in the lexicon or in the word list that matched.
    layers (IntArray): The source of each match: 0 for the lexicon, 1 for the first word list, and so on. *Shape:*
        (words,)
    """

    match: Match
    layers: IntArray

    def listed(self, lists: Sequence[WordList]) -> tuple[list[tuple[str, WordListEntry]], IntArray]:
        """Return the distinct words that were matched by word lists, without lexicon matches.

        lists (Sequence[WordList]): The word lists that were passed to `find_layered`.
        RETURNS (tuple[list[tuple[str, WordListEntry]], IntArray]): The distinct words with their entries, and an array
            with the index of the matched word for each word list match. *Shape:* (word list matches,)
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
    """Find all occurrences of the words in a lexicon and in several word lists.

    If several word lists contain the same word, the last list takes precedence. Words that are hidden in this list do
    not match. See `Lexicon.find`.

    lexicon (Lexicon): The model's lexicon.
    tokens (TokenBatch): The texts.
    lists (Sequence[tuple[WordList, IntArray]]): The word lists, each with the indices of the texts to which it applies.
    max_words (int | None): Maximum number of matches that start at the same token. The longest words are preferred.
        None for no limit.
    RETURNS (LayeredMatch): The matches.
    """
    layers = [(lexicon, np.arange(len(tokens))), *((words.lexicon, indices) for words, indices in lists)]
    # Hidden words are removed after matching. At most one hidden word of each length starts at a token, so increasing
    # the limit by the number of lengths still leaves `max_words` other words.
    hidden_lengths = frozenset().union(*(words.hidden_lengths for words, _ in lists))
    limit = None if max_words is None else max_words + len(hidden_lengths)
    columns = []
    for layer, (words, indices) in enumerate(layers):
        text = tokens.joined if len(indices) == len(tokens) else tokens.select(indices).joined
        match = words.find(text, limit)
        layer_of_word = np.full(match.words.size, layer)
        columns.append((np.repeat(indices, match.counts), match.heads, match.tails, layer_of_word, match.words))
    # Each column is a match: text, first token, last token, layer, word index. Sort the columns, so that matches of the
    # same tokens are adjacent, and keep the match with the highest layer. *Shape:* (5, matches)
    table = np.concatenate(columns, axis=1)
    # `np.lexsort` expects the primary key last.
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
# The combining voiced and semi-voiced sound marks of kana.
SOUND_MARKS = (0x3099, 0x309A)
# Code points of scripts with spaces between words: all scripts before Thai, full-width letters, and combining marks.
_SPACED = (range(0x0E00), range(0x1AB0, 0x1B00), range(0x1DC0, 0x2000), range(0xFE20, 0xFE30), range(0xFF10, 0xFF5B))


def find_list_words(words: WordList, text: JoinedText, docs: IntArray) -> IntArray:
    """Find all occurrences of listed words, including overlapping matches. Matches do not need to align with tokens.

    In scripts that separate words by spaces, only complete words and numbers match. For example, 'AI' does not match in
    'MAIL'.

    words (WordList): The word list.
    text (JoinedText): The concatenated texts of a batch.
    docs (IntArray): Indices of the texts to search. *Shape:* (docs,)
    RETURNS (IntArray): The start, the end (exclusive) and the word index for each match. *Shape:* (3, matches)
    """
    codes, tables = text.simplified.codes, [np.zeros((3, 0), dtype=np.int64)]
    for start, stop in _runs(docs, text.stops):
        table = words.trie.find(codes, start, stop)
        # Check the original characters, because the numbers in '①AI' and 'AI²' are simplified to digits.
        tables.append(table[:, ~_cuts_word(text.codes, table[:2]).any(axis=0)])
    return np.concatenate(tables, axis=1)


def _runs(docs: IntArray, stops: IntArray) -> list[tuple[int, int]]:
    """Return the start and end characters of some texts in a batch. Consecutive texts are merged into one range.

    docs (IntArray): Indices of the texts, in ascending order. *Shape:* (docs,)
    stops (IntArray): Index of the separator after each text in the batch. *Shape:* (texts,)
    """
    first = np.flatnonzero(np.diff(docs, prepend=-2) != 1)
    last = np.append(first[1:], docs.size) - 1
    starts = np.append(0, stops[:-1] + 1)
    return list(zip(starts[docs[first]].tolist(), stops[docs[last]].tolist(), strict=True))


@lru_cache(maxsize=1)
def edge_classes() -> tuple[BoolArray, BoolArray, BoolArray]:
    """Return boolean lookup tables, indexed by code point, for matching word lists. *Shape:* (65536,) each

    The three tables are True for letters, digits and combining marks; for digits; and for decimal separators. They are
    False for scripts without spaces between words, such as Chinese. The tables are computed on first use, since most
    pipelines have no word lists.
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
    """Return whether each match boundary splits a word or a number.

    For example, matching '50' splits the number '3.50'.

    codes (CodePoints): The text's code points. *Shape:* (characters,)
    edges (IntArray): Match boundaries, as the index of the character that follows the boundary.
    RETURNS (BoolArray): Mask with the same shape as `edges`.
    """
    # Boundaries in numbers and in all scripts with spaces are checked. `letter_neighbours`, which restricts the
    # entities that a model predicts, is less strict, since a model can take the context into account.
    letters, digits, points = edge_classes()
    # Pad the text with zeros, so that each boundary has two characters on both sides.
    padded = np.minimum(np.concatenate(([0, 0], codes, [0])), _LAST_CODE)
    earlier, before, after, later = (padded[edges + shift] for shift in range(4))
    is_in_word = letters[before] & letters[after]
    point_before = digits[earlier] & points[before] & digits[after]
    point_after = digits[before] & points[after] & digits[later]
    # A sound mark after kana belongs to the character before it: in NFD, ガ is カ with a mark.
    mask: BoolArray = is_in_word | point_before | point_after | np.isin(after, SOUND_MARKS)
    return mask
