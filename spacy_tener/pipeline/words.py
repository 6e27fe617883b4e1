"""Words given to a trained component: `nlp.get_pipe("tener_ner").lexicon`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from ..embedders.lexicon_embed import LexiconVocabulary
from ..errors import InputError, RemedyError
from ..features.lexicon_sources import read_list
from ..features.word_lists import ListedWord, WordLists, make_entry
from .named_lists import HasLists, NamedLists, bounded, check_name, listed, stripped


class HasWords(Protocol):
    """An embedder, or a tagger, that reads words of lists.

    tag_names: The tags of words in messages.
    """

    lists: WordLists

    @property
    def tag_names(self) -> list[str]: ...

    def knows_tag(self, tag: str) -> bool: ...


class PipelineWords(NamedLists):
    """Lists of words that a trained component uses beside its lexicon, as evidence.

    The list without a name applies to all Docs. A named list applies to Docs whose `doc._.tener_words` is its name, or
    a list of names that contains it.
    """

    def __init__(self, vocabularies: Iterable[Any], component: str) -> None:
        """vocabularies (Iterable[Any]): Of the model's embedders, some of which have words."""
        self._readers: list[HasWords] = [vocabulary for vocabulary in vocabularies if hasattr(vocabulary, "lists")]
        self._component = component

    @property
    def holders(self) -> Sequence[HasLists]:
        return self._readers

    def words(self, name: str = "") -> dict[str, str]:
        """Return the words of a list, with their tags.

        name (str): The list; the one that counts for every Doc without a name.
        """
        return {word: entry.tag for word, entry in self._entries(name).items() if not entry.hidden}

    def add(
        self, words: Iterable[str] | Mapping[str, str], tag: str = "", *, name: str = "", saved: bool | None = None
    ) -> None:
        """Add words to a list. They are found from the next text on.

        words (Union[Iterable[str], Mapping[str, str]]): The words, or the tag of each word.
        tag (str): What the words are, by a tag that the model was trained with: by jieba's, `nr` is a person, `ns` a
            place, `nt` an organisation.
        name (str): The list; the one that counts for every Doc without a name.
        saved (Optional[bool]): Whether the list is saved with the pipeline; as it was, or true for a new list, if None.
        """
        self._check(name)
        entries = {stripped(word, tag): make_entry(tag, False) for word, tag in bounded(listed(words, tag), name)}
        for entry in sorted(set(entries.values())):
            self._check_tag(entry.tag)
        self._change(name, entries, saved=saved)

    def remove(self, words: Iterable[str], *, name: str = "") -> None:
        """Remove words from a list, and hide those that are in the model's lexicon.

        words (Iterable[str]): The words.
        name (str): The list; the one that counts for every Doc without a name.
        """
        self._check(name)
        super().remove(words, name=name)

    def read(
        self, path: str | Path, tag: str = "", *, name: str = "", min_frequency: int = 0, saved: bool | None = None
    ) -> None:
        """Replace a list by the words in a file. If it cannot be read, the list stays as it was.

        path (Union[str, Path]): `word`, `word<TAB>frequency`, `word<TAB>tag`, or jieba's `word frequency tag`, on each
            line, in UTF-8.
        tag (str): The tag of words without one.
        name (str): The list.
        min_frequency (int): Words with a smaller frequency are left out.
        saved (Optional[bool]): Whether the list is saved with the pipeline; as it was, or true for a new list, if None.
        """
        self._check(name)
        checked, entries = set[str](), dict[str, ListedWord]()
        for line in bounded(read_list(Path(path), tag, has_tags=True, may_be_jiebas=True), name):
            if line.tag not in checked:
                self._check_tag(line.tag, path, line.line)
                checked.add(line.tag)
            if line.frequency is None or line.frequency >= min_frequency:
                entries[line.word] = make_entry(line.tag, False)
        self._change(name, entries, keeps=lambda entry: False, saved=saved)

    def _hides(self, holder: HasLists, word: str) -> bool:
        return isinstance(holder, LexiconVocabulary) and word in holder.lexicon

    def _check(self, name: str) -> None:
        """Raise if there can be no such list, or if the model reads no words."""
        check_name(name)
        if not self._readers:
            raise RemedyError(
                f"The model of '{self._component}' does not use words",
                "Train one that does, with one of the overlays segment, flat, flat-atssa and mect. Or make words "
                f'entities: nlp.add_pipe("entity_lists", before="{self._component}").',
            )

    def _check_tag(self, tag: str, path: str | Path = "", line: int | None = None) -> None:
        if not tag or any(reader.knows_tag(tag) for reader in self._readers):
            return
        names = dict.fromkeys(name for reader in self._readers for name in reader.tag_names)
        reason = f"Unknown tag of words {tag[:60]!r}"
        remedy = f"Use one that the model was trained with: {', '.join(names)}." if names else "Give none."
        raise InputError(str(path), reason, remedy, line=line) if path else RemedyError(reason, remedy)
