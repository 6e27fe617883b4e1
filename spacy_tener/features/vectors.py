"""Pretrained vectors, from a text file, a spaCy directory or a fastText model to strings and one table.

floret's vectors in a spaCy directory, and fastText's `.bin`, are computed from the pieces of a string. Such a model has
a vector for every string, so what it is asked for must be known: the words of a lexicon, or the strings of a corpus.
fastText has strings of its own beside that, floret has none.
"""

from __future__ import annotations

import struct
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from spacy.vocab import Vocab

from ..errors import InputError
from ..types import FloatArray
from .vector_text import RowFilter, read_text_vectors

_FASTTEXT = b"\xba\x16\x4f\x2f"
_BLOCK = 1 << 13
_LEAST_VARIANCE = 1e-6
"""As a share of the largest: directions with less are left out."""


@dataclass(frozen=True)
class Vectors:
    """Distinct strings, each with its row. *Shape* table: [strings, width]"""

    strings: list[str]
    table: FloatArray


def read_vectors(
    path: str | Path,
    *,
    width: int | None = None,
    normalise: Callable[[str], str] | None = None,
    keep: Callable[[str], bool] | None = None,
    strings: Iterable[str] | None = None,
) -> Vectors:
    """Read pretrained vectors. The first of several rows for one string wins.

    path (str | Path): A word2vec or GloVe text file (plain, gzip, bzip2 or xz), a directory of `spacy init vectors` in
        default or floret mode, or a fastText model (`.bin`, read with gensim).
    width (int | None): The width that the rows must have; None takes what the source has.
    normalise (Callable[[str], str] | None): Applied to every string, so that strings may become equal.
    keep (Callable[[str], bool] | None): Which strings, after `normalise`, are wanted. The values of other rows, and of
        those that come too late, are never converted: a few strings of a huge file cost little.
    strings (Iterable[str] | None): What floret vectors are computed for, which have no strings of their own, and
        fastText's beside its own. Other sources have rows for certain strings, whatever is asked.
    RETURNS (Vectors): The strings and their rows.
    """
    path = Path(path)
    names = RowFilter(path, width, normalise, keep)
    if path.is_dir():
        table = _read_directory(names, strings)
    elif _is_fasttext(path):
        table = _read_fasttext(names, strings)
    else:
        table = read_text_vectors(names)
    finite = np.isfinite(table).all(axis=1)
    if not finite.all():
        bad = list(names.taken)[int(np.argmin(finite))]
        raise InputError(str(path), f"the vector of {bad!r} is not finite (NaN or infinite)", "Repair or remove it.")
    for message in names.complaints():
        warnings.warn(f"{path}: {message}", UserWarning, stacklevel=2)
    return Vectors(list(names.taken), table)


def _read_directory(names: RowFilter, strings: Iterable[str] | None) -> FloatArray:
    """Read the vectors of a spaCy vocab, or of the pipeline around it. *Shape* [strings that were taken, width]"""
    for folder in (names.path / "vocab", names.path):
        if (folder / "key2row").exists() and (folder / "strings.json").exists():
            break
    else:
        remedy = "Make them with `spacy init vectors`, or give the path of a text file."
        raise InputError(str(names.path), "a directory without spaCy vectors (no vocab/vectors in it)", remedy)
    vocab = Vocab().from_disk(folder, exclude=["lookups"])
    vectors = vocab.vectors
    if vectors.mode == "floret":
        return _read_floret(names, vectors, strings)
    if not vectors.size or not vectors.key2row:
        raise InputError(str(names.path), "a vocab without vectors", "Fill it with `spacy init vectors`.")
    names.check_width(vectors.shape[1])
    rows = []
    for key, row in vectors.key2row.items():
        if key not in vocab.strings:
            names.skip_nameless()
        elif names.take(vocab.strings[key], f"key {key}"):
            rows.append(row)
    return np.ascontiguousarray(_as_numpy(vectors.data)[rows])


def _read_floret(names: RowFilter, vectors: Any, strings: Iterable[str] | None) -> FloatArray:
    """Compute the rows of given strings. *Shape* [strings that were taken, width]"""
    if strings is None:
        raise InputError(
            str(names.path),
            "floret vectors are made for strings as they come: there is no list of them",
            "They serve where the strings are known beforehand, as the words of a lexicon are. Here give vectors with "
            "a row for each string: of `spacy init vectors` in default mode, or a text file.",
        )
    names.check_width(vectors.shape[1])
    taken = [string for string in dict.fromkeys(strings) if string and names.take(string, "the strings asked for")]
    blocks = [taken[start : start + _BLOCK] for start in range(0, len(taken), _BLOCK)]
    empty = np.zeros((0, vectors.shape[1]), dtype=np.float32)
    return np.concatenate([empty, *(_as_numpy(vectors.get_batch(block)) for block in blocks)])


def _as_numpy(table: Any) -> FloatArray:
    # CuPy's array where a GPU is in use.
    return np.asarray(table.get() if hasattr(table, "get") else table, dtype=np.float32)


def _is_fasttext(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(len(_FASTTEXT)) == _FASTTEXT
    except OSError as error:
        remedy = "Give the path of a text file or of a spaCy directory."
        raise InputError(str(path), f"there are no vectors: {error.strerror}", remedy) from error


def _read_fasttext(names: RowFilter, strings: Iterable[str] | None) -> FloatArray:
    """Read the rows of a fastText model's own strings, then of other given ones.

    *Shape* [strings that were taken, width]
    """
    path = str(names.path)
    try:
        from gensim.models.fasttext import load_facebook_vectors
    except ImportError as error:
        remedy = "`pip install 'spacy_tener[vectors]'`, or use the .vec file that fastText writes beside the model."
        raise InputError(path, "reading a fastText model needs gensim", remedy) from error
    try:
        vectors = load_facebook_vectors(path)
    except (AssertionError, EOFError, NotImplementedError, OSError, ValueError, struct.error) as error:
        reason = f"a fastText model that cannot be read ({error}): it is damaged, or quantized or supervised"
        raise InputError(path, reason, "Use the .vec file that fastText writes beside a model.") from error
    names.check_width(vectors.vector_size)
    own = [string for string in vectors.index_to_key if names.take(string, "the model")]
    asked = [string for string in dict.fromkeys(strings or ()) if string and string not in vectors.key_to_index]
    # A model without pieces of strings knows its own ones only.
    other = [string for string in asked if string in vectors and names.take(string, "the strings asked for")]
    table = np.zeros((len(own) + len(other), vectors.vector_size), dtype=np.float32)
    for row, string in enumerate(own + other):
        table[row] = vectors[string]
    return table


def prepared(table: FloatArray, *, whiten: bool, unit_length: bool) -> FloatArray:
    """Whiten the rows, scale them to unit length, both in this order, or leave them. *Shape* [n, width]"""
    if whiten:
        table = whitened(table)
    if unit_length:
        # Random rows have this length on average. A row of zeros stays one.
        table = table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)
    return table


def whitened(table: FloatArray) -> FloatArray:
    """Subtract the mean of the rows, and scale them to equal variance in every direction.

    Vectors from raw text share a mean, and a few directions in which most of their variance lies, which say how
    frequent a string is and what kind of text it comes from. Strings of one corpus all lie close together along them.

    table: *Shape* [n, width]. RETURNS: *Shape* [n, width]
    """
    if not len(table):
        return table
    centred = table.astype(np.float64) - table.mean(axis=0, dtype=np.float64)
    variances, directions = np.linalg.eigh(centred.T @ centred / len(table))
    # Where nothing varies there is nothing to be scaled, as in fewer rows than columns.
    kept = variances > _LEAST_VARIANCE * max(variances[-1], np.finfo(np.float64).tiny)
    scales = np.where(kept, 1.0 / np.sqrt(np.where(kept, variances, 1.0)), 0.0)
    result: FloatArray = (centred @ directions * scales @ directions.T).astype(table.dtype)
    return result
