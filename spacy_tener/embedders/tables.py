"""Embedders with tables of rows, which grow in training: the common part of this package's embedders."""

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

from ..features.keys import Keys, StringTable
from ..features.pretrained_vectors import VectorsSource, read_vectors, scale_vectors
from ..features.tokens import TokenBatch
from ..nn.backends import Backend, Indices, Layer
from ..nn.layers_numpy import EmbeddingTables as TableRows
from ..nn.run import forward
from ..nn.serialize import from_safetensors, to_safetensors
from ..nn.shim import TorchShim
from ..types import IntArray

if TYPE_CHECKING:
    from ..nn.layers_torch import EmbeddingTables

_GROWTH = 8
"""A table that must grow gets an eighth of spare rows."""


@dataclass(frozen=True)
class EmbedInput:
    """The input of an embedder's module for a batch of texts.

    keys (Dict[str, Keys]): Keys to look up in each table. *Shape:* (keys,) each
    arguments (Tuple): Other arguments of the embedder's module.
    """

    keys: dict[str, Keys]
    arguments: tuple[Any, ...] = ()


class Vocabulary(ABC):
    """The strings that an embedder knows: a table of keys for each of its module's tables of rows.

    names (Iterable[str]): The tables.
    """

    part = ""
    """The name of the `EmbeddingTables` in the embedder's module; empty if they are the module."""

    def __init__(self, names: Iterable[str]) -> None:
        self.tables = {name: StringTable() for name in names}
        self.pretrained: dict[str, int] = {}
        """The number of pretrained rows of a table, which are its first ones."""
        self.frequent: dict[str, int] = {}
        """How many of them, the first ones, stay in a table though the training data may lack their strings."""

    @property
    def packages(self) -> Sequence[str]:
        """Packages that reading needs, beside this one."""
        return ()

    @abstractmethod
    def to_input(self, tokens: TokenBatch) -> EmbedInput:
        """Return the keys to look up for a batch of texts, and the other arguments of the embedder's module."""

    def clear(self) -> None:
        """Remove all strings."""
        self.tables = {name: StringTable() for name in self.tables}
        self.pretrained, self.frequent = {}, {}

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
        self.pretrained, self.frequent = {}, {}

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


class TableEmbedder(Layer):
    """An embedder with tables of rows that grow in training.

    Its module is or contains an `EmbeddingTables`, and the sizes of its shim are the heights of these tables by name.
    """

    __slots__ = ()

    @property
    def vocabulary(self) -> Any:
        """The `Vocabulary` that reads keys from Docs."""
        return self.attrs["vocabulary"]

    @property
    def packages(self) -> Sequence[str]:
        packages: Sequence[str] = self.vocabulary.packages
        return packages

    def compute(self, inputs: TokenBatch, backend: Backend) -> Any:
        embed_input = self.vocabulary.to_input(inputs)
        return backend.call(self, *self.find_rows(embed_input.keys, backend), *embed_input.arguments)

    def find_rows(
        self, keys: Mapping[str, Keys], backend: Backend, *, appended: Mapping[str, IntArray] | None = None
    ) -> list[Indices]:
        """Return the rows of the keys in each table. In training, new keys get a row. *Shape:* (keys,) each

        appended (Mapping[str, IntArray]): More rows of each table.
        """
        tables = self.vocabulary.tables
        rows = {name: table.rows(keys[name]) for name, table in tables.items()}
        if backend.training and not all(indices.all() for indices in rows.values()):
            self.add_keys(keys)
            rows = {name: table.rows(keys[name]) for name, table in tables.items()}
        if appended is not None:
            rows = {name: np.concatenate((indices, appended[name])) for name, indices in rows.items()}
        return [Indices(indices) for indices in rows.values()]

    def add_keys(self, keys: Mapping[str, Keys]) -> None:
        """Add a row for each key that has none."""
        for name, table in self.vocabulary.tables.items():
            if table.add(keys[name]):
                self.fit_height(name)

    def fit_height(self, name: str) -> None:
        """Grow the module's table to a row for each key, and some spare ones, so that it rarely grows."""
        needed, height = len(self.vocabulary.tables[name]), self.shim.sizes[name]
        if needed > height:
            grown = needed + height // _GROWTH
            self.module_tables().grow(name, grown)
            self.shim.set_module(self.shim.module, {**self.shim.sizes, name: grown})

    def keep_rows(self, rows: Mapping[str, IntArray], *, half: bool = False) -> None:
        """Remove all other rows of some tables.

        rows (Mapping[str, IntArray]): The rows to keep, ascending, from row 0 on. *Shape:* (rows,) each
        half (bool): Store them in float16.
        """
        arrays = dict(self.shim.weights)
        for name, indices in rows.items():
            weight, table = self.vocabulary.weight_of(name), self.vocabulary.tables[name]
            self.vocabulary.tables[name] = StringTable(table.keys[indices[1:] - 1])
            arrays[weight] = arrays[weight][indices].astype(np.float16 if half else arrays[weight].dtype)
        self.shim.load_arrays(arrays, {**self.shim.sizes, **self.vocabulary.heights()})

    def module_tables(self) -> EmbeddingTables:
        """Return the tables in the module."""
        tables: EmbeddingTables = self.shim.module.get_submodule(self.vocabulary.part)
        return tables


def table_embedder(
    name: str,
    vocabulary: Vocabulary,
    shim: TorchShim,
    *,
    width: int,
    init: Callable[..., None] | None = None,
) -> TableEmbedder:
    """Return an embedder whose module is called with rows of the keys that its vocabulary reads.

    shim (TorchShim): Builds the module from the heights of its tables, by name.
    init (Callable): Initializes the layer; `init_tables` if there is none.
    """
    attrs = {"vocabulary": vocabulary}
    return TableEmbedder(name, forward, init=init or init_tables, dims={"nO": width}, attrs=attrs, shims=[shim])


def table_shim(
    widths: Mapping[str, int], *, word_dropout: Mapping[str, float], dropout: float, half: bool = False
) -> TorchShim:
    """Return the shim of a module that consists of tables only.

    half (bool): Save them in float16.
    """
    build = partial(build_tables, widths=widths, word_dropout=word_dropout, dropout=dropout)
    return TorchShim(build, partial(TableRows, widths), saved_as=np.float16 if half else None)


def build_tables(
    *, widths: Mapping[str, int], word_dropout: Mapping[str, float], dropout: float, **heights: int
) -> EmbeddingTables:
    """Make tables of random rows."""
    from ..nn.layers_torch import EmbeddingTables

    return EmbeddingTables(rows=heights, widths=widths, word_dropout=word_dropout, dropout=dropout)


def init_tables(embedder: TableEmbedder, X: list[Doc] | None = None, Y: Any = None) -> None:
    """Remove all strings, and build a new module."""
    embedder.vocabulary.clear()
    embedder.shim.build(**embedder.vocabulary.heights())


def table_embedders(model: Model[Any, Any]) -> list[TableEmbedder]:
    """Return this package's embedders in a model that have tables."""
    return [layer for layer in model.walk() if isinstance(layer, TableEmbedder)]


def check_loaded(model: Model[Any, Any]) -> None:
    """Raise if an embedder's vocabulary was saved under another name.

    Thinc would load it as another attribute, and leave the vocabulary empty.
    """
    for embedder in table_embedders(model):
        unknown = sorted(set(embedder.attrs) - {"vocabulary"})
        if unknown:
            raise ValueError(f"the layer '{embedder.name}' does not have the attributes {unknown}")


def load_vectors(
    embedder: TableEmbedder,
    name: str,
    source: str | Path | VectorsSource | None,
    *,
    to_keys: Callable[[list[str]], Keys],
    whiten: bool,
    frequent: int | None = None,
    normalise: Callable[[str], str] | None = None,
    keep: Callable[[str], bool] | None = None,
) -> list[str]:
    """Add a row with its vector to a table for every string of a source of vectors, if there is one.

    to_keys (Callable): Converts strings to the embedder's keys.
    whiten (bool): Whiten the vectors.
    frequent (int | None): How many rows, the source's first ones, stay though the training data may lack their strings;
        None for all.
    normalise, keep (Callable): As for `read_vectors`.
    RETURNS (list[str]): The strings.
    """
    if source is None:
        return []
    width = embedder.module_tables().tables[name].shape[1]
    loaded = read_vectors(source, width=width, normalise=normalise, keep=keep)
    keys = to_keys(loaded.strings)
    first = np.sort(np.unique(keys, return_index=True)[1])  # in the order of the source, the most frequent first
    keys, vectors = keys[first], scale_vectors(loaded.table[first], whiten=whiten)
    table = embedder.vocabulary.tables[name]
    table.add(keys)
    embedder.vocabulary.pretrained[name] = len(table)
    if frequent is not None:
        embedder.vocabulary.frequent[name] = frequent
    embedder.fit_height(name)
    embedder.module_tables().fill(name, table.rows(keys), vectors)
    embedder.shim.clear_predictor()
    return loaded.strings


def observe(model: Model[Any, Any], batches: Iterable[TokenBatch]) -> None:
    """Add a row for every string of the training texts to all embedders in the model.

    Pretrained rows of strings that are neither in the texts nor frequent are removed. The number of strings that have
    a pretrained vector is logged.

    batches (Iterable[TokenBatch]): The training texts.
    """
    embedders = table_embedders(model)
    if not embedders:
        return
    masks = [
        {name: np.zeros(n_rows, dtype=bool) for name, n_rows in embedder.vocabulary.pretrained.items()}
        for embedder in embedders
    ]
    for tokens in batches:
        for embedder, used_rows in zip(embedders, masks, strict=True):
            keys = embedder.vocabulary.to_input(tokens).keys
            embedder.add_keys(keys)
            for name, is_used in used_rows.items():
                rows = embedder.vocabulary.tables[name].rows(keys[name])
                is_used[rows[rows < is_used.size]] = True
    for embedder, used_rows in zip(embedders, masks, strict=True):
        for name, is_used in used_rows.items():
            found = int(is_used.sum())
            wanted = found + len(embedder.vocabulary.tables[name]) - is_used.size
            logger.info("Pretrained %s vectors: found %d of %d strings of the training data", name, found, wanted)
        vocabulary, rows_to_keep = embedder.vocabulary, dict[str, IntArray]()
        for name, n_frequent in vocabulary.frequent.items():
            is_used = used_rows[name]
            is_used[: n_frequent + 1] = True
            new_rows = np.arange(is_used.size, len(vocabulary.tables[name]))
            rows_to_keep[name] = np.append(np.flatnonzero(is_used), new_rows)
            vocabulary.pretrained[name] = int(is_used.sum())
        if rows_to_keep:
            embedder.keep_rows(rows_to_keep)
