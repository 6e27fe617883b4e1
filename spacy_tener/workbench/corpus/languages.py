"""Language detection by the letters of a text, and blank pipelines."""

from __future__ import annotations

from collections.abc import Iterable

import spacy
from spacy.language import Language

from ...errors import RemedyError

# Written without spaces between words.
UNSPACED = frozenset({"zh", "ja", "th", "lo", "km", "my", "bo", "yue"})


def detect_language(texts: Iterable[str], joined: str = "") -> str:
    """Return `zh` or `en`; refuses texts of other scripts, and texts without letters.

    joined (str): The language of other texts that these are joined to: it is returned, unless these are in another one.
    """
    letters = [char for text in texts for char in text if char.isalpha()]
    han = sum("\u3400" <= char <= "\u9fff" or char >= "\U00020000" for char in letters)
    is_supported = bool(letters) and han + sum(map(str.isascii, letters)) >= 0.98 * len(letters)
    language = "zh" if han >= 0.05 * len(letters) else "en"
    if is_supported and joined not in ("", language):
        remedy = "Convert them one by one, or name one language by `--lang`."
        raise RemedyError(f"The joined texts are in several languages: {joined}, {language}", remedy)
    if joined or is_supported:
        return joined or language
    raise RemedyError("The language cannot be detected by the letters", "Name it, as in `--lang de`.")


def blank_pipeline(lang: str) -> Language:
    """Return a pipeline with only the tokenizer of a language."""
    try:
        return spacy.blank(lang)
    except ImportError as error:
        raise RemedyError(
            f"spaCy has no tokenizer for the language '{lang}': {error}", "Choose another language."
        ) from error
