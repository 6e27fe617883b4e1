"""Smaller pipelines: the rows of their tables that raw texts have no string of are removed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from spacy.language import Language
from spacy.pipeline import TrainablePipe
from spacy.util import minibatch
from thinc.api import Model

from ..embedders.tables import table_embedders
from ..errors import RemedyError
from ..features.tokens import TokenBatch
from ..pipeline.finding import find_crf_pipe
from ..pipeline.tener_ner import TenerNER
from ..pipeline.units import View, view_of
from ..pipeline.windows import tokens_of_views
from ..types import IntArray

_TEXTS_AT_ONCE = 256
FEW = 1000
"""Tables of at most this many rows are not trimmed, such as those of tags, of a segmenter's words, and of radicals."""

RowCounts = list[dict[str, IntArray]]
"""The frequency of each row's string, for each embedder, for each of its tables. *Shape:* (rows,) each"""


def trim_rows(nlp: Language, texts: Iterable[str], *, min_count: int, half: bool, component: str | None = None) -> None:
    """Remove the rows of strings that texts have less than `min_count` times, from the tables of one component."""
    name = component or find_crf_pipe(nlp).name
    model = model_with_rows(nlp, name)
    counts = count_rows(model, inputs_of(nlp, name, texts))
    trim_tables(model, counts, min_count=min_count, half=half)


def model_with_rows(nlp: Language, name: str) -> Model[Any, Any]:
    """Return the model of a component, which must have embedding tables."""
    models: dict[str, Model[Any, Any]] = {
        name: pipe.model for name, pipe in nlp.pipeline if isinstance(pipe, TrainablePipe)
    }
    if name not in models:
        find_crf_pipe(nlp, name)
    if table_embedders(models[name]):
        return models[name]
    with_tables = [name for name, model in models.items() if table_embedders(model)]
    remedy = "There is nothing to trim."
    if with_tables:
        remedy = f"Choose one that has, by --component: {', '.join(with_tables)}."
    if any(node.name == "transformer_embed" for node in models[name].walk()):
        remedy = "It has a transformer: convert that by --onnx int8."
    raise RemedyError(f"'{name}' has no embedding tables of its own", remedy)


def inputs_of(nlp: Language, name: str, texts: Iterable[str]) -> Iterator[TokenBatch]:
    """Yield the input of the component's model in batches: texts, annotated by the earlier components."""
    pipe = nlp.get_pipe(name)
    view: View = pipe.settings.view if isinstance(pipe, TenerNER) else "tokens"
    with nlp.select_pipes(disable=nlp.pipe_names[nlp.pipe_names.index(name) :]):
        views = (view_of(doc, view) for doc in nlp.pipe(map(nlp.tokenizer, texts)))
        for batch in minibatch(filter(len, views), _TEXTS_AT_ONCE):
            yield tokens_of_views(batch)


def count_rows(model: Model[Any, Any], batches: Iterable[TokenBatch]) -> RowCounts:
    """Count the strings of texts."""
    embedders = table_embedders(model)
    counts: RowCounts = [
        {name: np.zeros(len(table), dtype=np.int64) for name, table in embedder.vocabulary.tables.items()}
        for embedder in embedders
    ]
    for tokens in batches:
        for embedder, table_counts in zip(embedders, counts, strict=True):
            for name, keys in embedder.vocabulary.read(tokens).keys.items():
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
