"""Split texts into the strings that get vectors: characters, bigrams and words, normalized as in the embedders."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from operator import add
from typing import Any

from spacy_tener.corpora.tokenizers import blank_pipeline
from spacy_tener.errors import UserError, install
from spacy_tener.features.keys import END_MARK, Normalizer

CHARS, BIGRAMS, WORDS = KINDS = ("chars", "bigrams", "words")

# The tokens of spaCy's Chinese tokenizer with characters: a single space between tokens is skipped, and other white
# space is a token. ASCII white space, which separates strings in the training file, cannot be part of a string.
_UNIT = re.compile(r"\S|[^\S \t\n\v\f\r]+")
_CACHE_LIMIT = 1_000_000


@dataclass(frozen=True)
class TextSettings:
    """Settings for splitting texts into strings. They should agree with the embedder that uses the vectors.

    lang: Language code. Chinese words are segmented with jieba, words of other languages with spaCy's tokenizer.
    digits: Replace all digits by 0.
    lower: Convert to lower case.
    """

    lang: str = "zh"
    digits: bool = True
    lower: bool = False

    @property
    def normalizer(self) -> Normalizer:
        return Normalizer(digits=self.digits, lower=self.lower)


def remembered(normalise: Callable[[str], str]) -> Callable[[str], str]:
    """Return a function that caches the results of `normalise` for the last million distinct strings."""
    return lru_cache(_CACHE_LIMIT)(normalise)


def characters(text: str, normalise: Callable[[str], str]) -> list[str]:
    """Return the normalized characters of a text, as in `CharEmbed`. Characters are converted to lower case
    individually."""
    return [*map(normalise, _UNIT.findall(text))]


def bigrams(characters: list[str]) -> list[str]:
    """Return each character with its successor. `END_MARK` follows the last character, as in `bigram_key_array`."""
    return [*map(add, characters, [*characters[1:], END_MARK])]


class JiebaSplitter:
    """Segments texts into words with jieba, which also finds words that are not in its dictionary.

    Words of the dictionary are not normalized, because lexicons match the original text. All other words are
    normalized.
    """

    def __init__(self, normalizer: Normalizer) -> None:
        self._jieba, words = _jieba_and_words()
        self._normalise = remembered(lambda word: word if word in words else normalizer(word))

    def __call__(self, text: str) -> list[str]:
        return [self._normalise(word) for word in self._jieba.cut(text) if word.strip()]


class TokenSplitter:
    """Splits texts into words with spaCy's tokenizer for a language."""

    def __init__(self, normalizer: Normalizer, lang: str) -> None:
        self._nlp = blank_pipeline(lang)
        self._normalise = remembered(normalizer)

    def __call__(self, text: str) -> list[str]:
        # With a memory zone, spaCy does not keep all strings of the texts in memory.
        with self._nlp.memory_zone():
            return [self._normalise(token.text) for token in self._nlp.tokenizer(text) if not token.is_space]


class TextSplitter:
    """Splits texts into strings of several kinds.

    kinds: Some of `KINDS`.
    """

    def __init__(self, kinds: Iterable[str], settings: TextSettings) -> None:
        self.kinds = tuple(kinds)
        self._normalise = remembered(settings.normalizer)
        self.words: JiebaSplitter | TokenSplitter | None = None
        if WORDS in self.kinds and settings.lang == "zh":
            self.words = JiebaSplitter(settings.normalizer)
        elif WORDS in self.kinds:
            self.words = TokenSplitter(settings.normalizer, settings.lang)

    def __call__(self, text: str) -> dict[str, list[str]]:
        """Return the strings of a text by their kind."""
        chars = [] if self.kinds == (WORDS,) else characters(text, self._normalise)
        strings = {CHARS: chars, BIGRAMS: bigrams(chars) if BIGRAMS in self.kinds else []}
        strings[WORDS] = self.words(text) if self.words else []
        return {kind: strings[kind] for kind in self.kinds}


@cache
def _jieba_and_words() -> tuple[Any, frozenset[str]]:
    """Return jieba's tokenizer, and the words in its dictionary with at least two characters."""
    try:
        import jieba
    except ImportError as error:
        raise UserError("Chinese words need jieba", install("jieba")) from error
    jieba.setLogLevel("WARNING")
    # A separate instance, so that words that were added to jieba's global tokenizer have no effect.
    tokenizer = jieba.Tokenizer()
    tokenizer.initialize()
    # Entries with frequency 0 are prefixes of words, not words.
    return tokenizer, frozenset(word for word, count in tokenizer.FREQ.items() if count and len(word) > 1)
