"""Embedders with tables of rows, which grow in training: the common part of this package's embedders.

Such an embedder is a Thinc layer with a `Vocabulary` as `attrs["vocabulary"]` and one torch shim, whose module is or
contains an `EmbeddingTables`, and whose sizes are the heights of these tables by name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from spacy.tokens import Doc
from spacy.util import logger
from thinc.api import Model
from thinc.model import deserialize_attr, serialize_attr

from ...features.keys import Keys, StringTable
from ...features.vectors import prepared, read_vectors
from ...runtime.dense import EmbeddingTables as TableRows
from ...types import IntArray
from ..batches import Indices
from ..bridge import EmbedModel, TorchShim, torch_shim
from ..parts import own_layer
from ..run import COMPUTE, HostRun, Rows
from ..serialize import from_safetensors, to_safetensors

if TYPE_CHECKING:
    from ...layers.dense import EmbeddingTables

_GROWTH = 8
FEW = 1000
"""Tables of at most this many rows are not trimmed, such as those of tags, of a segmenter's words, and of radicals."""


@dataclass(frozen=True)
class EmbedInput:
    """The input of an embedder, read from a batch of Docs.

    keys: Keys to look up in each table. *Shape* [n] each
    others: Other arguments of the embedder's module.
    """

    keys: dict[str, Keys]
    others: tuple[Any, ...] = ()


class Vocabulary(ABC):
    """The strings that an embedder knows: a table of keys for each of its module's tables of rows.

    names: The tables.
    part: The name of the `EmbeddingTables` in the embedder's module; empty if they are the module.
    """

    part = ""

    def __init__(self, names: Iterable[str]) -> None:
        self.tables = {name: StringTable() for name in names}
        self.pretrained: dict[str, int] = {}
        """The number of pretrained rows of a table, which are its first ones."""

    @abstractmethod
    def read(self, docs: list[Doc]) -> EmbedInput: ...

    def clear(self) -> None:
        """Remove all strings."""
        self.tables = {name: StringTable() for name in self.tables}
        self.pretrained = {}

    def weight_of(self, name: str) -> str:
        """Return the name of a table's rows among the module's weights."""
        return ".".join(filter(None, (self.part, "tables", name)))

    def heights(self) -> dict[str, int]:
        """Return the number of rows of each table, with its unknown row."""
        return {name: len(table) for name, table in self.tables.items()}

    def to_parts(self) -> dict[str, Any]:
        """Return the data to save: the keys of each table in the order of their rows."""
        return {name: table.keys for name, table in self.tables.items()}

    def from_parts(self, parts: dict[str, Any]) -> None:
        """Load the data that `to_parts` returned."""
        if set(parts) != set(self.tables):
            raise ValueError(
                f"The saved embedder has the tables {sorted(parts)}, but the config asks for {sorted(self.tables)}. "
                "Load it with the config that it was trained with."
            )
        self.tables = {name: StringTable(parts[name]) for name in self.tables}
        self.pretrained = {}

    def to_bytes(self) -> bytes:
        return to_safetensors(self.to_parts())

    def from_bytes(self, data: bytes) -> Vocabulary:
        self.from_parts(from_safetensors(data))
        return self


@serialize_attr.register(Vocabulary)
def _serialize_vocabulary(_: Any, value: Vocabulary, name: str, model: Model[Any, Any]) -> bytes:
    return value.to_bytes()


@deserialize_attr.register(Vocabulary)
def _deserialize_vocabulary(default: Vocabulary, value: bytes, name: str, model: Model[Any, Any]) -> Vocabulary:
    return default.from_bytes(value)


def table_embedder(
    name: str,
    vocabulary: Vocabulary,
    shim: TorchShim,
    *,
    width: int,
    init: Callable[..., None] | None = None,
) -> EmbedModel:
    """Return an embedder whose module is called with rows of the keys that its vocabulary reads.

    shim: Builds the module from the heights of its tables, by name.
    init: Initializes the layer; `init_tables` by default.
    """
    attrs = {"vocabulary": vocabulary}
    return own_layer(name, _compute, init=init or init_tables, dims={"nO": width}, attrs=attrs, shims=[shim])


def table_shim(widths: Mapping[str, int], *, word_dropout: Mapping[str, float], dropout: float) -> TorchShim:
    """Return the shim of a module that consists of tables only."""
    build = partial(build_tables, widths=widths, word_dropout=word_dropout, dropout=dropout)
    return TorchShim(build, partial(TableRows, widths))


def build_tables(
    *, widths: Mapping[str, int], word_dropout: Mapping[str, float], dropout: float, **heights: int
) -> EmbeddingTables:
    """Make tables of random rows."""
    from ...layers.dense import EmbeddingTables

    return EmbeddingTables(rows=heights, widths=widths, word_dropout=word_dropout, dropout=dropout)


def init_tables(model: Model[Any, Any], X: list[Doc] | None = None, Y: Any = None) -> None:
    """Remove all strings, and build a new module."""
    vocabulary: Vocabulary = model.attrs["vocabulary"]
    vocabulary.clear()
    torch_shim(model).build(**vocabulary.heights())


def _compute(model: EmbedModel, run: HostRun, docs: list[Doc]) -> Rows:
    reading = model.attrs["vocabulary"].read(docs)
    return run.module(model, *look_up(model, reading.keys, run.training), *reading.others)


def _has_tables(node: Model[Any, Any]) -> bool:
    """Return True for an embedder of this package: other layers may have another kind of vocabulary."""
    return isinstance(node.attrs.get("vocabulary"), Vocabulary)


def table_nodes(model: Model[Any, Any]) -> list[Model[Any, Any]]:
    """Return this package's embedders in a model."""
    return [node for node in model.walk() if _has_tables(node)]


def _tables(model: Model[Any, Any]) -> EmbeddingTables:
    """Return the tables in an embedder's module."""
    tables: EmbeddingTables = torch_shim(model).module.get_submodule(model.attrs["vocabulary"].part)
    return tables


def look_up(
    model: Model[Any, Any], keys: Mapping[str, Keys], is_train: bool, *, others: Mapping[str, IntArray] | None = None
) -> list[Indices]:
    """Return the rows of the keys, for each table. In training, new keys get a row. *Shape* [n] each

    others: Rows that are appended.
    """
    if is_train:
        _add_keys(model, keys)
    rows = {name: table.rows(keys[name]) for name, table in model.attrs["vocabulary"].tables.items()}
    if others is not None:
        rows = {name: np.concatenate((own, others[name])) for name, own in rows.items()}
    return [Indices(own) for own in rows.values()]


def _add_keys(model: Model[Any, Any], keys: Mapping[str, Keys]) -> None:
    for name, table in model.attrs["vocabulary"].tables.items():
        if table.add(keys[name]):
            _fit_height(model, name)


def _fit_height(model: Model[Any, Any], name: str) -> None:
    """Grow the torch table to a row for every key, and some spare ones, so that it rarely grows."""
    shim = torch_shim(model)
    needed = len(model.attrs["vocabulary"].tables[name])
    height = shim.sizes[name]
    if needed > height:
        grown = needed + height // _GROWTH
        _tables(model).grow(name, grown)
        shim.set_module(shim.module, {**shim.sizes, name: grown})


def check_loaded(model: Model[Any, Any]) -> None:
    """Raise if an embedder's vocabulary was saved under another name: Thinc would load it as another attribute, and
    leave the vocabulary empty."""
    for node in model.walk():
        unknown = sorted(set(node.attrs) - {"vocabulary", COMPUTE})
        if _has_tables(node) and unknown:
            raise ValueError(f"the layer '{node.name}' does not have the attributes {unknown}")


def load_vectors(
    model: Model[Any, Any],
    name: str,
    path: str | Path | None,
    *,
    to_keys: Callable[[list[str]], Keys],
    whiten: bool,
    normalise: Callable[[str], str] | None = None,
    keep: Callable[[str], bool] | None = None,
) -> None:
    """Add a row with its vector to a table for every string of a vectors file, if a path is given.

    to_keys: Converts strings to the embedder's keys.
    whiten: Whiten the vectors.
    normalise, keep: As for `read_vectors`.
    """
    if path is None:
        return
    vocabulary: Vocabulary = model.attrs["vocabulary"]
    width = _tables(model).tables[name].shape[1]
    loaded = read_vectors(path, width=width, normalise=normalise, keep=keep)
    keys, first = np.unique(to_keys(loaded.strings), return_index=True)
    vectors = prepared(loaded.table[first], whiten=whiten)
    table = vocabulary.tables[name]
    table.add(keys)
    vocabulary.pretrained[name] = len(table)
    _fit_height(model, name)
    _tables(model).fill(name, table.rows(keys), vectors)


def observe(model: Model[Any, Any], batches: Iterable[list[Doc]]) -> None:
    """Add a row for every string of the Docs to all embedders in the model, and log how many of the strings have a
    pretrained vector."""
    nodes = table_nodes(model)
    if not nodes:
        return
    used = [
        {name: np.zeros(n_rows, dtype=bool) for name, n_rows in node.attrs["vocabulary"].pretrained.items()}
        for node in nodes
    ]
    for docs in batches:
        for node, rows_used in zip(nodes, used, strict=True):
            keys = node.attrs["vocabulary"].read(docs).keys
            _add_keys(node, keys)
            for name, seen in rows_used.items():
                rows = node.attrs["vocabulary"].tables[name].rows(keys[name])
                seen[rows[rows < seen.size]] = True
    for node, rows_used in zip(nodes, used, strict=True):
        for name, seen in rows_used.items():
            found = int(seen.sum())
            wanted = found + len(node.attrs["vocabulary"].tables[name]) - seen.size
            logger.info("Pretrained %s vectors: found %d of %d strings of the training data", name, found, wanted)


RowCounts = list[dict[str, IntArray]]
"""The frequency of each row's string, for each embedder, for each of its tables. *Shape* [rows] each"""


@dataclass(frozen=True)
class Trimmed:
    """A trimmed table: rows and bytes before and after."""

    layer: str
    table: str
    rows: tuple[int, int]
    bytes: tuple[int, int]


def count_rows(model: Model[Any, Any], batches: Iterable[list[Doc]]) -> RowCounts:
    """Count the strings of Docs."""
    nodes = table_nodes(model)
    counts: RowCounts = [
        {name: np.zeros(len(table), dtype=np.int64) for name, table in node.attrs["vocabulary"].tables.items()}
        for node in nodes
    ]
    for docs in batches:
        for node, found in zip(nodes, counts, strict=True):
            vocabulary = node.attrs["vocabulary"]
            for name, keys in vocabulary.read(docs).keys.items():
                found[name] += np.bincount(vocabulary.tables[name].rows(keys), minlength=found[name].size)
    return counts


def trim(model: Model[Any, Any], counts: RowCounts, *, least: int, half: bool) -> list[Trimmed]:
    """Remove the rows of strings that occur less than `least` times: they share the unknown row.

    half: Store rows in float16. Predictions compute in float32 nevertheless.
    """
    return [
        made
        for node, found in zip(table_nodes(model), counts, strict=True)
        for made in _trim(node, {name: _kept(seen, least) for name, seen in found.items()}, half)
    ]


def _kept(seen: IntArray, least: int) -> IntArray:
    """Return the rows to keep, the unknown one first."""
    return np.flatnonzero((seen >= least) | (np.arange(seen.size) == 0) | (seen.size <= FEW))


def _trim(node: Model[Any, Any], kept: dict[str, IntArray], half: bool) -> list[Trimmed]:
    shim, vocabulary = torch_shim(node), node.attrs["vocabulary"]
    arrays, made = dict(shim.weights), []
    for name, rows in kept.items():
        weight = vocabulary.weight_of(name)
        table: StringTable = vocabulary.tables[name]
        before, n_before = arrays[weight], len(table)
        vocabulary.tables[name] = StringTable(table.keys[rows[1:] - 1])
        arrays[weight] = before[rows].astype(np.float16 if half else before.dtype)
        made.append(Trimmed(node.name, name, (n_before, rows.size), (before.nbytes, arrays[weight].nbytes)))
    shim.load_arrays(arrays, {**shim.sizes, **vocabulary.heights()})
    return made
