"""Lists of words by name, and their changes: what the words of a component and `entity_lists` have in common."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Protocol, TypeVar

from ..errors import RemedyError, check_choice
from ..features.keys import simplify
from ..features.lexicon import is_fit
from ..features.word_lists import LOCK, ListedWord, WordList, WordLists

MOST_WORDS, MOST_LISTS, LONGEST = 1_000_000, 10_000, 40
"""Words of a list, named lists, and characters of a word. A change beyond is refused; longer words are left out."""
_Item = TypeVar("_Item")


class HasLists(Protocol):
    """What holds lists of words."""

    @property
    def lists(self) -> WordLists: ...


class NamedLists(ABC):
    """Lists of words by name. Base of the lists of a component, and of `entity_lists`."""

    @property
    @abstractmethod
    def holders(self) -> Sequence[HasLists]:
        """What holds the lists: several embedders of one model, or a component. All of them have the same lists."""

    @property
    def names(self) -> list[str]:
        """The names of the lists."""
        return list(dict.fromkeys(name for holder in self.holders for name in holder.lists.lists if name))

    def remove(self, words: Iterable[str], *, name: str = "") -> None:
        """Remove words from a list.

        words (Iterable[str]): The words.
        name (str): The list; the one that counts for every Doc without a name.
        """
        check_name(name)
        self._change(name, {}, gone=[stripped(word) for word, _ in bounded(listed(words), name)])

    def clear(self, name: str = "") -> None:
        """Remove a list: its words are no longer found, and words that it hid or blocked are found again.

        name (str): The list; the one that counts for every Doc without a name.
        """
        with LOCK:
            for holder in self.holders:
                holder.lists.put(name, None)

    def _entries(self, name: str) -> Mapping[str, ListedWord]:
        """Return the entries of a list. Raise if there is none of the name."""
        if name:
            check_choice("list of words", name, self.names)
        return next((holder.lists.lists.get(name, WordList()).entries for holder in self.holders), {})

    def _hides(self, holder: HasLists, word: str) -> bool:
        """Return whether a removed word has to be hidden, since this one has it elsewhere too."""
        return False

    def _change(
        self,
        name: str,
        entries: Mapping[str, ListedWord],
        *,
        gone: Sequence[str] = (),
        keeps: Callable[[ListedWord], bool] = lambda entry: True,
        saved: bool | None = None,
    ) -> None:
        """Change the lists of this name in all that hold them, or in none.

        gone (Sequence[str]): Words to be taken out, or hidden.
        keeps (Callable[[ListedWord], bool]): Whether an entry that the list had stays.
        """
        fit = fit_words(entries, name)
        # A word in another script or width is the same word.
        forms = set(map(simplify, [*gone, *fit]))
        with LOCK:
            if name and name not in self.names and len(self.names) >= MOST_LISTS:
                raise RemedyError(f"There are {len(self.names):,} lists of words already", "Remove some.")
            changed = []
            for holder in self.holders:
                old = holder.lists.lists.get(name, WordList())
                words = {
                    word: entry for word, entry in old.entries.items() if simplify(word) not in forms and keeps(entry)
                }
                words |= {word: ListedWord(hidden=True) for word in gone if self._hides(holder, word)}
                changed.append(WordList(words | fit, old.saved if saved is None else saved))
                bounded(changed[-1].entries, name)
            if gone and not any(word_list.entries for word_list in changed):
                self._entries(name)  # refuses a name that no list has
            for holder, word_list in zip(self.holders, changed, strict=True):
                holder.lists.put(name, word_list)


def fit_words(entries: Mapping[str, ListedWord], name: str) -> dict[str, ListedWord]:
    """Return the words that a list takes. A warning tells of all others.

    name (str): The list, or a description of it.
    """
    fit = {word: entry for word, entry in entries.items() if is_fit(word) and len(word) <= LONGEST}
    if unfit := [word[:LONGEST] for word in entries if word not in fit]:
        which = f"the list {name!r}" if name else "the list"
        warnings.warn(
            f"{len(unfit)} of the words for {which} were left out, such as {unfit[:3]}: words have "
            f"2 to {LONGEST} characters, not only white space, and no NUL.",
            stacklevel=4,
        )
    return fit


def bounded(items: Iterable[_Item], name: str) -> list[_Item]:
    """Return the items as a list; raise if there are too many, without reading the rest."""
    found = list(islice(items, MOST_WORDS + 1))
    if len(found) > MOST_WORDS:
        raise RemedyError(
            f"The list of words {name!r} would have more than {MOST_WORDS:,}",
            "Nothing was changed. Give fewer words, those that your texts are about.",
        )
    return found


def check_name(name: object) -> None:
    """Raise if a list's name could not be saved."""
    if not isinstance(name, str) or any("\ud800" <= char <= "\udfff" for char in name):
        raise ValueError(f"The name of a list of words must be a string that UTF-8 can hold, but got {name!r}.")


def listed(words: Iterable[str] | Mapping[str, str], tag: str = "") -> Iterable[tuple[str, str]]:
    """Return words with their tags. tag: That of words which have none of their own."""
    if isinstance(words, str):
        raise ValueError(f"The words must be a list of words, not the string {words!r}: [{words!r}].")
    return words.items() if isinstance(words, Mapping) else ((word, tag) for word in words)


def stripped(word: object, tag: object = "") -> str:
    """Return a word without white space around it. Raise unless it and its tag are strings."""
    if not (isinstance(word, str) and isinstance(tag, str)):
        raise ValueError(f"Words and their tags must be strings, but got {word!r} with the tag {tag!r}.")
    return word.strip()
