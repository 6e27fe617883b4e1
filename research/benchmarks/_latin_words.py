"""A tokenizer for `latin.py` that splits a text into characters, but does not split Latin words."""

from __future__ import annotations

import re
from collections.abc import Callable

import spacy
from spacy.language import Language
from spacy.tokens import Doc

NAME = "research.LatinWords.v1"
SETTING = f"nlp.tokenizer.@tokenizers={NAME}"
LATIN = "A-Za-zÀ-ÖØ-öø-ɏＡ-Ｚａ-ｚ"
TOKEN = re.compile(rf"[{LATIN}]+|\s+|.", re.DOTALL)


@spacy.registry.tokenizers(NAME)
def make_tokenizer() -> Callable[[Language], Callable[[str], Doc]]:
    return LatinWords


class LatinWords:
    """A tokenizer that returns each Latin word, and each other character, as a token."""

    def __init__(self, nlp: Language) -> None:
        self.vocab = nlp.vocab

    def __call__(self, text: str) -> Doc:
        words, spaces = spacy.util.get_words_and_spaces(TOKEN.findall(text), text)
        return Doc(self.vocab, words=words, spaces=spaces)

    def to_bytes(self, **_: object) -> bytes:
        return b""

    def from_bytes(self, _: bytes, **__: object) -> LatinWords:
        return self

    def to_disk(self, *_: object, **__: object) -> None: ...

    def from_disk(self, *_: object, **__: object) -> LatinWords:
        return self
