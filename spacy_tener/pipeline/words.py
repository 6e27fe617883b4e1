"""Words given to a trained component: `nlp.get_pipe("tener_ner").lexicon`."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ..errors import InputError, RemedyError, check_choice
from ..features.forms import simplify
from ..features.lexicon import is_fit
from ..features.lexicon_sources import read_list
from ..features.word_lists import LOCK, ListedWord, WordList, WordLists
from ..models.embed.lexicon import LexiconVocabulary

MOST_WORDS, MOST_LISTS, LONGEST = 1_000_000, 10_000, 40
"""Words of a list, named lists, and characters of a word. A change beyond is refused; longer words are left out."""
_Item = TypeVar("_Item")


class HasWords(Protocol):
    """What lists of words are kept in.

    tag_names: The tags of words in messages.
    """

    lists: WordLists

    @property
    def tag_names(self) -> list[str]: ...

    def knows_tag(self, tag: str) -> bool: ...


class PipelineWords:
    """Lists of words that a trained component uses beside its lexicon.

    The list without a name applies to all Docs. A named list applies to Docs whose `doc._.tener_words` is its name, or
    a list of names that contains it.
    """

    def __init__(self, vocabularies: Iterable[Any], component: str) -> None:
        self._vocabularies: list[HasWords] = [vocabulary for vocabulary in vocabularies if hasattr(vocabulary, "lists")]
        if not self._vocabularies:
            raise RemedyError(
                f"The model of '{component}' does not use words",
                "Train one that does, with one of the overlays segment, flat, flat-atssa and mect.",
            )

    @property
    def names(self) -> list[str]:
        """The names of the lists."""
        return [name for name in self._vocabularies[0].lists.lists if name]

    def words(self, name: str = "") -> dict[str, str]:
        """Return the words of a list with their tags.

        name (str): The list; the one that counts for every Doc without a name.
        """
        entries = self._list(name).entries
        return {word: entry.tag for word, entry in entries.items() if not entry.hidden}

    def add(
        self,
        words: Iterable[str] | Mapping[str, str],
        tag: str = "",
        *,
        name: str = "",
        saved: bool | None = None,
    ) -> None:
        """Add words to a list. They are found from the next text on.

        words (Union[Iterable[str], Mapping[str, str]]): The words, or the tag of each word.
        tag (str): What the words are, by a tag that the model was trained with: by jieba's, `nr` is a person, `ns` a
            place, `nt` an organisation.
        name (str): The list; the one that counts for every Doc without a name.
        saved (Optional[bool]): Whether the list is saved with the pipeline; as it was, or true for a new list, if None.
        """
        _check_name(name)
        tags = words.items() if isinstance(words, Mapping) else ((word, tag) for word in _listed(words))
        rows = [(_stripped(word, word_tag), word_tag) for word, word_tag in self._bounded(tags, name)]
        for word_tag in sorted({word_tag for _, word_tag in rows}):
            self._check_tag(word_tag)
        self._change(name, {word: ListedWord(word_tag) for word, word_tag in rows}, saved=saved)

    def remove(self, words: Iterable[str], *, name: str = "") -> None:
        """Remove words from a list, and hide those that are in the model's lexicon.

        words (Iterable[str]): The words.
        name (str): The list; the one that counts for every Doc without a name.
        """
        _check_name(name)
        self._change(name, {}, gone=[_stripped(word) for word in self._bounded(_listed(words), name)])

    def clear(self, name: str = "") -> None:
        """Remove a list: its words are no longer found, and words that it hid are found again.

        name (str): The list; the one that counts for every Doc without a name.
        """
        with LOCK:
            for vocabulary in self._vocabularies:
                vocabulary.lists.put(name, None)

    def read(
        self,
        path: str | Path,
        tag: str = "",
        *,
        name: str = "",
        min_frequency: int = 0,
        saved: bool | None = None,
    ) -> None:
        """Replace a list by the words in a file. If it cannot be read, the list stays as it was.

        path (Union[str, Path]): `word`, `word<TAB>frequency`, `word<TAB>tag`, or jieba's `word frequency tag`, on each
            line, in UTF-8.
        tag (str): The tag of words without one.
        name (str): The list.
        min_frequency (int): Words with a smaller frequency are left out.
        saved (Optional[bool]): Whether the list is saved with the pipeline; as it was, or true for a new list, if None.
        """
        _check_name(name)
        checked: set[str] = set()
        words = {}
        for entry in self._bounded(read_list(Path(path), tag, has_tags=True), name):
            if entry.tag not in checked:
                self._check_tag(entry.tag, path, entry.line)
                checked.add(entry.tag)
            if entry.frequency is None or entry.frequency >= min_frequency:
                words[entry.word] = ListedWord(entry.tag)
        self._change(name, words, replace=True, saved=saved)

    def _bounded(self, items: Iterable[_Item], name: str) -> list[_Item]:
        """Return the items as a list; raise if there are too many, without reading the rest."""
        bounded = list(islice(items, MOST_WORDS + 1))
        if len(bounded) > MOST_WORDS:
            raise RemedyError(
                f"The list of words {name!r} would have more than {MOST_WORDS:,}",
                "Nothing was changed. Give fewer words, those that your texts are about.",
            )
        return bounded

    def _change(
        self,
        name: str,
        words: Mapping[str, ListedWord],
        *,
        gone: Collection[str] = (),
        replace: bool = False,
        saved: bool | None = None,
    ) -> None:
        """Change the lists of this name in all embedders, or in none.

        gone (Collection[str]): words to be taken out, or hidden.
        replace (bool): whether the words that the list had go.
        """
        fit = {word: entry for word, entry in words.items() if is_fit(word) and len(word) <= LONGEST}
        if unfit := [word[:LONGEST] for word in words if word not in fit]:
            warnings.warn(
                f"{len(unfit)} of the words for the list {name!r} were left out, such as {unfit[:3]}: words have "
                f"2 to {LONGEST} characters, not only white space, and no NUL.",
                stacklevel=3,
            )
        with LOCK:
            if name and name not in self.names and len(self.names) >= MOST_LISTS:
                raise RemedyError(f"There are {len(self.names):,} lists of words already", "Remove some.")
            # A word in another script or width is the same word.
            forms = set(map(simplify, [*gone, *fit]))
            changed = []
            for vocabulary in self._vocabularies:
                old = vocabulary.lists.lists.get(name, WordList())
                entries = (
                    {}
                    if replace
                    else {word: entry for word, entry in old.entries.items() if simplify(word) not in forms}
                )
                for word in gone:
                    if isinstance(vocabulary, LexiconVocabulary) and word in vocabulary.lexicon:
                        entries[word] = ListedWord(hidden=True)
                entries |= fit
                changed.append(WordList(entries, old.saved if saved is None else saved))
                self._bounded(entries, name)
            for vocabulary, word_list in zip(self._vocabularies, changed, strict=True):
                vocabulary.lists.put(name, word_list)

    def _list(self, name: str = "") -> WordList:
        lists = self._vocabularies[0].lists.lists
        if name:
            check_choice("list of words", name, lists)
        return lists.get(name, WordList())

    def _check_tag(self, tag: str, path: str | Path = "", line: int | None = None) -> None:
        if tag and not any(vocabulary.knows_tag(tag) for vocabulary in self._vocabularies):
            names = dict.fromkeys(name for vocabulary in self._vocabularies for name in vocabulary.tag_names)
            reason = f"Unknown tag of words {tag[:60]!r}"
            remedy = f"Use one that the model was trained with: {', '.join(names)}." if names else "Give none."
            raise InputError(str(path), reason, remedy, line=line) if path else RemedyError(reason, remedy)


def _check_name(name: object) -> None:
    """Raise if a list's name could not be saved."""
    if not isinstance(name, str) or any("\ud800" <= char <= "\udfff" for char in name):
        raise ValueError(f"The name of a list of words must be a string that UTF-8 can hold, but got {name!r}.")


def _listed(words: Iterable[str]) -> Iterable[str]:
    if isinstance(words, str):
        raise ValueError(f"The words must be a list of words, not the string {words!r}: [{words!r}].")
    return words


def _stripped(word: object, tag: object = "") -> str:
    if not (isinstance(word, str) and isinstance(tag, str)):
        raise ValueError(f"Words and their tags must be strings, but got {word!r} with the tag {tag!r}.")
    return word.strip()
