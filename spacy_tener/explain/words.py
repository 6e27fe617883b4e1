"""What a model's lexicon found in a text, and what its characters are made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from spacy.tokens import Doc
from thinc.api import Model

from ..models.embed.component import ComponentVocabulary
from ..models.embed.lexicon import WORD, LexiconVocabulary


@dataclass(frozen=True)
class LexiconWord:
    """A word of the lexicon that was found in a text.

    start, end: the units that it covers.
    tag: what the lexicon says of it beside, or nothing: a part of speech in jieba's dictionary.
    known: whether the model has a row for this word, from training or from a file of vectors. All others share one.
    """

    start: int
    end: int
    text: str
    tag: str
    known: bool


def lexicon_of(models: Iterable[Model[Any, Any]]) -> LexiconVocabulary | None:
    return next(_vocabularies(models, LexiconVocabulary), None)


def structures_of(models: Iterable[Model[Any, Any]]) -> ComponentVocabulary | None:
    return next(_vocabularies(models, ComponentVocabulary), None)


def _vocabularies(models: Iterable[Model[Any, Any]], kind: type[Any]) -> Iterator[Any]:
    vocabularies = (node.attrs.get("vocabulary") for model in models for node in model.walk())
    return (vocabulary for vocabulary in vocabularies if isinstance(vocabulary, kind))


def lexicon_words(vocabulary: LexiconVocabulary, doc: Doc) -> list[LexiconWord]:
    """The words of the lexicon in a Doc, in the order in which the encoder has them."""
    match, lexicon = vocabulary.match([doc]), vocabulary.lexicon
    known = vocabulary.tables[WORD].rows(vocabulary.keys(match.words)[WORD]) != 0
    columns = (match.words, match.heads, match.tails, known)
    return [
        LexiconWord(head, tail + 1, lexicon.words[word], lexicon.tag_names[lexicon.tags[word]], bool(row))
        for word, head, tail, row in zip(*(column.tolist() for column in columns), strict=True)
    ]


def components(vocabulary: ComponentVocabulary, text: str) -> dict[str, str]:
    """What each character of a text is made of, as the model reads it; without those that stand for themselves."""
    made = {char: vocabulary.structures[char] for char in sorted(set(text))}
    return {char: parts for char, parts in made.items() if parts != char}
