"""Vectors that a model computes from the pieces of a string: floret's in a spaCy directory, and fastText's `.bin`.

Such a model has something to say about every string, so what it is asked for must be known: the words of a lexicon, or
the strings of a corpus. fastText has strings of its own beside that, floret has none.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from spacy.vectors import Vectors as SpacyVectors  # type: ignore[import-not-found,unused-ignore]

from ...types import FloatArray
from .names import RowNames, check_width

_FASTTEXT = b"\xba\x16\x4f\x2f"
_BLOCK = 1 << 13


def read_floret(
    path: Path, vectors: SpacyVectors, width: int | None, names: RowNames, strings: Iterable[str] | None
) -> FloatArray:
    """The rows of given strings, of vectors in floret mode. *Shape* [strings that were taken, width]"""
    if strings is None:
        raise ValueError(
            f"{path} holds floret vectors, which are made for strings as they come: there is no list of them. They "
            f"serve where the strings are known beforehand, as the words of a lexicon are. Here give vectors with a "
            f"row for each string: of `spacy init vectors` in default mode, or a text file."
        )
    check_width(path, vectors.shape[1], width)
    taken = [string for string in dict.fromkeys(strings) if string and names.take(string, "the strings asked for")]
    tables = [as_numpy(vectors.get_batch(block)) for block in _blocks(taken)]
    return np.concatenate(tables) if tables else np.zeros((0, vectors.shape[1]), dtype=np.float32)


def is_fasttext(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(len(_FASTTEXT)) == _FASTTEXT


def read_fasttext(path: Path, width: int | None, names: RowNames, strings: Iterable[str] | None) -> FloatArray:
    """The rows of a fastText model's own strings, then of other given ones. *Shape* [strings that were taken, width]"""
    vectors = _load_fasttext(path)
    check_width(path, vectors.vector_size, width)
    own = [string for string in vectors.index_to_key if names.take(string, "the model")]
    asked = [string for string in dict.fromkeys(strings or ()) if string and string not in vectors.key_to_index]
    # A model without pieces of strings knows its own ones only.
    other = [string for string in asked if string in vectors and names.take(string, "the strings asked for")]
    taken = own + other
    table = np.zeros((len(taken), vectors.vector_size), dtype=np.float32)
    for row, string in enumerate(taken):
        table[row] = vectors[string]
    return table


def _load_fasttext(path: Path) -> Any:
    try:
        from gensim.models.fasttext import load_facebook_vectors
    except ImportError as error:
        raise ValueError(
            f"{path} is a fastText model, which is read with gensim. Install it with "
            f"`pip install 'spacy_tener[vectors]'`, or use the .vec file that fastText writes beside the model."
        ) from error
    try:
        return load_facebook_vectors(str(path))
    except (AssertionError, EOFError, NotImplementedError, OSError, ValueError, struct.error) as error:
        raise ValueError(
            f"{path} is a fastText model that cannot be read ({error}): it is damaged, or quantized or supervised. "
            f"Use the .vec file that fastText writes beside a model."
        ) from error


def _blocks(strings: Sequence[str]) -> Iterable[Sequence[str]]:
    return (strings[start : start + _BLOCK] for start in range(0, len(strings), _BLOCK))


def as_numpy(table: Any) -> FloatArray:
    # CuPy's array where a GPU is in use.
    return np.asarray(table.get() if hasattr(table, "get") else table, dtype=np.float32)
