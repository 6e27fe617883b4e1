"""The component `entity_lists`, which labels words from entity lists and supports blocklists.

Words in an entity list are always labelled as entities. Blocked words are not labelled by the components `tener_ner`,
`lac` and `ner`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import srsly
from spacy.attrs import ENT_IOB
from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.vocab import Vocab

from ..errors import InputError, UserError
from ..features.keys import compare_key
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
from ..nn.serialize import from_safetensors, to_safetensors
from ..sequences import starts
from ..types import IntArray
from .batch_pipe import BatchPipe
from .entities import add_listed_entities
from .masks import NO_ENTITIES
from .tags import is_label
from .units import BEGIN, INSIDE
from .windows import batch_by_size
from .words import (
    WordListEditor,
    WordListOwner,
    check_list_name,
    checked_words,
    pair_with_tags,
    strip_word,
    valid_words,
)

# Name of the lists in the saved file.
_LISTS = "lists"
# Tag of blocked words, which have no label.
_BLOCKED = ""
# Maximum number of tokens in a batch of Docs that is searched at once. A longer Doc forms its own batch.
_BATCH_TOKENS = 65_536
# Number of matches in a Doc that are checked at once.
_BLOCK_SIZE = 4096
# Word lists, each with the indices of the Docs to which it applies.
ActiveLists = Sequence[tuple[WordList, IntArray]]


@Language.factory(
    "entity_lists",
    assigns=["doc.ents", "token.ent_iob", "token.ent_type"],
    default_config={"scorer": {"@scorers": "spacy.ner_scorer.v1"}},
)
def make_entity_lists(nlp: Language, name: str, scorer: Callable[..., Any] | None) -> EntityLists:
    """Create a component that labels words from entity lists.

    Add the component before `tener_ner`, `lac` or `ner`. They keep existing entities.

    scorer (Optional[Callable]): The scoring method.
    """
    return EntityLists(nlp.vocab, name, scorer=scorer)


class EntityLists(WordListEditor, BatchPipe):
    """A component with word lists. Their words are either always labelled as entities or blocked.

    The list without a name applies to all Docs. A named list applies only to Docs that opt in to it. To do so, set
    `doc._.tener_words` to the name or to a list of names. You can also set `doc._.tener_words` to a dictionary with
    words and labels that only applies to this Doc.

    file (str): File name for the saved component.
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
        """The labels that occur in the lists, sorted."""
        tags = {entry.tag for words in self.lists.lists.values() for entry in words.entries.values()}
        return tuple(sorted(tags - {_BLOCKED}))

    def words(self, name: str = "") -> dict[str, str]:
        """Return the words in a list that are labelled as entities, with their labels.

        name (str): The list's name. By default, the list that applies to all Docs.
        """
        return {word: entry.tag for word, entry in self._entries(name).items() if entry.tag}

    def blocked(self, name: str = "") -> list[str]:
        """Return the blocked words in a list.

        name (str): The list's name. By default, the list that applies to all Docs.
        """
        return [word for word, entry in self._entries(name).items() if not entry.tag]

    def add(
        self, words: Iterable[str] | Mapping[str, str], label: str = "", *, name: str = "", saved: bool | None = None
    ) -> None:
        """Add words to a list. The change takes effect immediately.

        words (Union[Iterable[str], Mapping[str, str]]): The words, or a dictionary of words and their labels.
        label (str): The label for all words. Only allowed if `words` is not a dictionary. It can be a label that no
            model in the pipeline predicts.
        name (str): The list's name. By default, the list that applies to all Docs.
        saved (Optional[bool]): Whether to save the list with the pipeline. By default, a new list is saved, and an
            existing list keeps its setting.
        """
        check_list_name(name)
        self._change(name, labelled_entries(checked_words(pair_with_tags(words, label), name)), saved=saved)

    def block(self, words: Iterable[str], *, name: str = "", saved: bool | None = None) -> None:
        """Add blocked words to a list. The components `tener_ner`, `lac` and `ner` find no entity that contains them.

        Rule-based components, such as `entity_ruler` and `span_ruler`, ignore blocked tokens and can label them. A
        blocked word has no effect if it is part of a longer word in a list.

        words (Iterable[str]): The words.
        name (str): The list's name. By default, the list that applies to all Docs.
        saved (Optional[bool]): Whether to save the list with the pipeline. By default, a new list is saved, and an
            existing list keeps its setting.
        """
        check_list_name(name)
        if isinstance(words, Mapping):
            raise ValueError("Blocked words have no labels. Pass a list of words instead of a dictionary.")
        entries = {
            strip_word(word): make_entry(_BLOCKED, hidden=False)
            for word, _ in checked_words(pair_with_tags(words), name)
        }
        self._change(name, entries, saved=saved)

    def read(
        self, path: str | Path, label: str = "", *, name: str = "", min_frequency: int = 0, saved: bool | None = None
    ) -> None:
        """Replace the entities in a list by words from a file. Blocked words in the list are kept.

        If the file is not valid, the list is not changed.

        path (Union[str, Path]): A UTF-8 file with `word`, `word<TAB>frequency` or `word<TAB>label` on each line.
        label (str): The label for words without a label in the file.
        name (str): The list's name. By default, the list that applies to all Docs.
        min_frequency (int): Minimum word frequency. Less frequent words are ignored.
        saved (Optional[bool]): Whether to save the list with the pipeline. By default, a new list is saved, and an
            existing list keeps its setting.
        """
        check_list_name(name)
        lines = [
            line
            for line in checked_words(read_list(Path(path), label, has_tags=True), name)
            if line.frequency is None or line.frequency >= min_frequency
        ]
        entries = labelled_entries(((line.word, line.tag) for line in lines), path, [line.line for line in lines])
        self._change(name, entries, keep_entry=lambda entry: not entry.tag, saved=saved)

    def rename(self, labels: Mapping[str, str]) -> None:
        """Rename labels in all entity lists of the component.

        labels (Mapping[str, str]): The new label for each old label. Labels that do not occur in the lists are ignored.
        """
        for label in labels.values():
            if not is_label(label):
                raise UserError(
                    f"{str(label)[:60]!r} is not a valid label", "Map labels to new names, as in {'GPE': 'PLACE'}."
                )
        with LOCK:
            for name, words in self.lists.lists.items():
                entries = {
                    # Blocked words have no label, so their entries stay the same.
                    word: make_entry(labels.get(entry.tag, entry.tag) if entry.tag else _BLOCKED, hidden=False)
                    for word, entry in words.entries.items()
                }
                self.lists.put(name, WordList(entries, words.saved))

    def set_annotations(self, docs: Sequence[Doc]) -> None:
        """Label words from the lists as entities, and block the tokens in blocked words.

        Existing entities are kept.
        """
        for group in batch_by_size(docs, _BATCH_TOKENS):
            lists = [*self.lists.active(group), *_lists_in_docs(group)]
            if lists:
                matches, labels = self._find(group, lists)
                bounds = np.searchsorted(matches[0], np.arange(len(group) + 1)).tolist()
                for doc, first, end in zip(group, bounds, bounds[1:], strict=False):
                    if first < end:
                        self._set_entities(doc, matches[1:, first:end], labels)

    def _find(self, docs: Sequence[Doc], lists: ActiveLists) -> tuple[IntArray, list[str]]:
        """Find words from the lists in each Doc. Words that don't align with tokens are left out.

        The matches in a Doc are sorted by priority. Longer words come first, then words from later lists, then words
        that come earlier in their list. If a word is in several lists, the last list is used.

        docs (Sequence[Doc]): The Docs.
        lists (ActiveLists): The lists, each with the indices of the Docs to which it applies.
        RETURNS (tuple[IntArray, list[str]]): The matches, and the labels of all lists. A match consists of the index of
            the Doc, the start token, the end token (exclusive), and the index of the label. *Shape:* (4, matches)
        """
        text = join_texts(docs)
        first_tokens = starts(text.lengths)
        # Columns of the table are matches. Its rows are sort keys: the index of the Doc, the negative length in
        # characters, the negative index of the list, the index of the word, the start token and the end token. A table
        # with arrays instead of Python objects is necessary, because many words can begin at each character.
        tables = [np.zeros((6, 0), dtype=np.int64)]
        labels, first_labels = list[str](), list[int]()
        for rank, (words, indices) in enumerate(lists):
            begins, stops, entries = find_list_words(words, text, indices)
            first, last = text.tokens_starting[begins], text.tokens_ending[stops - 1]
            is_whole = (first >= 0) & (last >= 0)
            if not is_whole.all():
                self._warn_of_tokens(words, int(entries[np.argmin(is_whole)]))
            doc = np.searchsorted(text.stops, begins)
            offset = first_tokens[doc]
            ranks = np.full(begins.size, -rank)
            columns = (doc, begins - stops, ranks, entries, first - offset, last + 1 - offset)
            tables.append(np.stack(columns)[:, is_whole])
            first_labels.append(len(labels))
            labels += [entry.tag for entry in words.listed]
        table = np.concatenate(tables, axis=1)
        if len(lists) > 1:
            # Keep the last list's match of each span. `np.lexsort` expects the primary key last.
            table = table[:, np.lexsort(table[[2, 5, 4, 0]])]
            table = table[:, (np.diff(table[[0, 4, 5]], axis=1, prepend=-1) != 0).any(axis=0)]
        doc, _, ranks, entries, first, end = table[:, np.lexsort(table[4::-1])]
        return np.stack((doc, first, end, np.array(first_labels)[-ranks] + entries)), labels

    def _warn_of_tokens(self, words: WordList, index: int) -> None:
        """Issue a warning that matches do not align with tokens.

        words (WordList): The list of the first such match. Words of `doc._.tener_words` can come from requests, so the
            warning does not contain them.
        index (int): Index of the word in the list.
        """
        is_own = any(words is other for other in self.lists.lists.values())
        example = f"{list(words.entries)[index]!r} and other words" if is_own else "words"
        self._warn(
            "misaligned",
            f"'{self.name}' ignores {example} that do not align with tokens. To avoid this, use a "
            'tokenizer that makes each character a token, such as that of spacy.blank("zh").',
        )

    def _set_entities(self, doc: Doc, matches: IntArray, labels: Sequence[str]) -> None:
        """Write matches to `doc.ents`. Ignore matches that overlap with existing entities or with earlier matches.

        doc (Doc): The Doc.
        matches (IntArray): Start token, end token and label of the matches, sorted by priority. *Shape:* (3, matches)
        labels (Sequence[str]): The labels. The label of blocked words is empty.
        """
        # Tokens that are marked with 1. Searching a bytearray is much faster than comparing sets.
        occupied, within_entities = bytearray(len(doc)), bytearray(len(doc))
        if doc.has_annotation(ENT_IOB):
            iob = doc.to_array(ENT_IOB)
            occupied = bytearray(((iob == BEGIN) | (iob == INSIDE)).tobytes())
            for ent in doc.ents:
                within_entities[ent.start : ent.end] = b"\1" * len(ent)
            self._warn_of_overlaps(doc, matches, labels, occupied)
        entities, blocked, blocked_within = list[Span](), list[Span](), list[Span]()
        for start, end, index in _remaining(matches, labels, occupied):
            label = labels[index]
            if occupied.find(1, start, end) < 0:
                occupied[start:end] = b"\1" * (end - start)
                if label:
                    within_entities[start:end] = b"\1" * (end - start)
                (entities if label else blocked).append(Span(doc, start, end, label=label))
            # `doc.ents` can't block tokens inside an entity. This span group prevents nested entities there.
            elif not label:
                # The word may also overlap with an entity in part.
                blocked_within += _runs_of_ones(doc, within_entities, start, end)
        if entities or blocked:
            doc.set_ents(entities, blocked=blocked, default="unmodified")
            if entities:
                add_listed_entities(doc, entities)
        if blocked_within:
            # Spans of an earlier call are written once.
            known = {(span.start, span.end): span for span in (*doc.spans.get(NO_ENTITIES, ()), *blocked_within)}
            doc.spans[NO_ENTITIES] = list(known.values())

    def _warn_of_overlaps(self, doc: Doc, matches: IntArray, labels: Sequence[str], occupied: bytearray) -> None:
        """Issue a warning if a match overlaps with an existing entity and is therefore ignored.

        doc (Doc): The Doc.
        matches (IntArray): The matches. See `_set_entities`.
        labels (Sequence[str]): The labels.
        occupied (bytearray): For each token, whether it is blocked or part of an existing entity.
        """
        if "overlaps" in self._warned:
            return
        present = {(ent.start, ent.end, ent.label_) for ent in doc.ents}
        for start, end, index in zip(*matches.tolist(), strict=True):
            label = labels[index]
            if label and (start, end, label) not in present and occupied.find(1, start, end) >= 0:
                self._warn(
                    "overlaps",
                    f"A word of '{self.name}' overlaps with an existing entity of the Doc, which is "
                    "kept. There may be more overlaps. If words of the list should take precedence, add "
                    f"'{self.name}' before the components that set entities.",
                )
                return

    def _warn(self, kind: str, message: str) -> None:
        """Issue a warning, but only once for each kind.

        Python keeps warnings and prints them to the log, so they must not contain texts.

        kind (str): The kind of warning, an arbitrary string.
        message (str): The warning.
        """
        if kind not in self._warned:
            self._warned.add(kind)
            warnings.warn(message, stacklevel=2)

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """Serialize the lists, with a checksum."""
        return to_safetensors({_LISTS: srsly.msgpack_dumps(self.lists.to_message())})

    def load(self, data: bytes) -> None:
        # Earlier versions saved the lists without a checksum. A safetensors file begins with the length of a short JSON
        # object in 8 bytes, followed by this object.
        has_checksum = data[4:9] == b"\0\0\0\0{"
        self.lists.from_message(srsly.msgpack_loads(from_safetensors(data)[_LISTS] if has_checksum else data))


def _runs_of_ones(doc: Doc, marked: bytearray, start: int, end: int) -> Iterator[Span]:
    """Yield spans of consecutive tokens that are marked with 1.

    marked (bytearray): 0 or 1 for each token.
    start, end (int): The range of tokens to search.
    """
    while (first := marked.find(1, start, end)) >= 0:
        last = marked.find(0, first, end)
        start = last if last >= 0 else end
        yield Span(doc, first, start)


def _remaining(matches: IntArray, labels: Sequence[str], occupied: bytearray) -> Iterator[tuple[int, int, int]]:
    """Yield matches, except for most of those that overlap with occupied tokens.

    Python is too slow to check all matches of a long Doc, where many words can begin at each token. So the matches are
    checked in blocks with NumPy. Blocked words are always yielded.

    matches (IntArray): Start token, end token and label of the matches. *Shape:* (3, matches)
    labels (Sequence[str]): The labels. The label of blocked words is empty.
    occupied (bytearray): The occupied tokens. The caller marks the tokens of the matches that it uses.
    """
    is_blocked = np.array([not label for label in labels])
    for first in range(0, matches.shape[1], _BLOCK_SIZE):
        block = matches[:, first : first + _BLOCK_SIZE]
        if first:
            before = np.concatenate(([0], np.cumsum(np.frombuffer(bytes(occupied), dtype=np.uint8), dtype=np.int64)))
            block = block[:, (before[block[0]] == before[block[1]]) | is_blocked[block[2]]]
        yield from zip(*block.tolist(), strict=True)


def labelled_entries(
    pairs: Iterable[tuple[object, object]], path: str | Path = "", lines: Sequence[int] | None = None
) -> dict[str, WordListEntry]:
    """Convert words and labels to list entries. Raise an error if a label is invalid or a word has two labels.

    All spellings of a word that differ only in script, width or Unicode form count as the same word.

    pairs (Iterable[tuple[object, object]]): The words and their labels.
    path (str | Path): The file that contains the words, for error messages.
    lines (Sequence[int] | None): The line number for each word.
    """
    entries, label_of = dict[str, WordListEntry](), dict[str, str]()
    for number, (given_word, given_label) in enumerate(pairs):
        word, label, reason = strip_word(given_word, given_label), str(given_label), ""
        first = label_of.setdefault(compare_key(word), label)
        if first != label:
            reason = f"{word[:60]!r} has two labels, {first} and {label}"
            fix = "Use only one label. To use another label in some Docs, put the word into a named list."
        elif not label and lines:
            reason = f"{word[:60]!r} has no label"
            fix = "Pass `label` for words without a label, or write a tab and the label after the word."
        elif not label:
            reason, fix = f"{word[:60]!r} has no label", "Specify a label for each word, as in {'云海一号': 'PRODUCT'}."
        elif not is_label(label):
            reason = f"{label[:60]!r} is not a valid label"
            fix = "Use a label that is not blank and that can be encoded in UTF-8, such as 'PRODUCT'."
        if reason:
            raise InputError(str(path), reason, fix, line=lines[number]) if lines else UserError(reason, fix)
        entries[word] = make_entry(label, hidden=False)
    return entries


def _lists_in_docs(docs: Sequence[Doc]) -> ActiveLists:
    """Return word lists for the words that are defined in `doc._.tener_words`.

    docs (Sequence[Doc]): The Docs.
    RETURNS (ActiveLists): The word lists, each with the indices of the Docs to which it applies.
    """
    docs_of: dict[tuple[tuple[str, WordListEntry], ...], list[int]] = {}
    for index, doc in enumerate(docs):
        words = labelled_words(doc)
        if words:
            # Docs with the same words share a list.
            docs_of.setdefault(tuple(labelled_entries(checked_words(words, ATTRIBUTE)).items()), []).append(index)
    return [(_list_from_entries(words), np.array(indices)) for words, indices in docs_of.items()]


@lru_cache(maxsize=64)
def _list_from_entries(entries: tuple[tuple[str, WordListEntry], ...]) -> WordList:
    return WordList(valid_words(dict(entries), f"doc._.{ATTRIBUTE}", has_examples=False))
