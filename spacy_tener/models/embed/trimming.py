"""Tables of rows made smaller: without the strings that texts hardly have, and in half the bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from spacy.tokens import Doc
from thinc.api import Model

from ...features.tables import StringTable
from ...types import IntArray
from ..shims.bridge import torch_shim
from .tables import table_nodes

FEW = 1000
"""Tables with fewer rows keep them all: those of tags, of a segmenter's words, of the parts of characters."""

Counts = list[dict[str, IntArray]]
"""How often the string of each row comes: for each embedder, for each of its tables. *Shape* [rows] each"""


@dataclass(frozen=True)
class Trimmed:
    """A table, and how many rows and bytes it had and has."""

    layer: str
    table: str
    rows: tuple[int, int]
    bytes: tuple[int, int]


def count_rows(model: Model[Any, Any], batches: Iterable[list[Doc]]) -> Counts:
    """Count the strings of Docs."""
    nodes = table_nodes(model)
    counts: Counts = [
        {name: np.zeros(len(table), dtype=np.int64) for name, table in node.attrs["vocabulary"].tables.items()}
        for node in nodes
    ]
    for docs in batches:
        for node, found in zip(nodes, counts, strict=True):
            vocabulary = node.attrs["vocabulary"]
            for name, keys in vocabulary.read(docs).keys.items():
                found[name] += np.bincount(vocabulary.tables[name].rows(keys), minlength=found[name].size)
    return counts


def trim(model: Model[Any, Any], counts: Counts, *, least: int, half: bool) -> list[Trimmed]:
    """Let strings that come less than `least` times share the unknown row, as those do that no training has shown.

    half: Keep rows as numbers of 16 bits. Predictions compute with 32 all the same.
    """
    return [
        made
        for node, found in zip(table_nodes(model), counts, strict=True)
        for made in _trim(node, {name: _kept(seen, least) for name, seen in found.items()}, half)
    ]


def _kept(seen: IntArray, least: int) -> IntArray:
    """The rows that stay, the unknown one first."""
    return np.flatnonzero((seen >= least) | (np.arange(seen.size) == 0) | (seen.size <= FEW))


def _trim(node: Model[Any, Any], kept: dict[str, IntArray], half: bool) -> list[Trimmed]:
    shim, vocabulary = torch_shim(node), node.attrs["vocabulary"]
    arrays, made = dict(shim.weights), []
    for name, rows in kept.items():
        [weight] = [each for each in arrays if f".{each}".endswith(f".tables.{name}")]
        table: StringTable = vocabulary.tables[name]
        before, n_before = arrays[weight], len(table)
        vocabulary.tables[name] = StringTable(table.keys[rows[1:] - 1])
        arrays[weight] = before[rows].astype(np.float16 if half else before.dtype)
        made.append(Trimmed(node.name, name, (n_before, rows.size), (before.nbytes, arrays[weight].nbytes)))
    shim.load_arrays(arrays, {**shim.sizes, **vocabulary.heights()})
    return made
