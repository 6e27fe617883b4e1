"""What every embedder has: strings by the rows of its tables, which grow with what training shows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import srsly
import torch
from spacy.tokens import Doc
from spacy.util import logger
from thinc.api import Model
from thinc.model import deserialize_attr, serialize_attr
from thinc.types import Floats2d

from ...features.keys import Keys
from ...features.normalise import Normaliser
from ...features.tables import StringTable
from ...features.vectors.vectors import read_vectors
from ...types import FloatArray
from ..bridge import join, split, torch_shim

_GROWTH = 8


class Vocabulary(ABC):
    """Which strings an embedder knows: one table of keys for each table of rows.

    An embedder is a Thinc node with a vocabulary as `attrs["vocabulary"]` and one torch shim, whose module has `grow`
    and `fill` as `EmbeddingTables` has, and whose sizes are the heights of the tables by name.

    names: the tables.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.tables = {name: StringTable() for name in names}
        self.pretrained: dict[str, int] = {}
        """How many rows of a table, from the first, came from a vectors file."""

    @abstractmethod
    def keys(self, docs: list[Doc]) -> dict[str, Keys]:
        """The keys of everything in the docs that wants a row, for each table."""

    def clear(self) -> None:
        self.tables = {name: StringTable() for name in self.tables}
        self.pretrained = {}

    def heights(self) -> dict[str, int]:
        """The number of rows of each table, with its unknown row."""
        return {name: len(table) for name, table in self.tables.items()}

    def to_bytes(self) -> bytes:
        # "<u8" whatever the machine's own byte order, so that a pipeline moves between machines.
        keys = {name: table.keys.astype("<u8").tobytes() for name, table in self.tables.items()}
        return cast(bytes, srsly.msgpack_dumps(keys))

    def from_bytes(self, data: bytes) -> Vocabulary:
        saved = srsly.msgpack_loads(data)
        if set(saved) != set(self.tables):
            raise ValueError(
                f"The saved embedder has the tables {sorted(saved)}, but the config asks for {sorted(self.tables)}. "
                "Load it with the config that it was trained with."
            )
        self.tables = {
            name: StringTable(np.frombuffer(keys, dtype="<u8").astype(np.uint64)) for name, keys in saved.items()
        }
        self.pretrained = {}
        return self


@serialize_attr.register(Vocabulary)
def _serialize_vocabulary(_: Any, value: Vocabulary, name: str, model: Model[Any, Any]) -> bytes:
    return value.to_bytes()


@deserialize_attr.register(Vocabulary)
def _deserialize_vocabulary(default: Vocabulary, value: bytes, name: str, model: Model[Any, Any]) -> Vocabulary:
    return default.from_bytes(value)


def check_rates(architecture: str, **rates: float) -> None:
    """Refuse a dropout that is none."""
    for name, rate in rates.items():
        if not 0.0 <= rate < 1.0:
            raise ValueError(f"{architecture} needs a {name} of at least 0 and below 1, but got {rate}.")


def load_vectors(
    model: Model[Any, Any],
    name: str,
    path: str | Path,
    *,
    width: int,
    normaliser: Normaliser | None,
    to_keys: Callable[[list[str]], Keys],
    prepare: Callable[[FloatArray], FloatArray],
    keep: Callable[[str], bool] | None = None,
    strings: Sequence[str] | None = None,
) -> None:
    """Give every string of a vectors file a row of its own, and put its vector there.

    to_keys: the keys of strings, as the embedder will look them up.
    prepare: brings the vectors into the form that the rows begin with.
    keep: which strings, after the normaliser, are wanted.
    strings: the strings to ask a source for that has no list of its own, such as floret vectors.
    """
    loaded = read_vectors(path, width=width, normalise=normaliser, keep=keep, strings=strings)
    keys, first = np.unique(to_keys(loaded.strings), return_index=True)
    table = prepare(loaded.table[first])
    vocabulary: Vocabulary = model.attrs["vocabulary"]
    vocabulary.tables[name].add(keys)
    vocabulary.pretrained[name] = len(vocabulary.tables[name])
    _fit_height(model, name)
    module: Any = torch_shim(model).module
    module.fill(name, torch.from_numpy(vocabulary.tables[name].rows(keys)), torch.from_numpy(table))


def _fit_height(model: Model[Any, Any], name: str) -> None:
    """Let the torch table have a row for every key, and some to spare, so that growing stays rare."""
    shim = torch_shim(model)
    needed = len(model.attrs["vocabulary"].tables[name])
    height = shim.sizes[name]
    if needed > height:
        grown = needed + height // _GROWTH
        shim.module.grow(name, grown)
        shim.set_module(shim.module, {**shim.sizes, name: grown})


def observe(model: Model[Any, Any], batches: Iterable[list[Doc]]) -> None:
    """Give a row to every string of the docs, in every embedder inside the model, and say how many of the strings
    have a pretrained vector."""
    nodes = [node for node in model.walk() if "vocabulary" in node.attrs]
    if not nodes:
        return
    used = [
        {name: np.zeros(n_rows, dtype=bool) for name, n_rows in node.attrs["vocabulary"].pretrained.items()}
        for node in nodes
    ]
    for docs in batches:
        for node, rows_used in zip(nodes, used, strict=True):
            keys = node.attrs["vocabulary"].keys(docs)
            add_keys(node, keys)
            for name, seen in rows_used.items():
                rows = node.attrs["vocabulary"].tables[name].rows(keys[name])
                seen[rows[rows < seen.size]] = True
    for node, rows_used in zip(nodes, used, strict=True):
        for name, seen in rows_used.items():
            found = int(seen.sum())
            wanted = found + len(node.attrs["vocabulary"].tables[name]) - seen.size
            logger.info("Pretrained %s vectors: found %d of %d strings of the training data", name, found, wanted)


def add_keys(model: Model[Any, Any], keys: dict[str, Keys]) -> None:
    """Give a row to every key that has none yet."""
    for name, table in model.attrs["vocabulary"].tables.items():
        if table.add(keys[name]):
            _fit_height(model, name)


def rows_of(model: Model[Any, Any], keys: dict[str, Keys]) -> list[torch.Tensor]:
    """The rows of the keys, one tensor for each table, in the tables' order. *Shape* [n] each"""
    device = torch_shim(model).device
    tables: dict[str, StringTable] = model.attrs["vocabulary"].tables
    return [torch.from_numpy(table.rows(keys[name])).to(device) for name, table in tables.items()]


def run_module(
    model: Model[Any, Any], is_train: bool, lengths: Sequence[int], *inputs: Any
) -> tuple[list[Floats2d], Callable[[list[Floats2d]], None]]:
    """Call an embedder's module, and cut its output into stretches of the given lengths.

    The second result takes the output's gradient to the module's parameters, where it ends.
    """
    shim = torch_shim(model)
    if not is_train:
        with torch.inference_mode():
            return split(model.ops, shim.module(*inputs), lengths), _nothing
    with shim.training() as module:
        outputs = module(*inputs)

    def backprop(dY: list[Floats2d]) -> None:
        torch.autograd.backward(outputs, join(model.ops, dY, shim.device))

    return split(model.ops, outputs, lengths), backprop


def _nothing(dY: list[Floats2d]) -> None:
    """Nobody learns from a prediction."""
