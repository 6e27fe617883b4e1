"""Create a tokenizer for a language, for commands that process texts without a trained pipeline."""

from __future__ import annotations

from typing import get_args

import spacy
from spacy.language import Language

from ..errors import RemedyError
from ..pipeline.tokenizer import Script, make_multilingual_tokenizer


def blank_pipeline(lang: str) -> Language:
    """Return a pipeline that contains only the tokenizer of a language.

    For `xx`, characters of scripts without spaces between words, and of Hangul, become tokens. Every entity boundary in
    these scripts is then a token boundary, whichever tokenizer a pipeline will use later.

    lang (str): spaCy's code of the language. Raises a RemedyError if its tokenizer isn't installed.
    """
    try:
        nlp = spacy.blank(lang)
    except ImportError as error:
        reason = f"spaCy has no tokenizer for the language '{lang}': {error}"
        raise RemedyError(reason, "Install the package, or use `xx`, which needs no other package.") from error
    if lang == "xx":
        nlp.tokenizer = make_multilingual_tokenizer(list(get_args(Script)))(nlp)
    return nlp
