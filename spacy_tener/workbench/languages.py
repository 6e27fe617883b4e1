"""Language detection by the letters of a text, and blank pipelines."""

from __future__ import annotations

from collections.abc import Iterable

import spacy
from spacy.language import Language

from ..errors import RemedyError

# Written without spaces between words.
UNSPACED = frozenset({"zh", "ja", "th", "lo", "km", "my", "bo", "yue"})


def detect_language(texts: Iterable[str]) -> str:
    """Return `zh` or `en`; refuses texts of other scripts."""
    letters = [char for text in texts for char in text if char.isalpha()]
    han = sum("\u3400" <= char <= "\u9fff" or char >= "\U00020000" for char in letters)
    if han + sum(map(str.isascii, letters)) >= 0.98 * len(letters):
        return "zh" if han >= 0.05 * len(letters) else "en"
    raise RemedyError("The language cannot be detected by the letters", "Name it, as in `--lang de`.")


def blank_pipeline(lang: str) -> Language:
    """Return a pipeline with only the tokenizer of a language."""
    try:
        return spacy.blank(lang)
    except ImportError as error:
        raise RemedyError(
            f"spaCy has no tokenizer for the language '{lang}': {error}", "Choose another language."
        ) from error
