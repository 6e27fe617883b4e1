"""Trimming: a trained pipeline without the rows of rare strings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from spacy.tokens import Doc
from thinc.api import Model

from ..features.keys import StringTable
from ..models.embed.tables import TableEmbedder, table_embedders
from ..types import IntArray

FEW = 1000
"""Tables of at most this many rows are not trimmed, such as those of tags, of a segmenter's words, and of radicals."""

RowCounts = list[dict[str, IntArray]]
"""The frequency of each row's string, for each embedder, for each of its tables. *Shape:* (rows,) each"""


@dataclass(frozen=True)
class TrimmedTable:
    """A trimmed table: rows and bytes before and after."""

    layer: str
    table: str
    rows: tuple[int, int]
    bytes: tuple[int, int]


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


def trim_tables(model: Model[Any, Any], counts: RowCounts, *, min_count: int, half: bool) -> list[TrimmedTable]:
    """Remove the rows of strings that occur less than `min_count` times: they share the unknown row.

    half (bool): Store rows in float16. Predictions compute in float32 nevertheless.
    """
    return [
        table
        for embedder, table_counts in zip(table_embedders(model), counts, strict=True)
        for table in _trim_embedder(embedder, table_counts, min_count, half)
    ]


def _trim_embedder(
    embedder: TableEmbedder, counts: dict[str, IntArray], min_count: int, half: bool
) -> list[TrimmedTable]:
    shim, vocabulary = embedder.shim, embedder.vocabulary
    arrays, trimmed = dict(shim.weights), []
    for name, frequencies in counts.items():
        # The unknown row comes first, and stays.
        is_first = np.arange(frequencies.size) == 0
        rows = np.flatnonzero((frequencies >= min_count) | is_first | (frequencies.size <= FEW))
        weight = vocabulary.weight_of(name)
        table: StringTable = vocabulary.tables[name]
        before, n_before = arrays[weight], len(table)
        vocabulary.tables[name] = StringTable(table.keys[rows[1:] - 1])
        arrays[weight] = before[rows].astype(np.float16 if half else before.dtype)
        sizes = before.nbytes, arrays[weight].nbytes
        trimmed.append(TrimmedTable(embedder.name, name, (n_before, rows.size), sizes))
    shim.load_arrays(arrays, {**shim.sizes, **vocabulary.heights()})
    return trimmed
