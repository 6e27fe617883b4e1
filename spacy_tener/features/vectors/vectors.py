"""Pretrained vectors: from a text file, a spaCy directory or a fastText model to strings and one table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from spacy.strings import StringStore
from spacy.vocab import Vocab

from ...types import FloatArray
from .models import as_numpy, is_fasttext, read_fasttext, read_floret
from .names import RowNames, check_width
from .text import read_text


@dataclass(frozen=True)
class Vectors:
    """Distinct strings, each with its row, and how many rows of the source became none.

    *Shape* table: [strings, width]
    """

    strings: list[str]
    table: FloatArray
    report: RowNames

    @property
    def width(self) -> int:
        return int(self.table.shape[1])


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
    RETURNS (Vectors): The strings, their rows, and a report.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"There are no vectors at {path}. Give the path of a text file or a spaCy directory.")
    names = RowNames(path, normalise, keep)
    if path.is_dir():
        table = _read_directory(path, width, names, strings)
    elif is_fasttext(path):
        table = read_fasttext(path, width, names, strings)
        _check_finite(path, table, names)
    else:
        table = read_text(path, width, names)
    names.warn()
    return Vectors(strings=list(names.taken), table=table, report=names)


def _read_directory(path: Path, width: int | None, names: RowNames, strings: Iterable[str] | None) -> FloatArray:
    """*Shape* [strings that were taken, width]"""
    vocab = Vocab().from_disk(_find_vocab(path), exclude=["lookups"])
    vectors = vocab.vectors
    if vectors.mode == "floret":
        table = read_floret(path, vectors, width, names, strings)
    else:
        table = _read_rows(path, vocab, width, names)
    _check_finite(path, table, names)
    return table


def _read_rows(path: Path, vocab: Vocab, width: int | None, names: RowNames) -> FloatArray:
    """*Shape* [keys that were taken, width]"""
    vectors = vocab.vectors
    if not vectors.size or not vectors.key2row:
        raise ValueError(f"{path} has a vocab without vectors. Fill it with `spacy init vectors`.")
    check_width(path, vectors.shape[1], width)
    rows = [row for key, row in vectors.key2row.items() if _take_key(key, vocab.strings, names)]
    return np.ascontiguousarray(as_numpy(vectors.data)[rows])


def _check_finite(path: Path, table: FloatArray, names: RowNames) -> None:
    finite = np.isfinite(table).all(axis=1)
    if not finite.all():
        bad = list(names.taken)[int(np.argmin(finite))]
        raise ValueError(f"{path}: the vector of {bad!r} is not finite (NaN or infinite). Repair or remove it.")


def _find_vocab(path: Path) -> Path:
    """The vocab of a pipeline, or the vocab itself: whichever `path` is."""
    for vocab in (path / "vocab", path):
        if (vocab / "key2row").exists() and (vocab / "strings.json").exists():
            return vocab
    raise ValueError(
        f"{path} is a directory without spaCy vectors (no vocab/vectors in it). Make them with `spacy init vectors`, "
        f"or give the path of a text file."
    )


def _take_key(key: int, strings: StringStore, names: RowNames) -> bool:
    try:
        return names.take(strings[key], f"key {key}")
    except KeyError:
        names.skip_nameless()
        return False
