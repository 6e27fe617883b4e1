"""Lists of words that are given to a trained pipeline: they change while it runs, as its own lexicon never does.

The list with no name counts for every Doc. One with a name counts for the Docs that ask for it, by their extension
attribute `doc._.tener_words`: a name, or several.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from spacy.tokens import Doc

from ...errors import RemedyError
from ...types import BoolArray, IntArray
from .files import read_user_list
from .lexicon import Lexicon, is_fit

Item = TypeVar("Item")

ATTRIBUTE = "tener_words"
"""The extension attribute of a Doc that names its lists."""
USER_DATA_KEY: Any = ("._.", ATTRIBUTE, None, None)
"""Where spaCy keeps that attribute."""
_SECONDS_BETWEEN_LOOKS = 1.0


class Entry(NamedTuple):
    """A word of a list.

    tag: what it is, by a tag that the pipeline was trained with; the empty string for not known.
    like: words of the pipeline's lexicon that it is used like.
    hidden: the pipeline's own lexicon has the word, and it is not to be found.
    """

    tag: str = ""
    like: tuple[str, ...] = ()
    hidden: bool = False


@dataclass(frozen=True)
class Limits:
    """What lists may hold. More is refused before anything is changed.

    words: of one list.
    length: characters of a word; longer ones are left out.
    lists: with a name.
    """

    words: int = 100_000
    length: int = 40
    lists: int = 10_000


@dataclass(frozen=True, eq=False)
class WordList:
    """Words as they are now. It never changes: a change makes another list.

    saved: whether it is saved with the pipeline.
    """

    entries: Mapping[str, Entry] = field(default_factory=dict)
    saved: bool = True

    @cached_property
    def lexicon(self) -> Lexicon:
        return Lexicon(self.entries, (entry.tag for entry in self.entries.values()))

    @cached_property
    def hidden(self) -> BoolArray:
        """*Shape* [words of the lexicon]"""
        return np.array([self.entries[word].hidden for word in self.lexicon.words], dtype=bool)

    def __deepcopy__(self, memo: object) -> WordList:
        return self


class WatchedFile:
    """A file whose words are read again when it changes.

    tag: of words without one.
    min_frequency: words with a smaller frequency are left out.
    tags: what words may be; None for anything.
    """

    def __init__(self, path: Path, tag: str, min_frequency: int, tags: frozenset[str] | None = None) -> None:
        self.path, self.tag, self.min_frequency, self.tags = path, tag, min_frequency, tags
        self._stamp = self._look()
        self._next_look = time.monotonic() + _SECONDS_BETWEEN_LOOKS

    def _look(self) -> tuple[int, int, int]:
        status = os.stat(self.path)
        # The last changes also where a file can be read again that could not.
        return status.st_mtime_ns, status.st_size, status.st_ctime_ns

    def read(self) -> Iterable[tuple[str, Entry]]:
        for entry in read_user_list(self.path, self.tag):
            if self.tags is not None and entry.tag not in self.tags:
                raise RemedyError(
                    f"{self.path} has the unknown tag '{entry.tag}', of {entry.word!r}",
                    f"Use one that the model was trained with: {', '.join(sorted(self.tags - {''}))}.",
                )
            if entry.frequency is None or entry.frequency >= self.min_frequency:
                yield entry.word, Entry(entry.tag)

    def has_changed(self) -> bool:
        """Whether it did since it was last asked; looked at once a second at most."""
        if time.monotonic() < self._next_look:
            return False
        self._next_look = time.monotonic() + _SECONDS_BETWEEN_LOOKS
        before, self._stamp = self._stamp, self._look()
        return before != self._stamp


class WordLists:
    """The lists of a pipeline by their names. Threads may read while one changes them."""

    def __init__(self) -> None:
        self.limits = Limits()
        self.lists: dict[str, WordList] = {}
        self._files: dict[str, WatchedFile] = {}
        self.lock = threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.lock = threading.RLock()
        _register(self.lists)

    def changed(
        self, name: str, words: Iterable[tuple[str, Entry]], *, gone: Iterable[str] = (), saved: bool | None = None
    ) -> WordList:
        """A list as it would be without some words and with others, or with what is now known of them.

        saved: as it was, or true, if it is None.
        """
        if file := self._files.get(name):
            raise RemedyError(
                f"The list of words {name!r} is what is in {file.path}",
                "Change the file, or give the words to a list with another name.",
            )
        old = self.lists.get(name, WordList())
        entries = dict(old.entries)
        for word in gone:
            entries.pop(word, None)
        self._take(name, entries, words)
        self._check_name(name)
        return WordList(entries, old.saved if saved is None else saved)

    def put(self, name: str, words: WordList) -> None:
        with self.lock:
            # Replaced at once, so that no thread sees half of a change.
            self.lists = {**self.lists, name: words}
            _register(self.lists)

    def clear(self, name: str) -> None:
        """Take a list away."""
        with self.lock:
            self.lists = {other: words for other, words in self.lists.items() if other != name}
            self._files.pop(name, None)

    def watch(self, name: str, file: WatchedFile, *, saved: bool) -> None:
        """Let a list be what is in a file."""
        with self.lock:
            entries: dict[str, Entry] = {}
            self._take(name, entries, file.read())
            self._check_name(name)
            self.put(name, WordList(entries, saved))
            self._files[name] = file

    def is_watched(self, name: str) -> bool:
        return name in self._files

    def _check_name(self, name: str) -> None:
        if name in self.lists or not name:
            return
        if len(others := list(filter(None, self.lists))) >= self.limits.lists:
            raise RemedyError(
                f"There are {len(others):,} lists of words already", "Take some away, or raise the limits."
            )

    def _take(self, name: str, entries: dict[str, Entry], words: Iterable[tuple[str, Entry]]) -> None:
        """Put words into entries, but for those that no text has or that are too long, of which is told."""
        left_out: list[str] = []
        for word, entry in bounded(words, self.limits.words, name):
            if is_fit(word) and len(word) <= self.limits.length:
                entries[word] = entry
            else:
                left_out.append(word[: self.limits.length])
        list(bounded(entries, self.limits.words, name))
        if left_out:
            warnings.warn(
                f"{len(left_out)} of the words for the list {name!r} were left out, such as {left_out[:3]}: words have "
                f"2 to {self.limits.length} characters, not only white space, and no NUL.",
                stacklevel=5,
            )

    def active(self, docs: Sequence[Doc]) -> list[tuple[WordList, IntArray]]:
        """The lists that count for some of the Docs, the later above the earlier, and the places of these Docs.

        Of several that a Doc asks for, its last is the highest, whatever other Docs ask for.
        """
        if not self.lists:
            return []
        self._read_changed_files()
        lists, everywhere = self.lists, np.arange(len(docs))
        found = [(lists[""], everywhere)] if lists.get("") else []
        named: dict[tuple[int, str], list[int]] = {}
        for index, doc in enumerate(docs):
            for rank, name in enumerate(names_of(doc)):
                named.setdefault((rank, name), []).append(index)
        if unknown := sorted({name for _, name in named} - set(lists)):
            known = ", ".join(map(repr, filter(None, lists)))
            warnings.warn(
                f"Docs ask for the words {', '.join(map(repr, unknown))}, and are read without them: there are lists "
                f"for {known or 'none'}.",
                stacklevel=2,
            )
            named = {place: indices for place, indices in named.items() if place[1] in lists}
        found += [(lists[name], np.array(named[rank, name])) for rank, name in sorted(named)]
        return [(words, indices) for words, indices in found if words.entries]

    def _read_changed_files(self) -> None:
        for name, file in list(self._files.items()):
            try:
                if file.has_changed():
                    self.watch(name, file, saved=self.lists[name].saved)
            except (OSError, ValueError) as error:
                warnings.warn(f"The words of {name!r} stay as they were: {error}", stacklevel=2)

    def to_message(self) -> dict[str, list[list[Any]]]:
        """What is saved with the pipeline."""
        return {
            name: [[word, *entry] for word, entry in words.entries.items()]
            for name, words in self.lists.items()
            if words.saved and (name or words.entries)
        }

    def from_message(self, message: Mapping[str, Any]) -> None:
        """In the place of the lists that were saved with another pipeline, those of this one."""
        read = {
            name: WordList({word: Entry(tag, tuple(like), hidden) for word, tag, like, hidden in rows})
            for name, rows in message.items()
        }
        with self.lock:
            kept = {name: words for name, words in self.lists.items() if not words.saved}
            self.lists = {**kept, **read}
            self._files = {name: file for name, file in self._files.items() if name in kept and name not in read}
            _register(self.lists)


def _register(lists: Iterable[str]) -> None:
    """Let Docs name their lists, where there are any with a name."""
    if any(lists) and not Doc.has_extension(ATTRIBUTE):
        Doc.set_extension(ATTRIBUTE, default=None)


def bounded(items: Iterable[Item], limit: int, name: str) -> Iterator[Item]:
    """The items of a list of words, refused where they become too many: an endless one is not read to its end."""
    for number, item in enumerate(items, start=1):
        if number > limit:
            raise RemedyError(
                f"The list of words {name!r} would have more than {limit:,}",
                "Nothing was changed. Give fewer words, those that your texts are about, or raise the limits.",
            )
        yield item


def names_of(doc: Doc) -> list[str]:
    """The lists that a Doc asks for."""
    wanted = doc.user_data.get(USER_DATA_KEY) if doc.user_data else None
    if wanted is None:
        return []
    names = [wanted] if isinstance(wanted, str) or not isinstance(wanted, Iterable) else list(wanted)
    for name in names:
        if not isinstance(name, str):
            raise ValueError(f"doc._.{ATTRIBUTE} is the name of a list of words, or several, but got {wanted!r}.")
    return names


def check_list_name(name: object) -> None:
    """Refuse what cannot be saved as the name of a list."""
    if not isinstance(name, str) or any("\ud800" <= char <= "\udfff" for char in name):
        raise ValueError(f"The name of a list of words must be a string that UTF-8 can hold, but got {name!r}.")
