"""What a model's lexicon found in a text, and what its characters are made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from spacy.tokens import Doc
from thinc.api import Model

from ..features.word_lists import find_layered
from ..models.embed.lexicon import WORD, LexiconVocabulary
from ..models.embed.radical import RadicalVocabulary


@dataclass(frozen=True)
class LexiconWord:
    """A word of the lexicon that was found in a text.

    start, end: the units that it covers.
    tag: what the lexicon says of it beside, or nothing: a part of speech in jieba's dictionary.
    known: whether the model has a row for this word, from training or from a file of vectors, or for words that it is
        like, if it came after training. All others share one.
    """

    start: int
    end: int
    text: str
    tag: str
    known: bool


def lexicon_of(models: Iterable[Model[Any, Any]]) -> LexiconVocabulary | None:
    return next(_vocabularies(models, LexiconVocabulary), None)


def structures_of(models: Iterable[Model[Any, Any]]) -> RadicalVocabulary | None:
    return next(_vocabularies(models, RadicalVocabulary), None)


def _vocabularies(models: Iterable[Model[Any, Any]], kind: type[Any]) -> Iterator[Any]:
    vocabularies = (node.attrs.get("vocabulary") for model in models for node in model.walk())
    return (vocabulary for vocabulary in vocabularies if isinstance(vocabulary, kind))


def lexicon_words(vocabulary: LexiconVocabulary, doc: Doc) -> list[LexiconWord]:
    """The words of the lexicon and of lists in a Doc, in the order in which the encoder has them."""
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


def radicals(vocabulary: RadicalVocabulary, text: str) -> dict[str, str]:
    """What each character of a text is made of, as the model reads it; without those that stand for themselves."""
    made = {char: vocabulary.structures[char] for char in sorted(set(text))}
    return {char: parts for char, parts in made.items() if parts != char}
