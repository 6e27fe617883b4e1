"""The passages of a Doc that a page has room for, and the lexicon's words in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from spacy.tokens import Doc
from thinc.api import Model

from ..features.word_lists import find_layered
from ..models.embed.characters import RadicalVocabulary
from ..models.embed.lexicon import WORD, LexiconVocabulary
from ..pipeline.settings import NERSettings
from ..pipeline.units import DocView
from ..pipeline.windows import Window, cut_windows
from ..types import BoolArray
from .explanation import LexiconWord

MAX_UNITS = 64
"""Most units of a passage. An entity may make it longer."""

VocabularyT = TypeVar("VocabularyT")


@dataclass(frozen=True)
class PassageSpan:
    """Units `start` to `end` of a Doc, inside of the window that the model reads."""

    start: int
    end: int
    window: Window

    @property
    def in_window(self) -> slice:
        """The units, counted from the window's start."""
        return slice(self.start - self.window.start, self.end - self.window.start)


def cut_passages(view: DocView, entities: Sequence[tuple[int, int]], settings: NERSettings) -> list[PassageSpan]:
    """Cut a Doc into passages, in order, that cover all of it.

    entities: Spans of units that are not cut, unless they are longer than a window.
    """
    ends = view.sentence_ends()
    for start, end in entities:
        ends[start : end - 1] = False
    windows = cut_windows(len(view), ends, size=settings.window, overlap=settings.overlap) if len(view) else []
    passages: list[PassageSpan] = []
    for window in windows:
        passages.extend(_cut_window(window, passages[-1].end if passages else 0, ends, entities))
    return passages


def _cut_window(
    window: Window, start: int, ends: BoolArray, entities: Sequence[tuple[int, int]]
) -> Iterator[PassageSpan]:
    while start < window.core_end:
        end = min(start + MAX_UNITS, window.core_end)
        if end < window.core_end:
            seen = np.flatnonzero(ends[start + MAX_UNITS // 2 : end])
            end = start + MAX_UNITS // 2 + int(seen[-1]) + 1 if seen.size else end
        end = min(next((last for first, last in entities if first < end < last), end), window.end)
        yield PassageSpan(start, end, window)
        start = end


def find_vocabulary(models: Iterable[Model[Any, Any]], kind: type[VocabularyT]) -> VocabularyT | None:
    """Return the first vocabulary of a kind in some models."""
    vocabularies = (node.attrs.get("vocabulary") for model in models for node in model.walk())
    return next((each for each in vocabularies if isinstance(each, kind)), None)


def lexicon_words(vocabulary: LexiconVocabulary, doc: Doc) -> list[LexiconWord]:
    """Return the words of the lexicon and of lists in a Doc, in the order in which the encoder has them."""
    lists = vocabulary.lists.active([doc])
    found = find_layered(vocabulary.lexicon, [doc], lists, vocabulary.max_words)
    match, own = found.match, found.layers == 0
    lexicons = [vocabulary.lexicon, *(words.lexicon for words, _ in lists)]
    known = np.zeros(own.size, dtype=bool)
    known[own] = vocabulary.tables[WORD].rows(vocabulary.keys(match.words[own])[WORD]) != 0
    if not own.all():
        likes = vocabulary.likes(found, [words for words, _ in lists])
        known[~own] = np.maximum.reduceat(likes.words, np.cumsum(likes.sizes) - likes.sizes)[likes.which] != 0
    columns = (found.layers, match.words, match.heads, match.tails, known)
    return [
        LexiconWord(head, tail + 1, lexicon.words[word], lexicon.tag_names[lexicon.tags[word]], row)
        for layer, word, head, tail, row in zip(*(column.tolist() for column in columns), strict=True)
        for lexicon in [lexicons[layer]]
    ]


def radicals_of(vocabulary: RadicalVocabulary, text: str) -> dict[str, str]:
    """Return the radicals of each character of a text, as the model reads them; without characters that are their own
    only radical."""
    radicals = {char: vocabulary.structures[char] for char in sorted(set(text))}
    return {char: parts for char, parts in radicals.items() if parts != char}
