"""The tokenizer of a language, for texts that no trained pipeline reads."""

from __future__ import annotations

from typing import get_args

import spacy
from spacy.language import Language

from ..errors import RemedyError
from ..pipeline.tokenizer import Script, make_multilingual_tokenizer


def blank_pipeline(lang: str) -> Language:
    """Return a pipeline with only the tokenizer of a language.

    That of `xx` makes each character of a script without spaces a token, and of Hangul. So no entity there begins or
    ends within a token, whatever tokens a pipeline will have.
    """
    try:
        nlp = spacy.blank(lang)
    except ImportError as error:
        reason = f"spaCy has no tokenizer for the language '{lang}': {error}"
        raise RemedyError(reason, "Install what it needs, or name `xx`, which needs nothing.") from error
    if lang == "xx":
        nlp.tokenizer = make_multilingual_tokenizer(list(get_args(Script)))(nlp)
    return nlp
