"""Editors for word lists, for the component `entity_lists` and for the lexicon of a trained `tener_ner`.

The lists are stored and matched in `features/word_lists.py`.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ..embedders.lexicon_embed import LexiconVocabulary
from ..errors import InputError, UserError, check_choice
from ..features.keys import compare_key
from ..features.lexicon import is_valid_word
from ..features.lexicon_sources import read_list
from ..features.word_lists import LOCK, WordList, WordListEntry, WordLists, make_entry

# Maximum numbers: words in a list, named lists, and characters in a word. Longer words are discarded with a warning. If
# there are too many words or lists, an error is raised.
MAX_WORDS, MAX_LISTS, MAX_WORD_LENGTH = 1_000_000, 10_000, 40
_Item = TypeVar("_Item")


class WordListOwner(Protocol):
    """An object that has word lists: an embedder's vocabulary, or a component."""

    @property
    def lists(self) -> WordLists: ...


class WordListEditor(ABC):
    """Base class for objects that edit word lists by name."""

    @property
    @abstractmethod
    def list_owners(self) -> Sequence[WordListOwner]:
        """The objects whose lists are edited. They all get the same lists.

        This can be a single component, or several embedders in a model.
        """

    @property
    def names(self) -> list[str]:
        """The names of all named lists."""
        return list(dict.fromkeys(name for owner in self.list_owners for name in owner.lists.lists if name))

    def remove(self, words: Iterable[str], *, name: str = "") -> None:
        """Remove words from a list.

        words (Iterable[str]): The words.
        name (str): The list's name. By default, the list that applies to all Docs is changed.
        """
        check_list_name(name)
        self._change(name, {}, removed=[strip_word(word) for word, _ in checked_words(pair_with_tags(words), name)])

    def clear(self, name: str = "") -> None:
        """Remove a list. If the list hides or blocks words, the words can be found again.

        name (str): The list's name. By default, the list that applies to all Docs is removed.
        """
        with LOCK:
            for owner in self.list_owners:
                owner.lists.put(name, None)

    def _entries(self, name: str) -> Mapping[str, WordListEntry]:
        """Return the words in a list, with their entries. Raise an error if there is no list with this name."""
        if name:
            fix = "There are no named word lists. Create a list by adding words with its name, or omit the name."
            check_choice("word list", name, self.names, fix_if_empty=fix)
        return next((owner.lists.lists.get(name, WordList()).entries for owner in self.list_owners), {})

    def _must_hide(self, owner: WordListOwner, word: str) -> bool:
        """Return whether a removed word needs an entry that hides it.

        This is necessary if the word is also in the model's lexicon, which cannot be changed.
        """
        return False

    def _change(
        self,
        name: str,
        entries: Mapping[str, WordListEntry],
        *,
        removed: Sequence[str] = (),
        keep_entry: Callable[[WordListEntry], bool] = lambda entry: True,
        saved: bool | None = None,
    ) -> None:
        """Change a list in all `list_owners`. If an error is raised, no list is changed.

        name (str): The list's name. The empty string is the list that applies to all Docs.
        entries (Mapping[str, WordListEntry]): Words to add, with their entries.
        removed (Sequence[str]): Words to remove, or to hide if they are in the model's lexicon.
        keep_entry (Callable[[WordListEntry], bool]): Function that returns whether to keep an existing entry.
        saved (bool | None): Whether to save the list with the pipeline. If None, the present value is kept.
        """
        valid = valid_words(entries, name)
        # All spellings of a word are changed.
        changed_keys = set(map(compare_key, [*removed, *valid]))
        with LOCK:
            if name and name not in self.names and len(self.names) >= MAX_LISTS:
                raise UserError(f"There are already {len(self.names):,} word lists", "Remove a list first.")
            changed = []
            for owner in self.list_owners:
                old = owner.lists.lists.get(name, WordList())
                words = {
                    word: entry
                    for word, entry in old.entries.items()
                    if compare_key(word) not in changed_keys and keep_entry(entry)
                }
                words |= {word: WordListEntry(hidden=True) for word in removed if self._must_hide(owner, word)}
                changed.append(WordList(words | valid, old.saved if saved is None else saved))
                checked_words(changed[-1].entries, name)
            # Raise an error if words are removed from a list that does not exist.
            if removed and not any(word_list.entries for word_list in changed):
                self._entries(name)
            for owner, word_list in zip(self.list_owners, changed, strict=True):
                owner.lists.put(name, word_list)


def valid_words(
    entries: Mapping[str, WordListEntry], name: str, *, has_examples: bool = True
) -> dict[str, WordListEntry]:
    """Return the valid words with their entries. Warn about invalid words.

    entries (Mapping[str, WordListEntry]): Words and their entries.
    name (str): The list's name or description, for the warning.
    has_examples (bool): Whether the warning contains invalid words. Python keeps warnings and prints them to the log,
        so they must not contain words of a request.
    """
    valid = {word: entry for word, entry in entries.items() if is_valid_word(word) and len(word) <= MAX_WORD_LENGTH}
    invalid = [word[:MAX_WORD_LENGTH] for word in entries if word not in valid]
    if invalid:
        which = f"the list {name!r}" if name else "the list"
        examples = f", such as {invalid[:3]}" if has_examples else ""
        warnings.warn(
            f"{len(invalid)} of the words for {which} were left out{examples}: a word must "
            f"have 2 to {MAX_WORD_LENGTH} characters, not only white space, and no NUL.",
            stacklevel=4,
        )
    return valid


def checked_words(items: Iterable[_Item], name: str) -> list[_Item]:
    """Convert words to a list. Raise an error if there are more than `MAX_WORDS`.

    name (str): The list's name, for the error message.
    """
    found = list(islice(items, MAX_WORDS + 1))
    if len(found) > MAX_WORDS:
        raise UserError(
            f"The word list {name!r} would have more than {MAX_WORDS:,} words",
            "Nothing was changed. Add fewer words, for example only the words that occur in your texts.",
        )
    return found


def check_list_name(name: object) -> None:
    """Raise an error if a list name is not a string that can be encoded in UTF-8."""
    if not isinstance(name, str) or any("\ud800" <= char <= "\udfff" for char in name):
        raise ValueError(f"The name of a word list must be a string that can be encoded in UTF-8, but got {name!r}.")


def pair_with_tags(words: Iterable[str] | Mapping[str, str], tag: str = "") -> Iterable[tuple[str, str]]:
    """Return words with their tags.

    words (Iterable[str] | Mapping[str, str]): The words, or a dictionary of words and their tags.
    tag (str): The tag of the words if `words` is not a dictionary. An error is raised if `words` is a dictionary and
        this is not empty.
    """
    if isinstance(words, str):
        raise ValueError(f"The words must be a list, not the string {words!r}. Use [{words!r}].")
    if isinstance(words, Mapping) and tag:
        raise ValueError(
            f"The words are a dictionary, which already specifies the tag or label of each word, so {tag!r} cannot be "
            f"passed as well. Pass a list of words with {tag!r}, or omit {tag!r}."
        )
    return words.items() if isinstance(words, Mapping) else ((word, tag) for word in words)


def strip_word(word: object, tag: object = "") -> str:
    """Strip white space from both ends of a word. Raise an error if the word or its tag is not a string."""
    if not (isinstance(word, str) and isinstance(tag, str)):
        raise ValueError(f"Words and their tags must be strings, but got {word!r} with the tag {tag!r}.")
    return word.strip()


class TaggedWordListOwner(WordListOwner, Protocol):
    """An embedder or tagger that has word lists and uses the words' tags.

    tag_names (list[str]): The supported tags, for error messages.
    """

    @property
    def tag_names(self) -> list[str]: ...

    def has_tag(self, tag: str) -> bool: ...


class LexiconEditor(WordListEditor):
    """Editor for a trained component's word lists. The words are used as features in addition to the model's lexicon.

    The default list, whose name is empty, applies to all Docs. To use other lists for a Doc, set `doc._.tener_words` to
    a name or to a list of names.
    """

    def __init__(self, vocabularies: Iterable[Any], component: str) -> None:
        """Create the editor.

        vocabularies (Iterable[Any]): The vocabularies of the model's embedders. Vocabularies without word lists are
            ignored.
        component (str): The component's name, for error messages.
        """
        self._tagged_owners: list[TaggedWordListOwner] = [
            vocabulary for vocabulary in vocabularies if hasattr(vocabulary, "lists")
        ]
        self._component = component

    @property
    def list_owners(self) -> Sequence[WordListOwner]:
        return self._tagged_owners

    def words(self, name: str = "") -> dict[str, str]:
        """Return the words in a list, with their tags.

        name (str): The list's name. By default, the list that applies to all Docs is used.
        """
        return {word: entry.tag for word, entry in self._entries(name).items() if not entry.hidden}

    def add(
        self, words: Iterable[str] | Mapping[str, str], tag: str = "", *, name: str = "", saved: bool | None = None
    ) -> None:
        """Add words to a list. The change takes effect immediately.

        words (Union[Iterable[str], Mapping[str, str]]): The words, or a dictionary of words and their tags.
        tag (str): The tag of the words. Only allowed if `words` is not a dictionary. The model must be trained with
            this tag. In jieba's tag set, `nr` is a person, `ns` a place, and `nt` an organization.
        name (str): Name of the list. By default, the list that applies to all Docs is changed.
        saved (Optional[bool]): Whether to save the list with the pipeline. By default, new lists are saved, and
            existing lists keep their present value.
        """
        self._check(name)
        entries = {
            strip_word(word, tag): make_entry(tag, hidden=False)
            for word, tag in checked_words(pair_with_tags(words, tag), name)
        }
        for entry in sorted(set(entries.values())):
            self._check_tag(entry.tag)
        self._change(name, entries, saved=saved)

    def remove(self, words: Iterable[str], *, name: str = "") -> None:
        """Remove words from a list. If they are also in the model's lexicon, the model no longer uses them.

        words (Iterable[str]): The words.
        name (str): The list's name. By default, the list that applies to all Docs is changed.
        """
        self._check(name)
        super().remove(words, name=name)

    def read(
        self, path: str | Path, tag: str = "", *, name: str = "", min_frequency: int = 0, saved: bool | None = None
    ) -> None:
        """Replace a list with the words in a file. If the file is not valid, the list is not changed.

        path (Union[str, Path]): A file in UTF-8. Each line contains `word`, `word<TAB>frequency`, `word<TAB>tag`, or
            `word frequency tag` as in jieba.
        tag (str): The tag for words without a tag in the file.
        name (str): The list's name. By default, the list that applies to all Docs is replaced.
        min_frequency (int): Minimum frequency. Words with a lower frequency are discarded.
        saved (Optional[bool]): Whether to save the list with the pipeline. By default, new lists are saved, and
            existing lists keep their present value.
        """
        self._check(name)
        known_tags, entries = set[str](), dict[str, WordListEntry]()
        for line in checked_words(read_list(Path(path), tag, has_tags=True, allow_jieba_format=True), name):
            if line.tag not in known_tags:
                self._check_tag(line.tag, path, line.line)
                known_tags.add(line.tag)
            if line.frequency is None or line.frequency >= min_frequency:
                entries[line.word] = make_entry(line.tag, hidden=False)
        self._change(name, entries, keep_entry=lambda entry: False, saved=saved)

    def _must_hide(self, owner: WordListOwner, word: str) -> bool:
        return isinstance(owner, LexiconVocabulary) and word in owner.lexicon

    def _check(self, name: str) -> None:
        """Raise an error if a list name is not valid, or if the model does not use words as features."""
        check_list_name(name)
        if not self._tagged_owners:
            raise UserError(
                f"The model of '{self._component}' does not use words as features",
                "Train a model with one of the overlays `segment`, `flat`, `flat-atssa` and `mect`. To label words as "
                f'entities instead, use nlp.add_pipe("entity_lists", before="{self._component}").',
            )

    def _check_tag(self, tag: str, path: str | Path = "", line: int | None = None) -> None:
        """Raise an error if the model was not trained with the tag."""
        if not tag or any(owner.has_tag(tag) for owner in self._tagged_owners):
            return
        names = dict.fromkeys(name for owner in self._tagged_owners for name in owner.tag_names)
        reason = f"Unknown word tag {tag[:60]!r}"
        fix = f"Use a tag that the model was trained with: {', '.join(names)}." if names else "Remove the tag."
        raise InputError(str(path), reason, fix, line=line) if path else UserError(reason, fix)
