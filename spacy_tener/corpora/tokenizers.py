"""Tokenizers for texts that are not tokenized. Used by commands that don't load a trained pipeline."""

from __future__ import annotations

from typing import get_args

import spacy
from spacy.language import Language

from ..errors import UserError
from ..pipeline.tokenizer import Script, make_multilingual_tokenizer


def blank_pipeline(lang: str) -> Language:
    """Create a blank pipeline, which only contains a language's tokenizer.

    With the multilingual language `xx`, each character is a token in Hangul and in scripts without spaces between
    words. Therefore, all entity boundaries in these scripts are token boundaries.

    lang (str): Language code. Raises a UserError if the tokenizer is not installed.
    """
    try:
        nlp = spacy.blank(lang)
    except ImportError as error:
        reason = f"spaCy has no tokenizer for the language '{lang}': {error}"
        raise UserError(reason, "Install the package, or use `xx`, which needs no other package.") from error
    if lang == "xx":
        nlp.tokenizer = make_multilingual_tokenizer(list(get_args(Script)))(nlp)
    return nlp
