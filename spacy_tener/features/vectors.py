"""Reading pretrained vectors: text files, spaCy directories and fastText models.

floret (in a spaCy directory) and fastText (`.bin`) compute a vector for any string from its character n-grams, so the
strings to compute must be given: the words of a lexicon, or the strings of a corpus. fastText has a vocabulary of its
own besides; floret has none.
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

from ..errors import InputError, install
from ..types import FloatArray
from .vector_text import RowFilter, read_text_vectors

_FASTTEXT = b"\xba\x16\x4f\x2f"
_BLOCK = 1 << 13
_LEAST_VARIANCE = 1e-6
"""Directions with a smaller share of the largest variance are left out."""


@dataclass(frozen=True)
class Vectors:
    """Distinct strings and the table of their vectors. *Shape* table: [strings, width]"""

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
    keep (Callable[[str], bool] | None): Returns True for strings to keep, after `normalise`. Values of other rows and
        of duplicates are never converted, so that a few strings of a huge file cost little.
    strings (Iterable[str] | None): Strings to compute vectors for: with floret all, with fastText those beside its
        vocabulary. Other sources ignore them.
    RETURNS (Vectors): The strings and their vectors.
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
    """Read the vectors of a spaCy vocab, or of a pipeline's vocab. *Shape* [selected strings, width]"""
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
    """Compute the vectors of given strings. *Shape* [selected strings, width]"""
    if strings is None:
        raise InputError(
            str(names.path),
            "floret vectors have no vocabulary",
            "Use vectors with a row for each string: of `spacy init vectors` in default mode, or a text file. floret "
            "works only where the strings are known beforehand, as the words of a lexicon.",
        )
    names.check_width(vectors.shape[1])
    taken = [string for string in dict.fromkeys(strings) if string and names.take(string, "the strings asked for")]
    blocks = [taken[start : start + _BLOCK] for start in range(0, len(taken), _BLOCK)]
    empty = np.zeros((0, vectors.shape[1]), dtype=np.float32)
    return np.concatenate([empty, *(_as_numpy(vectors.get_batch(block)) for block in blocks)])


def _as_numpy(table: Any) -> FloatArray:
    # A CuPy array if a GPU is in use.
    return np.asarray(table.get() if hasattr(table, "get") else table, dtype=np.float32)


def _is_fasttext(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(len(_FASTTEXT)) == _FASTTEXT
    except OSError as error:
        remedy = "Give the path of a text file or of a spaCy directory."
        raise InputError(str(path), f"there are no vectors: {error.strerror}", remedy) from error


def _read_fasttext(names: RowFilter, strings: Iterable[str] | None) -> FloatArray:
    """Read the vectors of a fastText model's vocabulary, then of other given strings.

    *Shape* [selected strings, width]
    """
    path = str(names.path)
    try:
        from gensim.models.fasttext import load_facebook_vectors
    except ImportError as error:
        remedy = f"{install('gensim')}, or use the .vec file that fastText writes beside the model."
        raise InputError(path, "reading a fastText model needs gensim", remedy) from error
    try:
        vectors = load_facebook_vectors(path)
    except (AssertionError, EOFError, NotImplementedError, OSError, ValueError, struct.error) as error:
        reason = f"the fastText model cannot be read ({error}): it is damaged, quantized or supervised"
        raise InputError(path, reason, "Use the .vec file that fastText writes beside a model.") from error
    names.check_width(vectors.vector_size)
    own = [string for string in vectors.index_to_key if names.take(string, "the model")]
    asked = [string for string in dict.fromkeys(strings or ()) if string and string not in vectors.key_to_index]
    # A model without character n-grams has its vocabulary only.
    other = [string for string in asked if string in vectors and names.take(string, "the strings asked for")]
    table = np.zeros((len(own) + len(other), vectors.vector_size), dtype=np.float32)
    for row, string in enumerate(own + other):
        table[row] = vectors[string]
    return table


def prepared(table: FloatArray, *, whiten: bool, unit_length: bool) -> FloatArray:
    """Whiten the rows, then scale them to unit length, each as an option. *Shape* [n, width]"""
    if whiten:
        table = whitened(table)
    if unit_length:
        # Randomly initialised rows have this length on average. A row of zeros is kept.
        table = table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)
    return table


def whitened(table: FloatArray) -> FloatArray:
    """Subtract the mean of the rows, and scale them to equal variance in every direction.

    Vectors from raw text share a mean and a few directions with most of their variance, which encode the frequency of a
    string and the kind of text that it comes from. Along these, the strings of one corpus are all close together.

    table: *Shape* [n, width]. RETURNS: *Shape* [n, width]
    """
    if not len(table):
        return table
    centred = table.astype(np.float64) - table.mean(axis=0, dtype=np.float64)
    variances, directions = np.linalg.eigh(centred.T @ centred / len(table))
    # Directions without variance, as with fewer rows than columns, are not scaled.
    kept = variances > _LEAST_VARIANCE * max(variances[-1], np.finfo(np.float64).tiny)
    scales = np.where(kept, 1.0 / np.sqrt(np.where(kept, variances, 1.0)), 0.0)
    result: FloatArray = (centred @ directions * scales @ directions.T).astype(table.dtype)
    return result
