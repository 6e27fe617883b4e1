"""Blank pipelines, and trained ones on disk: written to new directories, their size, and their rows of rare strings."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import spacy
from spacy.language import Language
from spacy.tokens import Doc
from thinc.api import Model

from ..embedders.tables import table_embedders
from ..errors import RemedyError
from ..files import replaced
from ..types import IntArray


def blank_pipeline(lang: str) -> Language:
    """Return a pipeline with only the tokenizer of a language."""
    try:
        return spacy.blank(lang)
    except ImportError as error:
        raise RemedyError(
            f"spaCy has no tokenizer for the language '{lang}': {error}", "Choose another language."
        ) from error


def check_new(output: Path, force: bool) -> None:
    """Refuse an existing output, before anything is computed. With `force` a pipeline may be there."""
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return
    if not (output / "meta.json").is_file():
        raise RemedyError(f"--output {output}: exists already, and is no pipeline", "Name a new directory.")
    if not force:
        raise RemedyError(f"--output {output}: exists already", "Name a new directory, or overwrite it by --force.")


def write_pipeline(nlp: Language, output: Path) -> None:
    """Write a pipeline to a directory, atomically."""
    with replaced(output) as folder:
        nlp.to_disk(folder)


def size_mb(folder: Path) -> float:
    """Return the size of all files in a directory."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


FEW = 1000
"""Tables of at most this many rows are not trimmed, such as those of tags, of a segmenter's words, and of radicals."""

RowCounts = list[dict[str, IntArray]]
"""The frequency of each row's string, for each embedder, for each of its tables. *Shape:* (rows,) each"""


def count_rows(model: Model[Any, Any], batches: Iterable[list[Doc]]) -> RowCounts:
    """Count the strings of Docs."""
    embedders = table_embedders(model)
    counts: RowCounts = [
        {name: np.zeros(len(table), dtype=np.int64) for name, table in embedder.vocabulary.tables.items()}
        for embedder in embedders
    ]
    for docs in batches:
        for embedder, table_counts in zip(embedders, counts, strict=True):
            for name, keys in embedder.vocabulary.read(docs).keys.items():
                rows = embedder.vocabulary.tables[name].rows(keys)
                table_counts[name] += np.bincount(rows, minlength=table_counts[name].size)
    return counts


def trim_tables(model: Model[Any, Any], counts: RowCounts, *, min_count: int, half: bool) -> None:
    """Remove the rows of strings that occur less than `min_count` times: they share the unknown row.

    half (bool): Store rows in float16. Predictions compute in float32 nevertheless.
    """
    for embedder, table_counts in zip(table_embedders(model), counts, strict=True):
        kept = {}
        for name, frequencies in table_counts.items():
            # The unknown row comes first, and stays.
            is_first = np.arange(frequencies.size) == 0
            kept[name] = np.flatnonzero((frequencies >= min_count) | is_first | (frequencies.size <= FEW))
        embedder.keep_rows(kept, half=half)
