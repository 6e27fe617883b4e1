"""Reading pretrained vectors: text files and spaCy directories; whitening."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from spacy.vocab import Vocab

from ..errors import InputError
from ..types import FloatArray
from .vector_text import RowFilter, read_text_vectors

_MIN_VARIANCE = 1e-6
"""Directions with a smaller share of the largest variance are left out."""


@dataclass(frozen=True)
class Vectors:
    """Distinct strings and the table of their vectors. *Shape:* (strings, width)"""

    strings: list[str]
    table: FloatArray


@dataclass(frozen=True)
class VectorsSource:
    """Vectors that are read from elsewhere than a file of the user's.

    name (str): Their name in messages.
    read (Callable[[RowFilter], FloatArray]): Reads the rows that a filter selects. *Shape:* (rows, width)
    """

    name: str
    read: Callable[[RowFilter], FloatArray]


def read_vectors(
    source: str | Path | VectorsSource,
    *,
    width: int | None = None,
    normalise: Callable[[str], str] | None = None,
    keep: Callable[[str], bool] | None = None,
) -> Vectors:
    """Read pretrained vectors. The first of several rows for one string wins.

    source (str | Path | VectorsSource): A word2vec or GloVe text file (plain, gzip, bzip2 or xz), a directory of
        `spacy init vectors`, or another source.
    width (int | None): The width that the rows must have; None takes what the source has.
    normalise (Callable[[str], str] | None): Applied to every string, so that strings may become equal.
    keep (Callable[[str], bool] | None): Returns whether to keep a string, after `normalise`. Values of other rows and
        of duplicates are never converted, so that a few strings of a huge file cost little.
    RETURNS (Vectors): The strings and their vectors.
    """
    path = Path(source.name if isinstance(source, VectorsSource) else source)
    if not isinstance(source, VectorsSource) and not path.exists():
        made = f"`python -m spacy tener vectors minilm --output {path}` makes vectors of English words."
        raise InputError(str(path), "cannot be read: No such file or directory", f"Check the path. {made}")
    rows = RowFilter(path, width, normalise, keep)
    if isinstance(source, VectorsSource):
        table = source.read(rows)
    else:
        table = _read_directory(rows) if path.is_dir() else read_text_vectors(rows)
    is_finite = np.isfinite(table).all(axis=1)
    if not is_finite.all():
        string = list(rows.selected)[int(np.argmin(is_finite))]
        raise InputError(str(path), f"the vector of {string!r} is not finite (NaN or infinite)", "Repair or remove it.")
    for message in rows.warnings():
        warnings.warn(f"{path}: {message}", UserWarning, stacklevel=2)
    return Vectors(list(rows.selected), table)


def _read_directory(selection: RowFilter) -> FloatArray:
    """Read the vectors of a spaCy vocab, or of a pipeline's vocab. *Shape:* (selected strings, width)"""
    for folder in (selection.path / "vocab", selection.path):
        if (folder / "key2row").exists() and (folder / "strings.json").exists():
            break
    else:
        remedy = "Make them with `spacy init vectors`, or give the path of a text file."
        raise InputError(str(selection.path), "a directory without spaCy vectors (no vocab/vectors in it)", remedy)
    vocab = Vocab().from_disk(folder, exclude=["lookups"])
    vectors = vocab.vectors
    if vectors.mode == "floret":
        remedy = "Use vectors with a row for each string: of `spacy init vectors` in default mode, or a text file."
        raise InputError(str(selection.path), "floret vectors have no vocabulary", remedy)
    if not vectors.size or not vectors.key2row:
        raise InputError(str(selection.path), "a vocab without vectors", "Fill it with `spacy init vectors`.")
    selection.check_width(vectors.shape[1])
    rows = []
    for key, row in vectors.key2row.items():
        if key not in vocab.strings:
            selection.skip_nameless()
        elif selection.select(vocab.strings[key], f"key {key}"):
            rows.append(row)
    data = vectors.data  # a CuPy array if a GPU is in use
    return np.asarray(data.get() if hasattr(data, "get") else data, dtype=np.float32)[rows]


def prepared(table: FloatArray, *, whiten: bool) -> FloatArray:
    """Scale the rows to unit length, after whitening them if asked. *Shape:* (rows, width)"""
    if whiten:
        table = whitened(table)
    # Randomly initialised rows have this length on average. A row of zeros is kept.
    scaled: FloatArray = table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)
    return scaled


def whitened(table: FloatArray) -> FloatArray:
    """Subtract the mean of the rows, and scale them to equal variance in every direction.

    Vectors from raw text share a mean and a few directions with most of their variance, which encode the frequency of a
    string and the kind of text that it comes from. Along these, the strings of one corpus are all close together.

    *Shape:* (rows, width)
    """
    if not len(table):
        return table
    centred = table.astype(np.float64) - table.mean(axis=0, dtype=np.float64)
    variances, directions = np.linalg.eigh(centred.T @ centred / len(table))
    # Directions without variance, as with fewer rows than columns, are not scaled.
    has_variance = variances > _MIN_VARIANCE * max(variances[-1], np.finfo(np.float64).tiny)
    scales = np.where(has_variance, 1.0 / np.sqrt(np.where(has_variance, variances, 1.0)), 0.0)
    result: FloatArray = (centred @ directions * scales @ directions.T).astype(table.dtype)
    return result
