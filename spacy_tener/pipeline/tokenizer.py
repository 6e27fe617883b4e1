"""Fast replacement of spaCy's tokenizer of Chinese characters."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from spacy.lang.zh import ChineseTokenizer, Segmenter
from spacy.language import Language
from spacy.strings import get_string_id
from spacy.tokens import Doc
from spacy.vocab import Vocab

_SPACE = re.compile(r"\s+")


def make_char_tokenizer() -> Callable[[Language], CharTokenizer]:
    """Make every character a token, as `spacy.zh.ChineseTokenizer` with the segmenter `char` does.

    Registered as `spacy_tener.CharTokenizer.v1`. Its Docs are the same in every respect, and so is what it saves.
    """
    return lambda nlp: CharTokenizer(nlp.vocab)


class CharTokenizer(ChineseTokenizer):
    """Tokenizer to characters: a space belongs to the token before it, and other white space is one token."""

    def __call__(self, text: str) -> Doc:
        if self.segmenter != Segmenter.char:
            # A pipeline's saved settings may ask for another segmenter.
            return super().__call__(text)
        return doc_of_characters(self.vocab, *characters_and_spaces(text))


class _Hashes(dict[str, int]):
    """spaCy's hashes of strings, kept for single characters, of which there are few."""

    def __missing__(self, word: str) -> int:
        hashed: int = get_string_id(word)
        if len(word) == 1:
            self[word] = hashed
        return hashed


_HASHES = _Hashes()


def doc_of_characters(vocab: Vocab, words: list[str], spaces: list[bool]) -> Doc:
    """Return a Doc of these words, in a third of the time where the vocab knows all of them."""
    hashes: list[Any] = [_HASHES[word] for word in words]
    try:
        return Doc(vocab, words=hashes, spaces=spaces)
    except KeyError:
        return Doc(vocab, words=words, spaces=spaces)


def characters_and_spaces(text: str) -> tuple[list[str], list[bool]]:
    """Return the characters of a text as words and the spaces behind them, as spaCy's `get_words_and_spaces` does."""
    words: list[str] = []
    spaces: list[bool] = []
    end = 0
    for found in _SPACE.finditer(text):
        start, gap = found.start(), found[0]
        words += text[end:start]
        spaces += [False] * (start - end)
        if words and gap.startswith(" "):
            spaces[-1], gap = True, gap[1:]
        if gap:
            words.append(gap)
            spaces.append(False)
        end = found.end()
    words += text[end:]
    spaces += [False] * (len(text) - end)
    return words, spaces
