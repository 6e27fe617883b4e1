"""The language of a corpus, as far as its letters tell."""

from __future__ import annotations

from collections.abc import Iterable

# Languages that are written without spaces between words.
UNSPACED = frozenset({"zh", "ja", "th", "lo", "km", "my", "bo", "yue"})


def detect_language(texts: Iterable[str]) -> str:
    """`zh` or `en`; other languages are not told from each other."""
    letters = [char for text in texts for char in text if char.isalpha()]
    han = sum("\u3400" <= char <= "\u9fff" or char >= "\U00020000" for char in letters)
    if han + sum(map(str.isascii, letters)) >= 0.98 * len(letters):
        return "zh" if han >= 0.05 * len(letters) else "en"
    raise ValueError("The language cannot be told by the letters. Name it, as in `--lang de`.")
