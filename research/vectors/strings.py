"""Strings that vectors are trained for: characters, bigrams and words of a text, as the embedders know them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from operator import add
from typing import Any

from spacy_tener.corpora.tokenizers import blank_pipeline
from spacy_tener.errors import RemedyError, install
from spacy_tener.features.keys import END_MARK, Normaliser

CHARS, BIGRAMS, WORDS = KINDS = ("chars", "bigrams", "words")

# The tokens of spaCy's Chinese tokenizer by characters: a space between them is no token, a stretch of wider white
# space is one. White space that separates strings for the trainer cannot be a part of one.
_UNIT = re.compile(r"\S|[^\S \t\n\v\f\r]+")
_CACHE_LIMIT = 1_000_000


@dataclass(frozen=True)
class TextSettings:
    """Settings of how text is split into strings.

    lang: The language: words are found by jieba in Chinese, by spaCy's tokenizer in others.
    digits, lower: Read every digit as 0; read upper case as lower case. As the embedder that the vectors are for.
    """

    lang: str = "zh"
    digits: bool = True
    lower: bool = False

    @property
    def normaliser(self) -> Normaliser:
        return Normaliser(digits=self.digits, lower=self.lower)


def remembered(normalise: Callable[[str], str]) -> Callable[[str], str]:
    """Return a function that normalises each string once, among the last million distinct ones."""
    return lru_cache(_CACHE_LIMIT)(normalise)


def characters(text: str, normalise: Callable[[str], str]) -> list[str]:
    """Return a text's characters as `CharEmbed` reads them: lower case is that of a character by itself."""
    return [*map(normalise, _UNIT.findall(text))]


def bigrams(characters: list[str]) -> list[str]:
    """Return each character with the next one, the last with `END_MARK`: what `bigram_key_array` reads back."""
    return [*map(add, characters, [*characters[1:], END_MARK])]


class JiebaSplitter:
    """The words that jieba finds, which are not only those of its dictionary.

    A word of the dictionary stays as it is written, because a lexicon is matched as written; any other is normalised.
    """

    def __init__(self, normaliser: Normaliser) -> None:
        self._jieba, words = _jieba_and_words()
        self._normalise = remembered(lambda word: word if word in words else normaliser(word))

    def __call__(self, text: str) -> list[str]:
        return [self._normalise(word) for word in self._jieba.cut(text) if word.strip()]


class TokenSplitter:
    """The words that spaCy's tokenizer for a language finds."""

    def __init__(self, normaliser: Normaliser, lang: str) -> None:
        self._nlp = blank_pipeline(lang)
        self._normalise = remembered(normaliser)

    def __call__(self, text: str) -> list[str]:
        # In a memory zone, so that spaCy does not keep every string of the text.
        with self._nlp.memory_zone():
            return [self._normalise(token.text) for token in self._nlp.tokenizer(text) if not token.is_space]


class TextSplitter:
    """Splits a text into all that vectors are wanted for.

    kinds: Some of `KINDS`.
    """

    def __init__(self, kinds: Iterable[str], settings: TextSettings) -> None:
        self.kinds = tuple(kinds)
        self._normalise = remembered(settings.normaliser)
        self.words: JiebaSplitter | TokenSplitter | None = None
        if WORDS in self.kinds and settings.lang == "zh":
            self.words = JiebaSplitter(settings.normaliser)
        elif WORDS in self.kinds:
            self.words = TokenSplitter(settings.normaliser, settings.lang)

    def __call__(self, text: str) -> dict[str, list[str]]:
        """Return the strings of a text by their kind."""
        chars = [] if self.kinds == (WORDS,) else characters(text, self._normalise)
        strings = {CHARS: chars, BIGRAMS: bigrams(chars) if BIGRAMS in self.kinds else []}
        strings[WORDS] = self.words(text) if self.words else []
        return {kind: strings[kind] for kind in self.kinds}


@cache
def _jieba_and_words() -> tuple[Any, frozenset[str]]:
    """Return jieba's tokenizer, and the words of two characters and more in its dictionary."""
    try:
        import jieba
    except ImportError as error:
        raise RemedyError("Chinese words need jieba", install("jieba")) from error
    jieba.setLogLevel("WARNING")
    # Our own instance, so that words that somebody added to the global one change nothing.
    tokenizer = jieba.Tokenizer()
    tokenizer.initialize()
    # Entries with frequency 0 are prefixes of words, not words.
    return tokenizer, frozenset(word for word, count in tokenizer.FREQ.items() if count and len(word) > 1)
