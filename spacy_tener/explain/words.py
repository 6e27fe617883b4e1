"""What a model reads in a text beside its characters: the lexicon's words, and radicals."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np
from spacy.tokens import Doc
from thinc.api import Model

from ..features.word_lists import find_layered
from ..models.embed.characters import RadicalVocabulary
from ..models.embed.lexicon import WORD, LexiconVocabulary
from ..pipeline.units import DocView
from ..pipeline.windows import Window
from .explanation import LexiconWord

VocabularyT = TypeVar("VocabularyT")


def find_vocabulary(models: Iterable[Model[Any, Any]], kind: type[VocabularyT]) -> VocabularyT | None:
    """Return the first vocabulary of a kind in some models."""
    vocabularies = (node.attrs.get("vocabulary") for model in models for node in model.walk())
    return next((vocabulary for vocabulary in vocabularies if isinstance(vocabulary, kind)), None)


def lexicon_words(vocabulary: LexiconVocabulary, view: DocView, window: Window, piece: Doc) -> list[LexiconWord]:
    """Return the words of the lexicon and of lists that begin in the core of a window, in the encoder's order.

    piece (Doc): The window as a Doc.
    """
    lists = vocabulary.lists.active([piece])
    found = find_layered(vocabulary.lexicon, [piece], lists, vocabulary.max_words)
    match, is_of_lexicon = found.match, found.layers == 0
    lexicons = [vocabulary.lexicon, *(words.lexicon for words, _ in lists)]
    has_row = np.zeros(is_of_lexicon.size, dtype=bool)
    has_row[is_of_lexicon] = vocabulary.tables[WORD].rows(vocabulary.keys(match.words[is_of_lexicon])[WORD]) != 0
    if not is_of_lexicon.all():
        similar = vocabulary.similar_words(found, [words for words, _ in lists])
        has_row[~is_of_lexicon] = (
            np.maximum.reduceat(similar.words, np.cumsum(similar.sizes) - similar.sizes)[similar.which] != 0
        )
    columns = (found.layers, match.words, match.heads, match.tails, has_row)
    return [
        LexiconWord(
            *view.char_span(window.start + head, window.start + tail + 1),
            lexicon.words[word],
            lexicon.tag_names[lexicon.tags[word]],
            row,
        )
        for layer, word, head, tail, row in zip(*(column.tolist() for column in columns), strict=True)
        for lexicon in [lexicons[layer]]
        if window.core.start <= head < window.core.stop
    ]


def radicals_of(vocabulary: RadicalVocabulary, text: str) -> dict[str, str]:
    """Return the radicals of each character of a text, as the model reads them; without characters that are their own
    only radical."""
    radicals = {char: vocabulary.structures[char] for char in sorted(set(text))}
    return {char: parts for char, parts in radicals.items() if parts != char}
