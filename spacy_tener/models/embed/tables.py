"""Embedders over tables of rows, which grow with what training shows: what all of ours have in common.

Such an embedder is a Thinc layer with a `Vocabulary` as `attrs["vocabulary"]` and one torch shim, whose module has
`EmbeddingTables` inside or is one, and whose sizes are the heights of these tables by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from spacy.tokens import Doc
from spacy.util import logger
from thinc.api import Model
from thinc.types import Floats2d

from ...features.keys import Keys
from ...features.vectors.forms import prepared
from ...features.vectors.vectors import read_vectors
from ...runtime.dense import EmbeddingTables as Rows
from ...runtime.weights import Weights
from ...types import IntArray
from ..shims.bridge import Build, EmbedModel, Indices, TorchShim, run_module, token_counts, torch_shim
from ..shims.shim import MakePredictor
from .vocabulary import Vocabulary

if TYPE_CHECKING:
    from ...layers.dense import EmbeddingTables

_GROWTH = 8
_ATTRIBUTES = {"vocabulary", "widths"}
"""Of an embedder's layer; version 0.1 saved its widths."""


def table_embedder(
    name: str,
    vocabulary: Vocabulary,
    build: Build,
    make_predictor: MakePredictor,
    *,
    width: int,
    init: Callable[..., None] | None = None,
) -> EmbedModel:
    """An embedder whose module is called with the rows of what its vocabulary reads.

    build: Makes the module from the heights of its tables, by name.
    make_predictor: Makes what predicts as the module does from its weights.
    init: Initializes the layer, where there is more to do than `init_tables` does.
    """
    return Model(
        name,
        _forward,
        init=init or init_tables,
        dims={"nO": width},
        attrs={"vocabulary": vocabulary},
        shims=[TorchShim(build, make_predictor)],
    )


def build_tables(
    *, widths: Mapping[str, int], word_dropout: Mapping[str, float], dropout: float, **heights: int
) -> EmbeddingTables:
    from ...layers.dense import EmbeddingTables

    return EmbeddingTables(rows=heights, widths=widths, word_dropout=word_dropout, dropout=dropout)


def table_rows(widths: Mapping[str, int], weights: Weights) -> Rows:
    """What `build_tables` makes, as it predicts."""
    return Rows(widths, weights)


def init_tables(model: Model[Any, Any], X: list[Doc] | None = None, Y: Any = None) -> None:
    """Forget all strings, and make a fresh module."""
    vocabulary: Vocabulary = model.attrs["vocabulary"]
    vocabulary.clear()
    torch_shim(model).build(**vocabulary.heights())


def _forward(
    model: EmbedModel, docs: list[Doc], is_train: bool
) -> tuple[list[Floats2d], Callable[[list[Floats2d]], list[Doc]]]:
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
    """Whether a layer is an embedder of ours: others may have any other thing as their vocabulary."""
    return isinstance(node.attrs.get("vocabulary"), Vocabulary)


def table_nodes(model: Model[Any, Any]) -> list[Model[Any, Any]]:
    """The embedders inside a model."""
    return [node for node in model.walk() if _has_tables(node)]


def _tables(model: Model[Any, Any]) -> EmbeddingTables:
    """The tables in an embedder's module."""
    from ...layers.dense import EmbeddingTables

    return next(part for part in torch_shim(model).module.modules() if isinstance(part, EmbeddingTables))


def look_up(
    model: Model[Any, Any], keys: Mapping[str, Keys], is_train: bool, *, others: Mapping[str, IntArray] | None = None
) -> list[Indices]:
    """The rows of the keys, for each table; in training every key has one of its own. *Shape* [n] each

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
    """Let the torch table have a row for every key, and some to spare, so that growing stays rare."""
    shim = torch_shim(model)
    needed = len(model.attrs["vocabulary"].tables[name])
    height = shim.sizes[name]
    if needed > height:
        grown = needed + height // _GROWTH
        _tables(model).grow(name, grown)
        shim.set_module(shim.module, {**shim.sizes, name: grown}, device=shim.device)


def check_loaded(model: Model[Any, Any]) -> None:
    """Refuse a model with an embedder whose vocabulary was saved under another name: Thinc takes it for one attribute
    more, and leaves the vocabulary empty."""
    for node in model.walk():
        unknown = sorted(set(node.attrs) - _ATTRIBUTES)
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
