"""Add a model's layers to an ONNX graph.

`LayerWriter` creates the nodes for embedders. Encoders and taggers are added by the method `write` of their NumPy
predictors. All layers compute padded batches. *Shape:* (windows, longest, width)
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
from ..errors import UserError
from ..nn.compose import Chain, JoinedEmbedders, RaggedLayer
from ..nn.graph import OPSET, Graph, Value
from ..nn.layers_numpy import EmbeddingTables
from ..onnx.edits import read_graph
from ..onnx.encoder import IDS, LENGTHS, MASK, TYPES, Characters, Encoder
from ..types import AnyFloats
from .code_points import UnitValues, number_strings, pair_number, write_numbers
from .window_batches import WindowBatch, cut_evenly, kept_rows, make_batch

DISTIL_FIX = (
    "Distill the pipeline into a character-level model with the overlay `distilled` (docs/distillation.md), and export "
    "that model."
)
_MAX_NAME_LENGTH = 40


class LayerWriter:
    """Adds a model's layers to an ONNX graph.

    graph (Graph): The graph.
    codes (Value): The concatenated texts as code points. *Shape:* (characters,)
    units (UnitValues): The tokens or characters that the model tags.
    nlp (Language): The pipeline that contains the model.
    half (bool): Whether to store embedding tables in float16.
    """

    def __init__(self, graph: Graph, codes: Value, units: UnitValues, nlp: Language, *, half: bool) -> None:
        self.graph, self.codes, self.units, self.nlp, self.half = graph, codes, units, nlp, half

    def prepare(self, layer: Model[Any, Any]) -> Callable[[WindowBatch], Value]:
        """Return a function that adds a layer to the graph and computes its output for a batch of windows.

        Nodes that do not depend on the batch are added immediately, outside the loop over batches.
        """
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
        """Return a function that adds the lookup of character and bigram embeddings for a batch of windows."""
        graph, vocabulary = self.graph, cast(CharVocabulary, layer.vocabulary)
        keys, number_of_text, row_of_pair = number_strings(vocabulary, self.nlp)
        numbers = write_numbers(graph, self.codes, self.units, number_of_text, vocabulary.normalizer)
        predictor = cast(EmbeddingTables, layer.shim.predictor())
        tables = dict(zip(vocabulary.tables, predictor.tables, strict=True))
        rows = [0, *vocabulary.tables[UNIGRAM].rows(keys)]

        def write(batch: WindowBatch) -> Value:
            first_numbers = numbers[batch.indices]
            parts = [self._take(tables[UNIGRAM][rows], first_numbers)]
            if BIGRAM in tables:
                is_last = graph.Equal(graph.Range(0, batch.longest, 1), graph.Unsqueeze(batch.lengths - 1, [1]))
                next_numbers = graph.Pad(graph.slice(first_numbers, 1, axis=1), [0, 0, 0, 1], 0)
                pairs = pair_number(first_numbers, graph.Where(is_last, keys.size + 1, next_numbers), keys.size)
                table = tables[BIGRAM][: len(vocabulary.tables[BIGRAM])]
                parts.append(self._take(table, graph.lookup(pairs, row_of_pair, 0)))
            return graph.Concat(*parts, axis=2)

        return write

    def _take(self, table: AnyFloats, rows: Value) -> Value:
        """Add an embedding lookup to the graph, and convert the embeddings to float32."""
        if self.half or table.dtype == np.float16:
            return self.graph.value(table.astype(np.float16))[rows].to(np.float32)
        return self.graph.value(table.astype(np.float32))[rows]

    def _prepare_features(self, encoder: Encoder) -> Callable[[WindowBatch], Value]:
        """Return a function that adds a pretrained encoder and computes its features for a batch of windows.

        The encoder computes features for characters. If a token has several characters, their features are averaged.
        """
        graph, units = self.graph, self.units
        write_encoder = prepare_encoder(graph, encoder, self.codes)

        def write(batch: WindowBatch) -> Value:
            begins, ends = units.starts[batch.windows.starts], units.ends[batch.windows.ends - 1]
            # The encoder may only support shorter inputs than the model, so each window is split again.
            encoder_windows = cut_evenly(graph, begins, ends, size=encoder.window, overlap=encoder.overlap)
            encoder_batch = make_batch(graph, encoder_windows)
            rows, characters = kept_rows(graph, encoder_batch, write_encoder(encoder_batch))
            # Scatter the character features to their tokens' positions in the padded batch.
            windows = graph.sequence_index(graph.starts(ends - begins), graph.size(characters))
            unit_index = units.unit_of_character[characters]
            positions = windows * batch.longest + unit_index - batch.windows.starts[windows]
            shape = graph.shape(graph.size(batch.lengths), batch.longest, encoder.width)
            zeros = graph.full(np.float32(0), graph.size(batch.lengths) * batch.longest, encoder.width)
            sizes = graph.Where(units.is_long_space[unit_index], units.ends[unit_index] - units.starts[unit_index], 1)
            weights = units.in_unit[characters].to(np.float32) / sizes.to(np.float32)
            rows = rows * graph.Unsqueeze(weights, [1])
            return graph.Reshape(graph.ScatterND(zeros, graph.Unsqueeze(positions, [1]), rows, reduction="add"), shape)

        return write

    def encode(self, layer: RaggedLayer, x: Value, batch: WindowBatch) -> Value:
        """Add an encoder or a tagger to the graph, with the method `write` of its NumPy predictor."""
        write = getattr(layer.shim.predictor(), "write", None)
        if write is None:
            raise _not_exported(layer)
        return cast(Value, write(x, batch))


def prepare_encoder(graph: Graph, encoder: Encoder, codes: Value) -> Callable[[WindowBatch], Value]:
    """Return a function that adds a pretrained character encoder and computes its features for a batch of windows.

    codes (Value): The concatenated texts as code points. *Shape:* (characters,)
    """
    from onnx.version_converter import convert_version

    vocabulary = encoder.vocabulary
    if not isinstance(vocabulary, Characters):
        raise UserError(
            f"{encoder.source} cannot be exported, because it encodes subword tokens instead of characters", DISTIL_FIX
        )
    if encoder.batching != "padded":
        raise UserError(
            f"{encoder.source} cannot be exported, because its features depend on the padding of a batch", DISTIL_FIX
        )
    model = read_graph(encoder.graph)
    if model.opset_import[0].version != OPSET:
        model = convert_version(model, OPSET)
    ids = graph.lookup(
        codes, dict(zip(vocabulary.codes.tolist(), vocabulary.ids.tolist(), strict=True)), vocabulary.unknown
    )

    def write(batch: WindowBatch) -> Value:
        rows = graph.Where(batch.is_real, ids[batch.indices], 0)
        arrays = {IDS: rows, MASK: batch.is_real.to(np.int64), TYPES: rows * 0, LENGTHS: batch.lengths}
        inputs = {name: arrays[role] for role, name in encoder.inputs.items()}
        outputs = graph.include(model, inputs, encoder.outputs)
        return graph.Concat(*outputs, axis=2)

    return write


def _not_exported(layer: Model[Any, Any]) -> UserError:
    name = layer.name if len(layer.name) <= _MAX_NAME_LENGTH else f"{layer.name[:_MAX_NAME_LENGTH]}..."
    return UserError(
        f"The layer '{name}' cannot be exported. Only character embeddings and the encoders TENER, GRN and LAC can be "
        "exported",
        DISTIL_FIX,
    )
