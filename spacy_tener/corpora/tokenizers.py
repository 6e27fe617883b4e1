"""Tokenizers for texts that are not tokenized. Used by commands that don't load a trained pipeline."""

from __future__ import annotations

from typing import get_args

import spacy
from spacy.language import Language

from ..errors import UserError
from ..pipeline.tokenizer import CharTokenizer, Script, make_multilingual_tokenizer

# How texts are split into tokens: by the tokenizer of their language, or into characters.
WORDS, CHARACTERS = TOKEN_TYPES = "words", "characters"


def blank_pipeline(lang: str, tokens: str = WORDS) -> Language:
    """Create a blank pipeline, which only contains the tokenizer of a language.

    With the multilingual language `xx`, each character is a token in Hangul and in scripts without spaces between
    words. Therefore, all entity boundaries in these scripts are token boundaries.

    lang (str): Language code. Raises a UserError if the tokenizer is not installed.
    tokens (str): One of `TOKEN_TYPES`. With `characters`, each character is a token in all languages.
    """
    if tokens == CHARACTERS:
        # The rules of the language are not used, so no other package is needed.
        nlp = spacy.blank("xx")
        nlp.tokenizer = CharTokenizer(nlp.vocab)
        return nlp
    try:
        nlp = spacy.blank(lang)
    except ImportError as error:
        reason = f"spaCy has no tokenizer for the language '{lang}': {error}"
        raise UserError(reason, "Install the missing package, or use `xx`, which requires no other package.") from error
    if lang == "xx":
        nlp.tokenizer = make_multilingual_tokenizer(list(get_args(Script)))(nlp)
    return nlp
