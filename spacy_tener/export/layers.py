"""A model's layers in a graph: embedders here, others by their NumPy forms, which write themselves.

Rows are padded: *Shape:* (windows, longest, width)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from spacy.language import Language
from thinc.api import Model

from ..embedders.char_embed import BIGRAM, UNIGRAM, CharVocabulary
from ..embedders.onnx_embed import OnnxFeatures
from ..embedders.tables import TableEmbedder
from ..errors import RemedyError
from ..nn.compose import Chain, JoinedEmbedders, RaggedLayer
from ..nn.graph import OPSET, Graph, Value
from ..nn.layers_numpy import EmbeddingTables
from ..onnx.edits import read_graph
from ..onnx.encoder import IDS, LENGTHS, MASK, TYPES, Characters, Encoder
from ..types import AnyFloats
from .code_points import UnitValues, number_strings, pair_number, write_numbers
from .window_batches import WindowBatch, core_rows, cut_evenly, make_batch

WAY_OUT = "Train a student that reads characters, by the overlay `taught` (docs/raw-text.md), and export that."
_LONGEST_NAME = 40


class LayerWriter:
    """Writes a model's layers for batches of windows.

    codes (Value): Code points of all texts, joined. *Shape:* (characters,)
    half (bool): Store rows of tables in float16.
    """

    def __init__(self, graph: Graph, codes: Value, units: UnitValues, nlp: Language, *, half: bool) -> None:
        self.graph, self.codes, self.units, self.nlp, self.half = graph, codes, units, nlp, half

    def prepare(self, layer: Model[Any, Any]) -> Callable[[WindowBatch], Value]:
        """Return a function that writes a layer over Docs. What all batches share is written at once."""
        if isinstance(layer, Chain):
            embed, encode = self.prepare(layer.layers[0]), layer.layers[1]
            if not isinstance(encode, RaggedLayer):
                raise _not_exported(encode)
            return lambda batch: self.encode(encode, embed(batch), batch)
        if isinstance(layer, JoinedEmbedders):
            parts = [self.prepare(part) for part in layer.layers]
            return lambda batch: self.graph.Concat(*(part(batch) for part in parts), axis=2)
        if isinstance(layer, TableEmbedder) and isinstance(layer.vocabulary, CharVocabulary):
            return self._prepare_characters(layer)
        if isinstance(layer, OnnxFeatures):
            return self._prepare_features(layer.attrs["features"].encoder)
        raise _not_exported(layer)

    def _prepare_characters(self, layer: TableEmbedder) -> Callable[[WindowBatch], Value]:
        """Return a function that writes the rows of characters, and of pairs."""
        graph, vocabulary = self.graph, cast(CharVocabulary, layer.vocabulary)
        keys, number_of_text, row_of_pair = number_strings(vocabulary, self.nlp)
        numbers = write_numbers(graph, self.codes, self.units, number_of_text, vocabulary.normaliser)
        predictor = cast(EmbeddingTables, layer.shim.predictor())
        tables = dict(zip(vocabulary.tables, predictor.tables, strict=True))
        rows = [0, *vocabulary.tables[UNIGRAM].rows(keys)]

        def write(batch: WindowBatch) -> Value:
            firsts = numbers[batch.slots]
            parts = [self._take(tables[UNIGRAM][rows], firsts)]
            if BIGRAM in tables:
                is_last = graph.Equal(graph.Range(0, batch.longest, 1), graph.Unsqueeze(batch.lengths - 1, [1]))
                nexts = graph.Pad(graph.slice(firsts, 1, axis=1), [0, 0, 0, 1], 0)
                pairs = pair_number(firsts, graph.Where(is_last, keys.size + 1, nexts), keys.size)
                table = tables[BIGRAM][: len(vocabulary.tables[BIGRAM])]
                parts.append(self._take(table, graph.lookup(pairs, row_of_pair, 0)))
            return graph.Concat(*parts, axis=2)

        return write

    def _take(self, table: AnyFloats, rows: Value) -> Value:
        """Return rows of a table."""
        if self.half or table.dtype == np.float16:
            return self.graph.value(table.astype(np.float16))[rows].to(np.float32)
        return self.graph.value(table.astype(np.float32))[rows]

    def _prepare_features(self, encoder: Encoder) -> Callable[[WindowBatch], Value]:
        """Return a function that writes the features of an encoder. A unit of several characters has their mean."""
        graph, units = self.graph, self.units
        write_encoder = prepare_encoder(graph, encoder, self.codes)

        def write(batch: WindowBatch) -> Value:
            begins, ends = units.firsts[batch.windows.begins], units.ends[batch.windows.ends - 1]
            pieces = make_batch(graph, cut_evenly(graph, begins, ends, size=encoder.window, overlap=encoder.overlap))
            rows, characters = core_rows(graph, pieces, write_encoder(pieces))
            # The slot of each character's unit, in the joined windows.
            windows = graph.owners(graph.starts(ends - begins), graph.size(characters))
            owners = units.owners[characters]
            slots = windows * batch.longest + owners - batch.windows.begins[windows]
            shape = graph.shape(graph.size(batch.lengths), batch.longest, encoder.width)
            zeros = graph.full(np.float32(0), graph.size(batch.lengths) * batch.longest, encoder.width)
            sizes = graph.Where(units.is_long_space[owners], units.ends[owners] - units.firsts[owners], 1)
            weights = units.in_unit[characters].to(np.float32) / sizes.to(np.float32)
            rows = rows * graph.Unsqueeze(weights, [1])
            return graph.Reshape(graph.ScatterND(zeros, graph.Unsqueeze(slots, [1]), rows, reduction="add"), shape)

        return write

    def encode(self, layer: RaggedLayer, x: Value, batch: WindowBatch) -> Value:
        """Write a layer from rows to rows, by its NumPy form."""
        write = getattr(layer.shim.predictor(), "write", None)
        if write is None:
            raise _not_exported(layer)
        return cast(Value, write(x, batch))


def prepare_encoder(graph: Graph, encoder: Encoder, codes: Value) -> Callable[[WindowBatch], Value]:
    """Return a function that writes the features of an encoder of characters.

    codes (Value): Code points of all texts, joined. *Shape:* (characters,)
    """
    from onnx.version_converter import convert_version

    vocabulary = encoder.vocabulary
    if not isinstance(vocabulary, Characters) or encoder.batching != "padded":
        raise RemedyError(
            f"{encoder.source} reads pieces of words, or no batches with padding, and cannot be exported", WAY_OUT
        )
    model = read_graph(encoder.graph)
    if model.opset_import[0].version != OPSET:
        model = convert_version(model, OPSET)
    ids = graph.lookup(
        codes, dict(zip(vocabulary.codes.tolist(), vocabulary.ids.tolist(), strict=True)), vocabulary.unknown
    )

    def write(batch: WindowBatch) -> Value:
        rows = graph.Where(batch.is_real, ids[batch.slots], 0)
        arrays = {IDS: rows, MASK: batch.is_real.to(np.int64), TYPES: rows * 0, LENGTHS: batch.lengths}
        inputs = {name: arrays[role] for role, name in encoder.inputs.items()}
        outputs = graph.include(model, inputs, encoder.outputs)
        return graph.Concat(*outputs, axis=2)

    return write


def _not_exported(layer: Model[Any, Any]) -> RemedyError:
    name = layer.name if len(layer.name) <= _LONGEST_NAME else f"{layer.name[:_LONGEST_NAME]}..."
    return RemedyError(
        f"The layer '{name}' cannot be exported: only TENER, GRN, rows of characters and of their pairs, and LAC can",
        WAY_OUT,
    )
