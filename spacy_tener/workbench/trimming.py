"""Trimming: a trained pipeline without the rows of rare strings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from spacy.tokens import Doc
from thinc.api import Model

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
    kept = {}
    for name, frequencies in counts.items():
        # The unknown row comes first, and stays.
        is_first = np.arange(frequencies.size) == 0
        kept[name] = np.flatnonzero((frequencies >= min_count) | is_first | (frequencies.size <= FEW))
    before = _sizes(embedder)
    embedder.keep_rows(kept, half=half)
    after = _sizes(embedder)
    sizes = {name: zip(before[name], after[name], strict=True) for name in counts}
    return [TrimmedTable(embedder.name, name, *pairs) for name, pairs in sizes.items()]


def _sizes(embedder: TableEmbedder) -> dict[str, tuple[int, int]]:
    """Return the number of rows and bytes of each table."""
    weights, vocabulary = embedder.shim.weights, embedder.vocabulary
    return {name: (len(table), weights[vocabulary.weight_of(name)].nbytes) for name, table in vocabulary.tables.items()}
