"""The component `entity_lists`, which `nlp.add_pipe("entity_lists")` adds to a pipeline: words that are always labelled
as entities, and blocked words that are never labelled."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import srsly
from spacy.attrs import ENT_IOB
from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.vocab import Vocab

from ..errors import InputError, RemedyError
from ..features.keys import simplify
from ..features.lexicon_sources import read_list
from ..features.tokens import join_texts
from ..features.word_lists import (
    ATTRIBUTE,
    LOCK,
    WordList,
    WordListEntry,
    WordLists,
    find_list_words,
    labelled_words,
    make_entry,
)
from ..sequences import starts
from ..types import IntArray
from .batch_pipe import BatchPipe
from .entities import add_listed_entities
from .masks import NO_ENTITIES
from .tags import is_label
from .units import BEGIN, INSIDE
from .windows import batch_by_size
from .words import WordListEditor, WordListOwner, check_list_name, limit_words, pair_with_tags, strip_word, valid_words

# The tag of blocked words, in place of a label.
_BLOCKED = ""
# Maximum number of tokens in Docs that are searched together. A longer Doc is searched alone.
_BATCH_TOKENS = 65_536
# Word lists, with the indices of the Docs to which they apply.
ActiveLists = Sequence[tuple[WordList, IntArray]]


@Language.factory(
    "entity_lists",
    assigns=["doc.ents", "token.ent_iob", "token.ent_type"],
    default_config={"scorer": {"@scorers": "spacy.ner_scorer.v1"}},
)
def make_entity_lists(nlp: Language, name: str, scorer: Callable[..., Any] | None) -> EntityLists:
    """Create a component that labels listed words. Add it before `tener_ner`, `lac` or `ner`, which keep existing
    entities.

    scorer (Optional[Callable]): The scoring method.
    """
    return EntityLists(nlp.vocab, name, scorer=scorer)


class ListMatch(NamedTuple):
    """An occurrence of a listed word in a Doc.

    start, end (int): Boundaries in tokens.
    label (str): The label, or an empty string for a blocked word.
    """

    start: int
    end: int
    label: str


class EntityLists(WordListEditor, BatchPipe):
    """Lists of words that are always labelled as entities, and of blocked words.

    The list without a name applies to all Docs. A named list applies to the Docs that opt in to it with
    `doc._.tener_words = "name"` or a list of names. If the value is a dictionary, it contains words with labels for
    this Doc only.

    file (str): Name of the file when the component is saved.
    """

    file = "lists"

    def __init__(self, vocab: Vocab, name: str = "entity_lists", *, scorer: Callable[..., Any] | None = None) -> None:
        super().__init__(vocab, name, scorer)
        self.lists = WordLists()
        self._warned = set[str]()

    @property
    def list_owners(self) -> Sequence[WordListOwner]:
        return [self]

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels in all lists, sorted."""
        tags = {entry.tag for words in self.lists.lists.values() for entry in words.entries.values()}
        return tuple(sorted(tags - {_BLOCKED}))

    def words(self, name: str = "") -> dict[str, str]:
        """Return the words of a list that are entities, with their labels.

        name (str): The list. By default, the list that applies to all Docs.
        """
        return {word: entry.tag for word, entry in self._entries(name).items() if entry.tag}

    def blocked(self, name: str = "") -> list[str]:
        """Return the blocked words of a list.

        name (str): The list. By default, the list that applies to all Docs.
        """
        return [word for word, entry in self._entries(name).items() if not entry.tag]

    def add(
        self, words: Iterable[str] | Mapping[str, str], label: str = "", *, name: str = "", saved: bool | None = None
    ) -> None:
        """Add words to a list. The change takes effect immediately.

        words (Union[Iterable[str], Mapping[str, str]]): The words, or a dictionary of words and their labels.
        label (str): The label of all words if `words` is not a dictionary. It need not be a label of a model in the
            pipeline.
        name (str): The list. By default, the list that applies to all Docs.
        saved (Optional[bool]): Whether the list is saved with the pipeline. By default, new lists are saved, and the
            value for an existing list is not changed.
        """
        check_list_name(name)
        self._change(name, _labelled_entries(limit_words(pair_with_tags(words, label), name)), saved=saved)

    def block(self, words: Iterable[str], *, name: str = "", saved: bool | None = None) -> None:
        """Block words: they are not entities, and later components do not label any of their tokens.

        A blocked word has no effect inside a longer word of a list.

        words (Iterable[str]): The words.
        name (str): The list. By default, the list that applies to all Docs.
        saved (Optional[bool]): Whether the list is saved with the pipeline. By default, new lists are saved, and the
            value for an existing list is not changed.
        """
        check_list_name(name)
        if isinstance(words, Mapping):
            raise ValueError("Blocked words have no labels. Pass a list of words instead of a dictionary.")
        entries = {
            strip_word(word): make_entry(_BLOCKED, False) for word, _ in limit_words(pair_with_tags(words), name)
        }
        self._change(name, entries, saved=saved)

    def read(
        self, path: str | Path, label: str = "", *, name: str = "", min_frequency: int = 0, saved: bool | None = None
    ) -> None:
        """Replace the entities of a list by the words in a file. If the file is not valid, the list is not changed.

        path (Union[str, Path]): A file in UTF-8 with `word`, `word<TAB>frequency` or `word<TAB>label` on each line.
        label (str): The label of words without a label in the file.
        name (str): The list. By default, the list that applies to all Docs.
        min_frequency (int): Minimum frequency. Words with a lower frequency are left out.
        saved (Optional[bool]): Whether the list is saved with the pipeline. By default, new lists are saved, and the
            value for an existing list is not changed.
        """
        check_list_name(name)
        lines = [
            line
            for line in limit_words(read_list(Path(path), label, has_tags=True), name)
            if line.frequency is None or line.frequency >= min_frequency
        ]
        entries = _labelled_entries(((line.word, line.tag) for line in lines), path, [line.line for line in lines])
        self._change(name, entries, keep_entry=lambda entry: not entry.tag, saved=saved)

    def rename(self, labels: Mapping[str, str]) -> None:
        """Rename labels in all lists.

        labels (Mapping[str, str]): New names by present names. Labels that no list contains are ignored.
        """
        for label in labels.values():
            if not is_label(label):
                raise RemedyError(
                    f"{str(label)[:60]!r} is not a valid label", "Map labels to new names, as in {'GPE': 'PLACE'}."
                )
        with LOCK:
            for name, words in self.lists.lists.items():
                entries = {
                    # Blocked words have no label that could be renamed.
                    word: make_entry(labels.get(entry.tag, entry.tag) if entry.tag else _BLOCKED, False)
                    for word, entry in words.entries.items()
                }
                self.lists.put(name, WordList(entries, words.saved))

    def set_annotations(self, docs: Sequence[Doc]) -> None:
        """Label the listed words in Docs as entities, and block the tokens of blocked words. Existing entities are
        kept."""
        for group in batch_by_size(docs, _BATCH_TOKENS):
            lists = [*self.lists.active(group), *_lists_in_docs(group)]
            if lists:
                for doc, spans in zip(group, self._find(group, lists), strict=True):
                    if spans:
                        self._set_entities(doc, spans)

    def _find(self, docs: Sequence[Doc], lists: ActiveLists) -> list[list[ListMatch]]:
        """Return the listed words in each Doc that align with tokens, in the order of their priority.

        Longer words take precedence over shorter ones, then later lists over earlier ones, then the order in the list
        decides. If several lists contain the same word, the entry of the last list is used.
        """
        text = join_texts(docs)
        first_tokens = starts(text.lengths)
        # For each Doc, the matches by their spans of tokens. The values are tuples that sort by priority: negative
        # length in characters, negative rank of the list, index in the list, and the span.
        found: list[dict[tuple[int, int], tuple[int, int, int, int, int]]] = [{} for _ in docs]
        for rank, (words, indices) in enumerate(lists):
            begins, stops, entries = find_list_words(words, text, indices)
            first, last = text.tokens_starting[begins], text.tokens_ending[stops - 1]
            is_whole = (first >= 0) & (last >= 0)
            if not is_whole.all():
                index = int(np.argmin(is_whole))
                self._warn_of_tokens(text.slice(int(begins[index]), int(stops[index])))
            doc = np.searchsorted(text.stops, begins)
            offset = first_tokens[doc]
            matches = np.stack((doc, first - offset, last + 1 - offset, begins - stops, entries))[:, is_whole]
            for i, start, end, negative_length, entry in matches.T.tolist():
                found[i][start, end] = negative_length, -rank, entry, start, end
        return [
            [
                ListMatch(start, end, lists[-negative_rank][0].listed[entry].tag)
                for _, negative_rank, entry, start, end in sorted(spans.values())
            ]
            for spans in found
        ]

    def _warn_of_tokens(self, word: str) -> None:
        self._warn(
            "is not made",
            f"'{self.name}' leaves out {word!r} and other words that do not align with tokens. In "
            'spacy.blank("zh") each character is a token.',
        )

    def _set_entities(self, doc: Doc, spans: Sequence[ListMatch]) -> None:
        """Set the matches that overlap with no existing entity and no match of higher priority.

        spans (Sequence[ListMatch]): The matches, those with the highest priority first.
        """
        occupied, within_entities = set[int](), set[int]()
        if doc.has_annotation(ENT_IOB):
            iob = doc.to_array(ENT_IOB)
            occupied = {*np.flatnonzero((iob == BEGIN) | (iob == INSIDE)).tolist()}
            within_entities = {i for ent in doc.ents for i in range(ent.start, ent.end)}
            self._warn_of_overlaps(doc, spans, occupied)
        entities, blocked, blocked_within = list[Span](), list[Span](), list[Span]()
        for start, end, label in spans:
            tokens = range(start, end)
            if occupied.isdisjoint(tokens):
                occupied.update(tokens)
                within_entities.update(tokens if label else ())
                (entities if label else blocked).append(Span(doc, start, end, label=label))
            elif not label and within_entities.issuperset(tokens):
                blocked_within.append(Span(doc, start, end))
        if entities or blocked:
            doc.set_ents(entities, blocked=blocked, default="unmodified")
            if entities:
                add_listed_entities(doc, entities)
        if blocked_within:
            doc.spans[NO_ENTITIES] = [*doc.spans.get(NO_ENTITIES, ()), *blocked_within]

    def _warn_of_overlaps(self, doc: Doc, spans: Sequence[ListMatch], occupied: set[int]) -> None:
        """Warn once that a match overlaps with an existing entity, which takes precedence.

        occupied (set[int]): Tokens of existing entities, and blocked tokens.
        """
        present = {(ent.start, ent.end, ent.label_) for ent in doc.ents}
        for span in spans:
            if span.label and span not in present and not occupied.isdisjoint(range(span.start, span.end)):
                self._warn(
                    "overlaps",
                    f"A word of '{self.name}' overlaps with an existing entity of the Doc, which is "
                    f"kept. There may be more overlaps. The text begins with {doc.text[:40]!r}.",
                )
                return

    def _warn(self, kind: str, message: str) -> None:
        """Issue a warning if there was no warning with this key before."""
        if kind not in self._warned:
            self._warned.add(kind)
            warnings.warn(message, stacklevel=2)

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """Return the lists as bytes."""
        return cast(bytes, srsly.msgpack_dumps(self.lists.to_message()))

    def load(self, data: bytes) -> None:
        self.lists.from_message(srsly.msgpack_loads(data))


def _labelled_entries(
    pairs: Iterable[tuple[object, object]], path: str | Path = "", lines: Sequence[int] | None = None
) -> dict[str, WordListEntry]:
    """Return entries for words with labels. Raise an error if a label is not valid, or if a word has two labels.

    Spellings of a word in traditional and simplified characters are the same word.

    path (str | Path): The file that contains the words, for the error message.
    lines (Sequence[int] | None): Line number of each word in the file.
    """
    entries, label_of = dict[str, WordListEntry](), dict[str, str]()
    for number, (given_word, given_label) in enumerate(pairs):
        word, label, reason = strip_word(given_word, given_label), str(given_label), ""
        first = label_of.setdefault(simplify(word), label)
        if first != label:
            reason = f"{word[:60]!r} has two labels, {first} and {label}"
            remedy = "Give the word one label. Put labels for some Docs only into a named list."
        elif not label and lines:
            reason = f"{word[:60]!r} has no label"
            remedy = "Pass `label` for words without a label, or write a tab and the label after the word."
        elif not is_label(label):
            reason, remedy = (
                f"{label[:60]!r} is not a valid label",
                "Give a label to each word, as {'云海一号': 'PRODUCT'}.",
            )
        if reason:
            raise InputError(str(path), reason, remedy, line=lines[number]) if lines else RemedyError(reason, remedy)
        entries[word] = make_entry(label, False)
    return entries


def _lists_in_docs(docs: Sequence[Doc]) -> ActiveLists:
    """Return the word lists in the extension attributes of Docs, with the indices of the Docs."""
    docs_of: dict[tuple[tuple[str, WordListEntry], ...], list[int]] = {}
    for index, doc in enumerate(docs):
        words = labelled_words(doc)
        if words:
            docs_of.setdefault(tuple(_labelled_entries(limit_words(words, ATTRIBUTE)).items()), []).append(index)
    return [(_list_from_entries(words), np.array(indices)) for words, indices in docs_of.items()]


@lru_cache(maxsize=64)
def _list_from_entries(entries: tuple[tuple[str, WordListEntry], ...]) -> WordList:
    return WordList(valid_words(dict(entries), f"doc._.{ATTRIBUTE}"))
