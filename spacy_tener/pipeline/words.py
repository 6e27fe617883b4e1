"""Words given to a trained component: `nlp.get_pipe("tener_ner").lexicon`."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ..embedders.lexicon_embed import LexiconVocabulary
from ..errors import InputError, RemedyError, check_choice
from ..features.keys import simplify
from ..features.lexicon import is_fit
from ..features.lexicon_sources import read_list
from ..features.word_lists import LOCK, ListedWord, WordList, WordLists, make_entry
from .forced import ForcedWords

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
    """Lists of words that a trained component uses beside its lexicon: as evidence, or as rules.

    The list without a name applies to all Docs. A named list applies to Docs whose `doc._.tener_words` is its name, or
    a list of names that contains it.
    """

    def __init__(
        self, vocabularies: Iterable[Any], component: str, forced: ForcedWords, labels: Collection[str]
    ) -> None:
        """vocabularies (Iterable[Any]): Of the model's embedders, where its words are evidence."""
        self._evidence: list[HasWords] = [vocabulary for vocabulary in vocabularies if hasattr(vocabulary, "lists")]
        self._forced = forced
        self._labels = labels
        self._component = component

    @property
    def _homes(self) -> list[HasWords]:
        return [*self._evidence, self._forced]

    @property
    def names(self) -> list[str]:
        """The names of the lists."""
        return list(dict.fromkeys(name for home in self._homes for name in home.lists.lists if name))

    def words(self, name: str = "") -> dict[str, str]:
        """Return the words of a list that are evidence, with their tags.

        name (str): The list; the one that counts for every Doc without a name.
        """
        return {word: entry.tag for word, entry in self._entries(self._evidence, name) if not entry.hidden}

    def forced(self, name: str = "") -> dict[str, str]:
        """Return the words of a list that are entities, with their labels.

        name (str): The list; the one that counts for every Doc without a name.
        """
        return {word: entry.tag for word, entry in self._entries([self._forced], name) if not entry.hidden}

    def blocked(self, name: str = "") -> dict[str, str]:
        """Return the words of a list that are no entities of a label; the empty string stands for all labels.

        name (str): The list; the one that counts for every Doc without a name.
        """
        return {word: entry.tag for word, entry in self._entries([self._forced], name) if entry.hidden}

    def add(
        self,
        words: Iterable[str] | Mapping[str, str],
        tag: str = "",
        *,
        name: str = "",
        saved: bool | None = None,
        force: bool = False,
    ) -> None:
        """Add words to a list. They are found from the next text on.

        words (Union[Iterable[str], Mapping[str, str]]): The words, or the tag of each word.
        tag (str): What the words are, by a tag that the model was trained with: by jieba's, `nr` is a person, `ns` a
            place, `nt` an organisation. With `force`, any label of entities, whether the model has it or not.
        name (str): The list; the one that counts for every Doc without a name.
        saved (Optional[bool]): Whether the list is saved with the pipeline; as it was, or true for a new list, if None.
        force (bool): Whether the words are entities wherever they occur, instead of evidence.
        """
        self._add(words, tag, name, saved, force=force)

    def block(
        self, words: Iterable[str] | Mapping[str, str], label: str = "", *, name: str = "", saved: bool | None = None
    ) -> None:
        """Let words be no entities. Longer names that contain them still are.

        words (Union[Iterable[str], Mapping[str, str]]): The words, or the label of each word.
        label (str): The label that entities of the words do not have; the empty string for all labels.
        name (str): The list; the one that counts for every Doc without a name.
        saved (Optional[bool]): Whether the list is saved with the pipeline; as it was, or true for a new list, if None.
        """
        self._add(words, label, name, saved, force=True, blocks=True)
        blocked = set(words.values() if isinstance(words, Mapping) else [label])
        if unknown := sorted(blocked.difference(self._labels, [""])):
            warnings.warn(
                f"'{self._component}' has no label {', '.join(unknown)}, so that blocked words lose no entity of it. "
                f"It has: {', '.join(self._labels)}.",
                stacklevel=2,
            )

    def _add(
        self,
        words: Iterable[str] | Mapping[str, str],
        tag: str,
        name: str,
        saved: bool | None,
        *,
        force: bool,
        blocks: bool = False,
    ) -> None:
        _check_name(name)
        homes = self._choose(force)
        tags = words.items() if isinstance(words, Mapping) else ((word, tag) for word in _listed(words))
        rows = [(_stripped(word, word_tag), word_tag) for word, word_tag in self._bounded(tags, name)]
        for word_tag in sorted({word_tag for _, word_tag in rows}):
            self._check_tag(word_tag, force=force, is_needed=not blocks)
        entries, labels = dict[str, ListedWord](), dict[str, str]()
        for word, word_tag in rows:
            if force:
                _check_label(labels, word, word_tag)
            entries[word] = make_entry(word_tag, blocks)
        self._change(homes, name, entries, saved=saved)

    def remove(self, words: Iterable[str], *, name: str = "", force: bool = False) -> None:
        """Remove words from a list, and hide those that are in the model's lexicon.

        words (Iterable[str]): The words.
        name (str): The list; the one that counts for every Doc without a name.
        force (bool): Remove words that are forced or blocked, instead of evidence.
        """
        _check_name(name)
        gone = [_stripped(word) for word in self._bounded(_listed(words), name)]
        self._change(self._choose(force), name, {}, gone=gone)

    def clear(self, name: str = "") -> None:
        """Remove a list: its words are no longer found, forced or blocked, and words that it hid are found again.

        name (str): The list; the one that counts for every Doc without a name.
        """
        with LOCK:
            for home in self._homes:
                home.lists.put(name, None)

    def read(
        self,
        path: str | Path,
        tag: str = "",
        *,
        name: str = "",
        min_frequency: int = 0,
        saved: bool | None = None,
        force: bool = False,
    ) -> None:
        """Replace a list by the words in a file. If it cannot be read, the list stays as it was.

        path (Union[str, Path]): `word`, `word<TAB>frequency`, `word<TAB>tag`, or jieba's `word frequency tag`, on each
            line, in UTF-8. With `force`, the tag is a label.
        tag (str): The tag of words without one.
        name (str): The list.
        min_frequency (int): Words with a smaller frequency are left out.
        saved (Optional[bool]): Whether the list is saved with the pipeline; as it was, or true for a new list, if None.
        """
        _check_name(name)
        homes = self._choose(force)
        checked: set[str] = set()
        words, labels = dict[str, ListedWord](), dict[str, str]()
        for entry in self._bounded(read_list(Path(path), tag, has_tags=True), name):
            if entry.tag not in checked:
                self._check_tag(entry.tag, path, entry.line, force=force)
                checked.add(entry.tag)
            if entry.frequency is None or entry.frequency >= min_frequency:
                if force:
                    _check_label(labels, entry.word, entry.tag, path, entry.line)
                words[entry.word] = make_entry(entry.tag, False)
        self._change(homes, name, words, replace=True, saved=saved)

    def _choose(self, force: bool) -> list[HasWords]:
        """Return where a list's words are kept: as rules, or as evidence in each embedder that reads words."""
        if not force and not self._evidence:
            raise RemedyError(
                f"The model of '{self._component}' does not use words",
                "Train one that does, with one of the overlays segment, flat, flat-atssa and mect, or set force=True: "
                "then words are entities.",
            )
        return [self._forced] if force else self._evidence

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
        homes: Sequence[HasWords],
        name: str,
        words: Mapping[str, ListedWord],
        *,
        gone: Collection[str] = (),
        replace: bool = False,
        saved: bool | None = None,
    ) -> None:
        """Change the lists of this name in all these homes, or in none. Every home has a list of each name, perhaps an
        empty one, so that Docs may name it.

        gone (Collection[str]): words to be taken out, or hidden.
        replace (bool): whether the words that the list had go.
        """
        fit = {word: entry for word, entry in words.items() if is_fit(word) and len(word) <= LONGEST}
        if unfit := [word[:LONGEST] for word in words if word not in fit]:
            which = f"the list {name!r}" if name else "the list"
            warnings.warn(
                f"{len(unfit)} of the words for {which} were left out, such as {unfit[:3]}: words have "
                f"2 to {LONGEST} characters, not only white space, and no NUL.",
                stacklevel=3,
            )
        with LOCK:
            if name and name not in self.names and len(self.names) >= MOST_LISTS:
                raise RemedyError(f"There are {len(self.names):,} lists of words already", "Remove some.")
            is_saved = {key: words.saved for home in self._homes for key, words in home.lists.lists.items()}
            is_saved[name] = is_saved.get(name, True) if saved is None else saved
            # A word in another script or width is the same word.
            forms = set(map(simplify, [*gone, *fit]))
            changed = []
            for home in homes:
                old = home.lists.lists.get(name, WordList()).entries
                entries = {
                    word: entry
                    for word, entry in old.items()
                    if simplify(word) not in forms and not (replace and not (entry.hidden and home is self._forced))
                }
                for word in gone:
                    if isinstance(home, LexiconVocabulary) and word in home.lexicon:
                        entries[word] = ListedWord(hidden=True)
                entries |= fit
                changed.append(WordList(entries, is_saved[name]))
                self._bounded(entries, name)
            for home, word_list in zip(homes, changed, strict=True):
                home.lists.put(name, word_list)
            for home in self._homes:
                for key in filter(None, is_saved):
                    words_of_key = home.lists.lists.get(key, WordList())
                    if key not in home.lists.lists or words_of_key.saved != is_saved[key]:
                        home.lists.put(key, WordList(words_of_key.entries, is_saved[key]))

    def _entries(self, homes: Sequence[HasWords], name: str) -> list[tuple[str, ListedWord]]:
        if name:
            check_choice("list of words", name, self.names)
        return [entry for home in homes[:1] for entry in home.lists.lists.get(name, WordList()).entries.items()]

    def _check_tag(
        self, tag: str, path: str | Path = "", line: int | None = None, *, force: bool, is_needed: bool = True
    ) -> None:
        homes = self._choose(force)
        if any(home.knows_tag(tag) for home in homes) or not (tag or (force and is_needed)):
            return
        names = dict.fromkeys(name for home in homes for name in home.tag_names)
        reason = f"Unknown tag of words {tag[:60]!r}"
        remedy = f"Use one that the model was trained with: {', '.join(names)}." if names else "Give none."
        if force:
            reason, remedy = f"{tag[:60]!r} is no label", "Give a label to each word, as {'云海一号': 'PRODUCT'}."
        raise InputError(str(path), reason, remedy, line=line) if path else RemedyError(reason, remedy)


def _check_label(labels: dict[str, str], word: str, label: str, path: str | Path = "", line: int | None = None) -> None:
    """Refuse a second label of a word, in whatever script. labels: Those of earlier words, to which it is added."""
    first = labels.setdefault(simplify(word), label)
    if first != label:
        reason = f"{word[:60]!r} has two labels, {first} and {label}"
        remedy = "Give it one, and those of some Docs in a list with a name."
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
