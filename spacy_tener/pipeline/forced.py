"""Lists that win: words that are entities wherever they occur, and words that are never entities."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import srsly
from spacy.strings import get_string_id
from spacy.tokens import Doc

from ..features.characters import JoinedText, join_texts
from ..features.lexicon import is_fit
from ..features.list_finder import find_listed
from ..features.word_lists import ATTRIBUTE, ListedWord, WordList, WordLists, words_of
from ..files import write_file
from ..sequences import starts
from ..types import IntArray
from .units import BEGIN, INSIDE, DocView, TokenView, Units

_LISTS = "lists"


class ListedSpan(NamedTuple):
    """A word of a list that occurs in a text, in units of the view.

    label (str): For a blocked word, the empty string stands for all labels.
    is_blocked (bool): Whether this is no entity of the label.
    """

    start: int
    end: int
    label: str
    is_blocked: bool


class ForcedWords:
    """The lists of a component whose words are entities, or never are. An entry's tag is the label; a hidden entry is a
    blocked word."""

    def __init__(self) -> None:
        self.lists, self.tag_names = WordLists(), list[str]()
        self._has_warned = False

    def knows_tag(self, tag: str) -> bool:
        return is_label(tag)  # whether the model has it or not

    @property
    def labels(self) -> list[str]:
        """The labels of forced words."""
        entries = (entry for words in self.lists.lists.values() for entry in words.entries.values())
        return sorted({entry.tag for entry in entries if not entry.hidden})

    def find(self, views: Sequence[DocView], text: JoinedText | None = None) -> list[list[ListedSpan]]:
        """Return the words of lists in each text that are made of whole units: the longest first, then those of the
        last list, then in the list's order. Of a word in several lists, the last list's entry counts.

        text (Optional[JoinedText]): The texts, if they are joined already.
        """
        docs = [view.doc for view in views]
        spans: list[list[ListedSpan]] = [[] for _ in views]
        lists = [*self.lists.active(docs), *_lists_of_docs(docs)]
        if not lists:
            return spans
        text = text or join_texts(docs, [view.spellings for view in views])
        # First character, end, list and position in the list of each word. *Shape:* (4, words)
        tables = (find_listed(words, text, indices) for words, indices in lists)
        table = np.concatenate([np.insert(found, 2, rank, axis=0) for rank, found in enumerate(tables)], axis=1)
        # By place, then by list: of entries at one place, the last one stays.
        table = table[:, np.lexsort(table[2::-1])]
        table = table[:, (np.diff(table[:2], axis=1, append=-1) != 0).any(axis=0)]
        # The longest first, then the last list, then the list's order.
        table = table[:, np.lexsort((table[0], table[3], -table[2], table[0] - table[1]))]
        index = np.searchsorted(text.stops, table[0])
        # Places in the text, or in the tokens where these are the units.
        places = table[:2] - np.append(0, text.stops + 1)[index]
        tokens = np.stack((text.starting[table[0]], text.ending[table[1] - 1]))
        by_tokens = np.array([isinstance(view, TokenView) for view in views])[index]
        places = np.where(by_tokens, tokens - starts(text.lengths)[index] + [[0], [1]], places)
        rows = np.concatenate((index[None], places, table[2:]))[:, ~by_tokens | (tokens >= 0).all(axis=0)]
        for i, start, end, rank, order in rows.T.tolist():
            entry = lists[rank][0].listed[order]
            spans[i].append(ListedSpan(start, end, entry.tag, entry.hidden))
        return spans

    def to_disk(self, folder: Path) -> None:
        """Save the lists beside a component, if there are any."""
        if message := self.lists.to_message():
            write_file(folder / _LISTS, lambda file: file.write(cast(bytes, srsly.msgpack_dumps(message))))
        else:
            (folder / _LISTS).unlink(missing_ok=True)

    def from_disk(self, folder: Path) -> None:
        path = folder / _LISTS
        self.lists.from_message(srsly.msgpack_loads(path.read_bytes()) if path.exists() else {})

    def add_to(self, component: bytes) -> bytes:
        """Add the lists, if there are any, to the bytes of a component."""
        if not (message := self.lists.to_message()):
            return component
        return cast(bytes, srsly.msgpack_dumps({**srsly.msgpack_loads(component), _LISTS: message}))

    def take_from(self, component: bytes) -> None:
        """Load what `add_to` added."""
        self.lists.from_message(srsly.msgpack_loads(component).get(_LISTS, {}))

    def choose(
        self, doc: Doc, units: Units | None, spans: Sequence[ListedSpan]
    ) -> tuple[list[ListedSpan], list[ListedSpan]]:
        """Choose the words of a text that are entities, so that none overlap, and the blocked ones beside them.

        It warns once that an entity of a Doc, which stays, overlaps with another forced word.

        units (Optional[Units]): Those of a text that has entities, which stay.
        spans (Sequence[ListedSpan]): The first ones have priority.
        """
        preset = {*np.flatnonzero((units.iob == BEGIN) | (units.iob == INSIDE)).tolist()} if units else set[int]()
        taken, forced = set(preset), list[ListedSpan]()
        for span in spans:
            places = range(span.start, span.end)
            if span.is_blocked:
                continue
            if taken.isdisjoint(places):
                taken.update(places)
                forced.append(span)
            elif units is not None and not (self._has_warned or preset.isdisjoint(places)):
                iob, labels = units.iob[span.start : span.end + 1].tolist(), units.label[span.start : span.end]
                is_whole = iob[: len(places)] == [BEGIN, *[INSIDE] * (len(places) - 1)]
                is_whole = is_whole and iob[len(places) :] != [INSIDE]
                self._has_warned = not (is_whole and (labels == get_string_id(span.label)).all())
                if self._has_warned:
                    warnings.warn(
                        "A forced word of a list overlaps with an entity that the Doc has: the Doc's entity stays, as "
                        f"it does in all others. The text begins with {doc.text[:40]!r}.",
                        stacklevel=2,
                    )
        blocked = [span for span in spans if span.is_blocked and taken.isdisjoint(range(span.start, span.end))]
        return sorted(forced), blocked


def _lists_of_docs(docs: Sequence[Doc]) -> list[tuple[WordList, IntArray]]:
    """Return the words that Docs have of their own, each list with the indices of its Docs."""
    docs_of: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for index, doc in enumerate(docs):
        if words := words_of(doc):
            docs_of.setdefault(tuple(words.items()), []).append(index)
    return [(_list_of_doc(words), np.array(indices)) for words, indices in docs_of.items()]


@lru_cache(maxsize=64)
def _list_of_doc(words: tuple[tuple[str, str], ...]) -> WordList:
    if wrong := [(word, label) for word, label in words if not is_label(label) or not isinstance(word, str)]:
        raise ValueError(f"doc._.{ATTRIBUTE} must give a label to each word, but got {dict(wrong[:1])}.")
    return WordList({word.strip(): ListedWord(label) for word, label in words if is_fit(word.strip())})


def is_label(label: object) -> bool:
    """Return True for a name that an entity type may have."""
    return isinstance(label, str) and bool(label.strip()) and not any("\ud800" <= char <= "\udfff" for char in label)
