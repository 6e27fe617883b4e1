"""Words given to a trained component: `nlp.get_pipe("tener_ner").lexicon`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from thinc.api import Model

from ..errors import RemedyError, check_choice
from ..features.lexicon.lists import Entry, Limits, WatchedFile, WordList, WordLists, bounded, check_list_name
from ..features.vectors.vectors import read_vectors
from ..models.embed.gazetteer import GazetteerVocabulary
from ..models.embed.lexicon import LexiconVocabulary
from ..models.embed.segment import SegmentVocabulary

_NEIGHBOURS = 8
_WITH_WORDS = LexiconVocabulary | SegmentVocabulary | GazetteerVocabulary


class PipelineWords:
    """The words that a component knows beyond its training, in lists.

    The list without a name counts for every Doc. One with a name counts for the Docs whose `doc._.tener_words` is that
    name, or a list of names with it in.
    """

    def __init__(self, model: Model[Any, Any], component: str) -> None:
        vocabularies = (node.attrs.get("vocabulary") for node in model.walk())
        self._vocabularies = [each for each in vocabularies if isinstance(each, _WITH_WORDS)]
        if not self._vocabularies:
            raise RemedyError(
                f"The model of '{component}' reads no words",
                "Train one that does: the overlays segment, flat, flat-atssa and mect make such models.",
            )

    @property
    def _lists(self) -> list[WordLists]:
        return [vocabulary.lists for vocabulary in self._vocabularies]

    @property
    def names(self) -> list[str]:
        """The names of the lists."""
        return [name for name in self._lists[0].lists if name]

    @property
    def limits(self) -> Limits:
        """What lists may hold."""
        return self._lists[0].limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        for lists in self._lists:
            lists.limits = limits

    def words(self, name: str = "") -> dict[str, str]:
        """The words of a list with their tags."""
        entries = self._list(name).entries
        return {word: entry.tag for word, entry in entries.items() if not entry.hidden}

    def add(
        self,
        words: Iterable[str] | Mapping[str, str],
        tag: str = "",
        *,
        name: str = "",
        like: Iterable[str] = (),
        vectors: str | Path | None = None,
        saved: bool | None = None,
    ) -> None:
        """Add words to a list. They are found from the next text on.

        words (Union[Iterable[str], Mapping[str, str]]): The words, or the tag of each word.
        tag (str): What the words are, by a tag that the model was trained with: by jieba's, `nr` is a person, `ns` a
            place, `nt` an organisation.
        name (str): The list; the one that counts for every Doc without a name.
        like (Iterable[str]): Words of the lexicon that these are used like. Otherwise a word is taken to be used like
            those of its tag that begin or end with the same character.
        vectors (Optional[Union[str, Path]]): A file of vectors, which tells for each word what it is used like.
        saved (Optional[bool]): Whether the list is saved with the pipeline; as it was, or true for a new list, if None.
        """
        check_list_name(name)
        tags = words.items() if isinstance(words, Mapping) else ((word, tag) for word in _listed(words))
        rows = [(_stripped(word, own), own) for word, own in bounded(tags, self.limits.words, name)]
        self._check_tags({own for _, own in rows})
        if like or vectors is not None:
            like = self._likes(like)
        nearest = {} if vectors is None else self._nearest([word for word, _ in rows], vectors)
        entries = [(word, Entry(own, nearest.get(word, tuple(like)))) for word, own in rows]
        self._change(name, lambda vocabulary: entries, saved=saved)

    def remove(self, words: Iterable[str], *, name: str = "") -> None:
        """Take words out of a list, and let those that the model's own lexicon has not be found any more."""
        check_list_name(name)
        gone = [_stripped(word) for word in bounded(_listed(words), self.limits.words, name)]

        def hidden(vocabulary: _WITH_WORDS) -> list[tuple[str, Entry]]:
            known = () if isinstance(vocabulary, SegmentVocabulary) else vocabulary.lexicon
            return [(word, Entry(hidden=True)) for word in gone if word in known]

        self._change(name, hidden, gone=gone)

    def clear(self, name: str = "") -> None:
        """Take a list away, with all that it added and hid."""
        for lists in self._lists:
            lists.clear(name)

    def read(
        self, path: str | Path, tag: str = "", *, name: str = "", min_frequency: int = 0, saved: bool = False
    ) -> None:
        """Let a list be what is in a file, and stay so: it is read again when it changes, within a second of the next
        text.

        path (Union[str, Path]): `word`, `word<TAB>tag`, or jieba's `word frequency tag`, on each line, in UTF-8.
        tag (str): The tag of words without one.
        name (str): The list.
        min_frequency (int): Words with a smaller frequency are left out.
        saved (bool): Whether the words are saved with the pipeline. It does not look for the file when it is loaded.
        """
        check_list_name(name)
        words = dict(bounded(WatchedFile(Path(path), tag, min_frequency).read(), self.limits.words, name))
        self._check_tags(tags := {entry.tag for entry in words.values()})
        lost = [word for word in self._lists[0].lists.get(name, WordList()).entries if word not in words]
        if lost and not self._lists[0].is_watched(name):
            raise RemedyError(
                f"The list of words {name!r} has words that {path} lacks, such as {lost[0]!r}",
                "Read the file into a list with another name, or `clear` this one.",
            )
        known = frozenset({"", *tags}.union(*(vocabulary.tag_names for vocabulary in self._vocabularies)))
        for lists in self._lists:
            lists.watch(name, WatchedFile(Path(path), tag, min_frequency, known), saved=saved)

    def _change(
        self,
        name: str,
        words: Callable[[_WITH_WORDS], list[tuple[str, Entry]]],
        *,
        gone: Sequence[str] = (),
        saved: bool | None = None,
    ) -> None:
        """Change the lists of this name in all embedders, or in none."""
        with self._lists[0].lock:
            made = [each.lists.changed(name, words(each), gone=gone, saved=saved) for each in self._vocabularies]
            for lists, changed in zip(self._lists, made, strict=True):
                lists.put(name, changed)

    def _list(self, name: str) -> WordList:
        lists = self._lists[0].lists
        if name:
            check_choice("list of words", name, lists)
        return lists.get(name, WordList())

    def _check_tags(self, tags: set[str]) -> None:
        for tag in sorted(tags - {""}):
            if not any(vocabulary.knows_tag(tag) for vocabulary in self._vocabularies):
                known = dict.fromkeys(name for vocabulary in self._vocabularies for name in vocabulary.tag_names)
                raise RemedyError(
                    f"Unknown tag of words '{tag}'",
                    f"Use one that the model was trained with: {', '.join(known)}." if known else "Give none.",
                )

    def _likes(self, like: Iterable[str]) -> tuple[str, ...]:
        if isinstance(like, str):
            raise ValueError(f"`like` must be a list of words, not the string {like!r}: [{like!r}].")
        if not any(isinstance(vocabulary, LexiconVocabulary) for vocabulary in self._vocabularies):
            raise RemedyError(
                "The model has no lexicon, which `like` and `vectors` are for", "Tell it the words' tags."
            )
        like = tuple(like)
        if unknown := sorted(set(like) - self._known()):
            warnings.warn(
                f"{len(unknown)} of the words in `like` say nothing, since training has not shown them: {unknown[:3]}.",
                stacklevel=3,
            )
        return like

    def _known(self) -> set[str]:
        """The words of lexicons with a row."""
        return {word for each in self._vocabularies if isinstance(each, LexiconVocabulary) for word in each.known}

    def _nearest(self, words: list[str], path: str | Path) -> dict[str, tuple[str, ...]]:
        """The words with a row that have the most similar vectors."""
        known = self._known()
        wanted = known | set(words)
        vectors = read_vectors(path, keep=wanted.__contains__, strings=sorted(wanted))
        table = vectors.table / np.maximum(np.linalg.norm(vectors.table, axis=1, keepdims=True), 1e-8)
        places = {word: place for place, word in enumerate(vectors.strings)}
        others = [word for word in vectors.strings if word in known]
        rows = table[[places[word] for word in others]]
        nearest = {}
        for word in words if others else ():
            if word in places:
                order = np.argsort(-(rows @ table[places[word]]), kind="stable")[: _NEIGHBOURS + 1]
                nearest[word] = tuple(others[index] for index in order if others[index] != word)[:_NEIGHBOURS]
        if words and not nearest:
            warnings.warn(f"{path} has no vector for any of the words, or none for words of training.", stacklevel=3)
        return nearest


def _listed(words: Iterable[str]) -> Iterable[str]:
    if isinstance(words, str):
        raise ValueError(f"The words must be a list of words, not the string {words!r}: [{words!r}].")
    return words


def _stripped(word: object, tag: object = "") -> str:
    if not (isinstance(word, str) and isinstance(tag, str)):
        raise ValueError(f"Words and their tags must be strings, but got {word!r} with the tag {tag!r}.")
    return word.strip()
