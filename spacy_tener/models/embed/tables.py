"""Embedders over tables of rows, which grow with what training shows: the common part of all of ours.

Such an embedder is a Thinc layer with a `Vocabulary` as `attrs["vocabulary"]` and one torch shim, whose module has
`EmbeddingTables` inside or is one, and whose sizes are the heights of these tables by name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from spacy.tokens import Doc
from spacy.util import logger
from thinc.api import Model
from thinc.model import deserialize_attr, serialize_attr
from thinc.types import Floats2d

from ...features.keys import Keys, StringTable
from ...features.vectors import prepared, read_vectors
from ...runtime.dense import EmbeddingTables as Rows
from ...types import IntArray
from ..batches import EmbedOutput, Indices, token_counts
from ..bridge import EmbedModel, TorchShim, run_module, torch_shim
from ..serialize import from_safetensors, to_safetensors

if TYPE_CHECKING:
    from ...layers.dense import EmbeddingTables

_GROWTH = 8
FEW = 1000
"""Tables with at most so many rows are not trimmed: those of tags, of a segmenter's words, of radicals."""


@dataclass(frozen=True)
class EmbedInput:
    """The input of an embedder, read from a batch of Docs.

    keys: Of everything that wants a row, for each table. *Shape* [n] each
    others: What the embedder's module is called with besides the rows.
    """

    keys: dict[str, Keys]
    others: tuple[Any, ...] = ()


class Vocabulary(ABC):
    """The strings that an embedder knows: a table of keys for each of its module's tables of rows.

    names: The tables.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.tables = {name: StringTable() for name in names}
        self.pretrained: dict[str, int] = {}
        """The number of rows of a table, from the first, that came from a vectors file."""

    @abstractmethod
    def read(self, docs: list[Doc]) -> EmbedInput: ...

    def clear(self) -> None:
        """Forget all strings."""
        self.tables = {name: StringTable() for name in self.tables}
        self.pretrained = {}

    def heights(self) -> dict[str, int]:
        """Return the number of rows of each table, with its unknown row."""
        return {name: len(table) for name, table in self.tables.items()}

    def to_parts(self) -> dict[str, Any]:
        """Return what is saved: the keys of each table in the order of their rows."""
        return {name: table.keys for name, table in self.tables.items()}

    def from_parts(self, parts: dict[str, Any]) -> None:
        """Take what `to_parts` returned."""
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
    """Return an embedder whose module is called with the rows of what its vocabulary reads.

    shim: Builds the module from the heights of its tables, by name.
    init: Initializes the layer, where there is more to do than `init_tables` does.
    """
    attrs = {"vocabulary": vocabulary}
    return Model(name, _forward, init=init or init_tables, dims={"nO": width}, attrs=attrs, shims=[shim])


def table_shim(widths: Mapping[str, int], *, word_dropout: Mapping[str, float], dropout: float) -> TorchShim:
    """Return the shim of a module that is tables of rows and nothing else."""
    build = partial(build_tables, widths=widths, word_dropout=word_dropout, dropout=dropout)
    return TorchShim(build, partial(Rows, widths))


def build_tables(
    *, widths: Mapping[str, int], word_dropout: Mapping[str, float], dropout: float, **heights: int
) -> EmbeddingTables:
    """Make tables of random rows."""
    from ...layers.dense import EmbeddingTables

    return EmbeddingTables(rows=heights, widths=widths, word_dropout=word_dropout, dropout=dropout)


def init_tables(model: Model[Any, Any], X: list[Doc] | None = None, Y: Any = None) -> None:
    """Forget all strings, and make a fresh module."""
    vocabulary: Vocabulary = model.attrs["vocabulary"]
    vocabulary.clear()
    torch_shim(model).build(**vocabulary.heights())


def _forward(model: EmbedModel, docs: list[Doc], is_train: bool) -> EmbedOutput:
    if not docs:
        return [], lambda dY: docs
    reading = model.attrs["vocabulary"].read(docs)
    rows = look_up(model, reading.keys, is_train)
    outputs, backprop_module = run_module(model, is_train, token_counts(docs), [], *rows, *reading.others)

    def backprop(dY: list[Floats2d]) -> list[Doc]:
        backprop_module(dY)
        return docs

    return outputs, backprop


def _has_tables(node: Model[Any, Any]) -> bool:
    """Return whether a layer is an embedder of ours: others may have any other thing as their vocabulary."""
    return isinstance(node.attrs.get("vocabulary"), Vocabulary)


def table_nodes(model: Model[Any, Any]) -> list[Model[Any, Any]]:
    """Return the embedders inside a model."""
    return [node for node in model.walk() if _has_tables(node)]


def _tables(model: Model[Any, Any]) -> EmbeddingTables:
    """Return the tables in an embedder's module."""
    from ...layers.dense import EmbeddingTables

    return next(part for part in torch_shim(model).module.modules() if isinstance(part, EmbeddingTables))


def look_up(
    model: Model[Any, Any], keys: Mapping[str, Keys], is_train: bool, *, others: Mapping[str, IntArray] | None = None
) -> list[Indices]:
    """Return the rows of the keys, for each table; in training every key has one of its own. *Shape* [n] each

    others: Rows that stand behind them.
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
    """Give the torch table a row for every key, and some to spare, so that growing stays rare."""
    shim = torch_shim(model)
    needed = len(model.attrs["vocabulary"].tables[name])
    height = shim.sizes[name]
    if needed > height:
        grown = needed + height // _GROWTH
        _tables(model).grow(name, grown)
        shim.set_module(shim.module, {**shim.sizes, name: grown})


def check_loaded(model: Model[Any, Any]) -> None:
    """Refuse a model with an embedder whose vocabulary was saved under another name: Thinc takes it for one attribute
    more, and leaves the vocabulary empty."""
    for node in model.walk():
        unknown = sorted(set(node.attrs) - {"vocabulary"})
        if _has_tables(node) and unknown:
            raise ValueError(f"the layer '{node.name}' does not have the attributes {unknown}")


def load_vectors(
    model: Model[Any, Any],
    name: str,
    path: str | Path | None,
    *,
    to_keys: Callable[[list[str]], Keys],
    whiten: bool,
    unit_length: bool,
    normalise: Callable[[str], str] | None = None,
    keep: Callable[[str], bool] | None = None,
    strings: Sequence[str] | None = None,
) -> None:
    """Give every string of a vectors file, if there is one, a row of its own in a table, and put its vector there.

    to_keys: The keys of strings, as the embedder will look them up.
    whiten, unit_length: How the vectors are prepared.
    normalise, keep, strings: As for `read_vectors`.
    """
    if path is None:
        return
    vocabulary: Vocabulary = model.attrs["vocabulary"]
    width = _tables(model).tables[name].shape[1]
    loaded = read_vectors(path, width=width, normalise=normalise, keep=keep, strings=strings)
    keys, first = np.unique(to_keys(loaded.strings), return_index=True)
    vectors = prepared(loaded.table[first], whiten=whiten, unit_length=unit_length)
    table = vocabulary.tables[name]
    table.add(keys)
    vocabulary.pretrained[name] = len(table)
    _fit_height(model, name)
    _tables(model).fill(name, table.rows(keys), vectors)


def observe(model: Model[Any, Any], batches: Iterable[list[Doc]]) -> None:
    """Give a row to every string of the docs, in every embedder inside the model, and say how many of the strings
    have a pretrained vector."""
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
    """Let strings that come less than `least` times share the unknown row, as those do that no training has shown.

    half: Keep rows as numbers of 16 bits. Predictions compute with 32 all the same.
    """
    return [
        made
        for node, found in zip(table_nodes(model), counts, strict=True)
        for made in _trim(node, {name: _kept(seen, least) for name, seen in found.items()}, half)
    ]


def _kept(seen: IntArray, least: int) -> IntArray:
    """Return the rows that stay, the unknown one first."""
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
