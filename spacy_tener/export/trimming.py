"""Make pipelines smaller by removing the embeddings of rare strings, for the command `trim`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from spacy.language import Language
from spacy.pipeline import TrainablePipe
from spacy.util import minibatch
from thinc.api import Model

from ..embedders.tables import table_embedders
from ..errors import UserError
from ..features.tokens import TokenBatch
from ..pipeline.finding import find_crf_pipe
from ..pipeline.tener_ner import TenerNER
from ..pipeline.units import View, view_of
from ..pipeline.windows import tokens_of_views
from ..types import IntArray

_BATCH_SIZE = 256
# Tables with at most this many rows are not trimmed, for example those for tags and radicals.
MIN_TABLE_ROWS = 1000

# How often each embedding row is used, for all tables of all embedders. *Shape:* (rows,) each
RowCounts = list[dict[str, IntArray]]


def trim_rows(nlp: Language, texts: Iterable[str], *, min_count: int, half: bool, component: str | None = None) -> None:
    """Remove the embeddings of strings that occur less than `min_count` times in texts.

    half (bool): Whether to store the remaining embeddings in float16.
    component (str | None): The component name. By default, the first `tener_ner`.
    """
    name = component or find_crf_pipe(nlp).name
    model = model_with_rows(nlp, name)
    counts = count_rows(model, model_inputs(nlp, name, texts))
    trim_tables(model, counts, min_count=min_count, half=half)


def model_with_rows(nlp: Language, name: str) -> Model[Any, Any]:
    """Return a component's model. Raise an error if the model has no embedding tables."""
    models: dict[str, Model[Any, Any]] = {
        name: pipe.model for name, pipe in nlp.pipeline if isinstance(pipe, TrainablePipe)
    }
    if name not in models:
        find_crf_pipe(nlp, name)
    if table_embedders(models[name]):
        return models[name]
    with_tables = [name for name, model in models.items() if table_embedders(model)]
    fix = "There is nothing to trim."
    if with_tables:
        fix = f"Choose a component with embedding tables: --component {', '.join(with_tables)}."
    if any(node.name == "transformer_embed" for node in models[name].walk()):
        fix = "It uses a transformer instead. To make the pipeline smaller, convert the transformer with --onnx int8."
    raise UserError(f"'{name}' has no embedding tables that can be trimmed", fix)


def model_inputs(nlp: Language, name: str, texts: Iterable[str]) -> Iterator[TokenBatch]:
    """Yield batches of texts as input for a component's model.

    The pipeline's earlier components annotate the texts, since the model can use their annotation as features.
    """
    pipe = nlp.get_pipe(name)
    view: View = pipe.settings.view if isinstance(pipe, TenerNER) else "tokens"
    with nlp.select_pipes(disable=nlp.pipe_names[nlp.pipe_names.index(name) :]):
        views = (view_of(doc, view) for doc in nlp.pipe(map(nlp.tokenizer, texts)))
        for batch in minibatch(filter(len, views), _BATCH_SIZE):
            yield tokens_of_views(batch)


def count_rows(model: Model[Any, Any], batches: Iterable[TokenBatch]) -> RowCounts:
    """Count how often each embedding row is used in batches of texts."""
    embedders = table_embedders(model)
    counts: RowCounts = [
        {name: np.zeros(len(table), dtype=np.int64) for name, table in embedder.vocabulary.tables.items()}
        for embedder in embedders
    ]
    for tokens in batches:
        for embedder, table_counts in zip(embedders, counts, strict=True):
            for name, keys in embedder.vocabulary.to_input(tokens).keys.items():
                rows = embedder.vocabulary.tables[name].rows(keys)
                table_counts[name] += np.bincount(rows, minlength=table_counts[name].size)
    return counts


def trim_tables(model: Model[Any, Any], counts: RowCounts, *, min_count: int, half: bool) -> None:
    """Remove the embeddings of strings that occur less than `min_count` times. The model then treats them as unknown
    strings.

    counts (RowCounts): The frequencies, from `count_rows`.
    half (bool): Whether to store the remaining embeddings in float16. The model still computes in float32.
    """
    for embedder, table_counts in zip(table_embedders(model), counts, strict=True):
        kept_rows = {}
        for name, frequencies in table_counts.items():
            # Row 0 is the embedding for unknown strings.
            is_first = np.arange(frequencies.size) == 0
            is_kept = (frequencies >= min_count) | is_first | (frequencies.size <= MIN_TABLE_ROWS)
            kept_rows[name] = np.flatnonzero(is_kept)
        embedder.keep_rows(kept_rows, half=half)
