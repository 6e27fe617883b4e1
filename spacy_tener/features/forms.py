"""Forms of characters: simplified ones of traditional characters, half-width ones of full-width letters, one for one.

The simplified characters are those of OpenCC's tables (https://github.com/BYVoid/OpenCC, Apache-2.0), written by
`scripts/make_simplified.py`. All others are Unicode's NFKC, where one character stays one.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_PAIRS = Path(__file__).parent / "simplified.txt"
_NORMALISED = (range(0x80, 0x3400), range(0xA000, 0xAC00), range(0xF900, 0x20000), range(0x2F800, 0x2FA20))
"""Code points among which are all that NFKC changes to one other. Not ideographs and Hangul, which are many."""


def simplify(text: str) -> str:
    """Return a text with the form of each character."""
    return text if text.isascii() else text.translate(_form_of_code())


def simplify_codes(codes: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the form of each code point. *Shape:* (characters,)"""
    # Code points behind the table read its last entry, which is 0; sums wrap around.
    simplified: NDArray[np.uint32] = codes + _differences().take(codes, mode="clip")
    return simplified


@lru_cache(maxsize=1)
def _form_of_code() -> dict[int, str]:
    """Return the form of each code point that has another one."""
    simplified = {line[0]: line[1] for line in _PAIRS.read_text(encoding="utf8").split()}
    forms = {ord(character): form for character, form in simplified.items()}
    for code in chain.from_iterable(_NORMALISED):
        form = unicodedata.normalize("NFKC", chr(code))
        if len(form) == 1 and ord(form) != code:
            forms[code] = simplified.get(form, form)
    return forms


@lru_cache(maxsize=1)
def _differences() -> NDArray[np.uint32]:
    """Return the number that makes each code point its form."""
    form_of_code = _form_of_code()
    differences = np.zeros(max(form_of_code) + 2, dtype=np.uint32)
    codes = np.array(list(form_of_code), dtype=np.uint32)
    differences[codes] = np.array(list(map(ord, form_of_code.values())), dtype=np.uint32) - codes
    return differences
