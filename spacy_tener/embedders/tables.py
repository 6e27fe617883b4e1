"""Base classes for embedders with lookup tables that grow during training.

An embedder consists of a `Vocabulary` and a torch or NumPy module with the embedding tables. The vocabulary maps
strings to integer keys, and keys to rows of the embedding tables. The forward pass of `TableEmbedder` has three steps:

    texts -> keys          Vocabulary.to_input
    keys -> rows           TableEmbedder.find_rows
    rows -> embeddings     the module

This module also contains functions to initialize an embedder, to load pretrained vectors, and to add the strings from
the training data.
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

# To avoid resizing a table at every training step, allocate 1/8 more rows than needed.
_GROWTH = 8


@dataclass(frozen=True)
class EmbedInput:
    """The output of `Vocabulary.to_input` for a batch of texts.

    keys (dict[str, Keys]): The keys to look up in each table. *Shape:* (keys,) each
    arguments (tuple[Any, ...]): Additional arguments for the embedder's module.
    """

    keys: dict[str, Keys]
    arguments: tuple[Any, ...] = ()


class Vocabulary(ABC):
    """Base class for vocabularies, which map strings to rows in one or more embedding tables.

    The class attribute `part` names the submodule that contains the embedding tables. It is empty if the embedder's
    module itself is an `EmbeddingTables`.

    In each table, row 0 is for unknown strings. The next rows can have pretrained vectors. The attribute `pretrained`
    is the number of these rows in each table, including row 0. The attribute `frequent` is the number of pretrained
    vectors that are kept even if their strings do not occur in training.

    names (Iterable[str]): The table names.
    """

    part = ""

    def __init__(self, names: Iterable[str]) -> None:
        self.tables = {name: StringTable() for name in names}
        self.pretrained: dict[str, int] = {}
        self.frequent: dict[str, int] = {}

    @property
    def packages(self) -> Sequence[str]:
        """The Python packages that the vocabulary requires, such as a word segmenter."""
        return ()

    @abstractmethod
    def to_input(self, tokens: TokenBatch) -> EmbedInput:
        """Convert a batch of texts to keys, and to additional arguments for the embedder's module."""

    def clear(self) -> None:
        """Remove all strings from the vocabulary."""
        self.tables = {name: StringTable() for name in self.tables}
        self.pretrained, self.frequent = {}, {}

    def weight_of(self, name: str) -> str:
        """Return the name of a table's weights in the embedder's module."""
        return ".".join(filter(None, (self.part, "tables", name)))

    def heights(self) -> dict[str, int]:
        """Return the number of rows in each table, including the row for unknown strings."""
        return {name: len(table) for name, table in self.tables.items()}

    def to_parts(self) -> dict[str, Any]:
        """Return the data to serialize: each table's keys, sorted by row. Subclasses can add items."""
        return {name: table.keys for name, table in self.tables.items()}

    def from_parts(self, parts: dict[str, Any]) -> None:
        """Load the data returned by `to_parts`. A subclass must first remove the items that it added."""
        if set(parts) != set(self.tables):
            raise ValueError(
                f"The saved embedder has the tables {sorted(parts)}, but the config requires {sorted(self.tables)}. "
                "Load the embedder with the config that it was trained with."
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
    """A layer with embedding tables that grow when new strings occur in training.

    The layer's module is an `EmbeddingTables` or contains one. `shim.sizes` contains the number of rows in each table.
    """

    __slots__ = ()

    @property
    def vocabulary(self) -> Any:
        """The embedder's `Vocabulary`."""
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
        """Return the embedding rows of the keys. During training, rows are added for new keys.

        keys (Mapping[str, Keys]): The keys for each table. *Shape:* (keys,) each
        backend (Backend): The backend. It specifies whether the model is being trained.
        appended (Mapping[str, IntArray] | None): Additional rows to append to the result, for each table.
            *Shape:* (appended,) each
        RETURNS (list[Indices]): The rows for each table. *Shape:* (keys + appended,) each
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
        """Add new keys to the vocabulary, and add rows for them to the embedding tables."""
        for name, table in self.vocabulary.tables.items():
            if table.add(keys[name]):
                self.fit_height(name)

    def fit_height(self, name: str) -> None:
        """Grow an embedding table if it has fewer rows than the vocabulary."""
        needed, height = len(self.vocabulary.tables[name]), self.shim.sizes[name]
        if needed > height:
            grown = needed + height // _GROWTH
            self.module_tables().grow(name, grown)
            self.shim.set_module(self.shim.module, {**self.shim.sizes, name: grown})

    def keep_rows(self, rows: Mapping[str, IntArray], *, half: bool = False) -> None:
        """Keep only the selected rows in the embedding tables, and only their keys in the vocabulary.

        rows (Mapping[str, IntArray]): The rows to keep for each table. They must be sorted and include row 0, the row
            for unknown strings. *Shape:* (rows,) each
        half (bool): Convert the rows to float16.
        """
        arrays = dict(self.shim.weights)
        for name, indices in rows.items():
            weight, table = self.vocabulary.weight_of(name), self.vocabulary.tables[name]
            self.vocabulary.tables[name] = StringTable(table.keys[indices[1:] - 1])
            arrays[weight] = arrays[weight][indices].astype(np.float16 if half else arrays[weight].dtype)
        self.shim.load_arrays(arrays, {**self.shim.sizes, **self.vocabulary.heights()})

    def module_tables(self) -> EmbeddingTables:
        """Return the `EmbeddingTables` in the layer's module."""
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
    """Create a layer with embedding tables.

    name (str): The layer name.
    vocabulary (Vocabulary): Converts texts to keys.
    shim (TorchShim): Creates the module from the number of rows in each table. The module's arguments are the rows for
        each table, and the additional arguments returned by `Vocabulary.to_input`.
    width (int): Output width.
    init (Callable[..., None] | None): Initializes the layer. None for `init_tables`.
    RETURNS (TableEmbedder): The layer.
    """
    attrs = {"vocabulary": vocabulary}
    return TableEmbedder(name, forward, init=init or init_tables, dims={"nO": width}, attrs=attrs, shims=[shim])


def table_shim(
    widths: Mapping[str, int], *, word_dropout: Mapping[str, float], dropout: float, half: bool = False
) -> TorchShim:
    """Create the shim for a module that contains only embedding tables.

    widths (Mapping[str, int]): Width of each table.
    word_dropout (Mapping[str, float]): Probability, for each table, that a row is replaced by the row for unknown
        strings during training.
    dropout (float): Dropout rate for the concatenated embeddings.
    half (bool): Save the tables in float16.
    """
    build = partial(build_tables, widths=widths, word_dropout=word_dropout, dropout=dropout)
    return TorchShim(build, partial(TableRows, widths), saved_as=np.float16 if half else None)


def build_tables(
    *, widths: Mapping[str, int], word_dropout: Mapping[str, float], dropout: float, **heights: int
) -> EmbeddingTables:
    """Create randomly initialized embedding tables. The keyword arguments are the number of rows in each table."""
    from ..nn.layers_torch import EmbeddingTables

    return EmbeddingTables(rows=heights, widths=widths, word_dropout=word_dropout, dropout=dropout)


def init_tables(embedder: TableEmbedder, X: list[Doc] | None = None, Y: Any = None) -> None:
    """Initialize an embedder: clear its vocabulary, and create a module with random weights."""
    embedder.vocabulary.clear()
    embedder.shim.build(**embedder.vocabulary.heights())


def table_embedders(model: Model[Any, Any]) -> list[TableEmbedder]:
    """Return all layers with embedding tables in a model."""
    return [layer for layer in model.walk() if isinstance(layer, TableEmbedder)]


def check_loaded(model: Model[Any, Any]) -> None:
    """Raise a ValueError if a layer has unknown attributes after loading.

    If a file contains the vocabulary under another attribute name, Thinc loads it without an error, and the embedder's
    own vocabulary remains empty.
    """
    for embedder in table_embedders(model):
        unknown = sorted(set(embedder.attrs) - {"vocabulary"})
        if unknown:
            raise ValueError(f"the layer '{embedder.name}' has no attributes named {unknown}")


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
    """Load pretrained vectors into an embedding table.

    embedder (TableEmbedder): The embedder.
    name (str): The table name.
    source (str | Path | VectorsSource | None): The vectors, as for `read_vectors`. None for no vectors.
    to_keys (Callable[[list[str]], Keys]): Converts strings to keys.
    whiten (bool): Whiten the vectors.
    frequent (int | None): Number of vectors to keep even if their strings do not occur in training. The first vectors
        in the source are kept. None to keep all vectors.
    normalise (Callable[[str], str] | None): Normalizes each string.
    keep (Callable[[str], bool] | None): Returns whether a normalized string is needed.
    RETURNS (list[str]): The strings of all loaded vectors.
    """
    if source is None:
        return []
    width = embedder.module_tables().tables[name].shape[1]
    loaded = read_vectors(source, width=width, normalise=normalise, keep=keep)
    keys = to_keys(loaded.strings)
    # Different strings can have the same key. Only the first vector for each key is used. The original order is
    # preserved, because `frequent` refers to it.
    first = np.sort(np.unique(keys, return_index=True)[1])
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
    """Add the strings in the training texts to the vocabularies of all embedders in a model.

    If an embedder has an option `frequent`, also remove pretrained vectors whose strings do not occur in the texts,
    except for the first `frequent` vectors. The function logs how many strings in the texts have a pretrained vector.

    model (Model): The model.
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
            # Row 0, the row for unknown strings, is always kept.
            is_used[: n_frequent + 1] = True
            new_rows = np.arange(is_used.size, len(vocabulary.tables[name]))
            rows_to_keep[name] = np.append(np.flatnonzero(is_used), new_rows)
            vocabulary.pretrained[name] = int(is_used.sum())
        if rows_to_keep:
            embedder.keep_rows(rows_to_keep)
