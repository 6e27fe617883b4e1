"""A model's layers in a graph, from their NumPy forms, the predictors of `runtime`.

Rows are padded: *Shape:* (windows, longest, width)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, cast

import numpy as np
from spacy.language import Language
from thinc.api import Model

from ...architectures.grn.grn_config import EXPONENT_LIMIT
from ...architectures.grn.grn_numpy import GRNEncoder
from ...architectures.tener.tener_numpy import AdaptedAttention, TransformerEncoder, VanillaAttention
from ...crf.crf_numpy import CRFHead
from ...embedders.char_embed import BIGRAM, UNIGRAM, CharVocabulary
from ...embedders.onnx_embed import OnnxFeatures
from ...embedders.tables import TableEmbedder
from ...errors import RemedyError
from ...nn.attention_numpy import interleave, sinusoids
from ...nn.compose import Chain, JoinedEmbedders, RaggedLayer
from ...nn.convolution_numpy import Convolution
from ...nn.dense_numpy import EmbeddingTables, LayerNorm, Linear, Projection
from ...nn.transformer_numpy import FeedForward
from ...onnx.edits import read_graph
from ...onnx.encoder import IDS, LENGTHS, MASK, TYPES, Characters, Encoder
from ...types import AnyFloats
from .characters import UnitValues, number_strings, pair_number, write_numbers
from .graph import OPSET, Graph, Value
from .windows import WindowBatch, core_rows, cut_evenly, make_batch

WAY_OUT = "Train a student that reads characters, by the overlay `taught` (docs/raw-text.md), and export that."
_LONGEST_NAME = 40


class LayerWriter:
    """Writes a model's layers for batches of windows.

    codes (Value): Code points of all texts, joined. *Shape:* (characters,)
    longest (int): The most units of a window.
    half (bool): Store rows of tables in float16.
    """

    def __init__(
        self, graph: Graph, codes: Value, units: UnitValues, nlp: Language, *, longest: int, half: bool
    ) -> None:
        self.graph, self.codes, self.units, self.nlp = graph, codes, units, nlp
        self.longest, self.half = longest, half

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
        """Write a layer from rows to rows."""
        predictor = layer.shim.predictor()
        if isinstance(predictor, TransformerEncoder):
            return self._transformer(predictor, x, batch)
        if isinstance(predictor, GRNEncoder):
            return self._gated_relations(predictor, x, batch)
        if isinstance(predictor, CRFHead | Projection):
            return self._linear(predictor.emit if isinstance(predictor, CRFHead) else predictor.linear, x)
        raise _not_exported(layer)

    def _linear(self, layer: Linear, x: Value) -> Value:
        product = x @ layer.weight
        return product if layer.bias is None else product + layer.bias

    def _norm(self, layer: LayerNorm, x: Value) -> Value:
        return self.graph.LayerNormalization(x, layer.weight, layer.bias, axis=-1, epsilon=1e-5)

    def _feed_forward(self, layer: FeedForward, x: Value) -> Value:
        return self._linear(layer.narrow, self.graph.Relu(self._linear(layer.widen, x)))

    def _transformer(self, encoder: TransformerEncoder, x: Value, batch: WindowBatch) -> Value:
        x = x if encoder.input is None else self._linear(encoder.input, x)
        if not encoder.config.adapted:
            positions = interleave(*sinusoids(self.longest, encoder.config.width))
            x = x + self.graph.value(positions)[: batch.longest]
        for layer in encoder.layers:
            heads = self._adapted_heads if isinstance(layer.attention, AdaptedAttention) else self._vanilla_heads
            mixed = self._attend(*heads(layer.attention, x, batch), batch)
            mixed = mixed if isinstance(layer.attention, AdaptedAttention) else self._linear(layer.attention.out, mixed)
            mixed = self._norm(layer.attention_norm, x + mixed)
            x = self._norm(layer.feed_forward_norm, mixed + self._feed_forward(layer.feed_forward, mixed))
        return x

    def _split_heads(self, x: Value, n_heads: int) -> Value:
        """Split the last dimension by head. *Shape:* to (windows, heads, longest, head width)"""
        return self.graph.Transpose(self.graph.Reshape(x, [0, 0, n_heads, -1]), perm=[0, 2, 1, 3])

    def _adapted_heads(self, attention: AdaptedAttention, x: Value, batch: WindowBatch) -> tuple[Value, Value, Value]:
        """Write queries and keys, with relative positions beside the content, and values; see `layers.attention`."""
        graph, n_heads, width = self.graph, attention.n_heads, attention.head_width
        query = self._linear(attention.query, x)
        content, position = (
            self._split_heads((query + bias) * attention.scale, n_heads) for bias in (attention.u, attention.v)
        )
        even, odd = (graph.Slice(position, [i], [width], [3], [2]) for i in range(2))
        sin, cos = (graph.value(table)[: batch.longest] for table in sinusoids(self.longest, width))
        queries = graph.Concat(content, even * sin + odd * cos, odd * sin - even * cos, axis=3)
        key = self._split_heads(x if attention.key is None else self._linear(attention.key, x), n_heads)
        positions = graph.Expand(graph.Concat(cos, sin, axis=1), graph.Shape(key))
        keys = graph.Concat(key, positions, axis=3)
        return queries, keys, self._split_heads(self._linear(attention.value, x), n_heads)

    def _vanilla_heads(self, attention: VanillaAttention, x: Value, batch: WindowBatch) -> tuple[Value, Value, Value]:
        query, key, value = (self._linear(layer, x) for layer in (attention.query, attention.key, attention.value))
        q, k, v = (self._split_heads(part, attention.n_heads) for part in (query * attention.scale, key, value))
        return q, k, v

    def _attend(self, queries: Value, keys: Value, values: Value, batch: WindowBatch) -> Value:
        graph = self.graph
        scores = queries @ graph.Transpose(keys, perm=[0, 1, 3, 2])
        hidden = graph.Where(batch.is_real, np.float32(0), np.float32(-np.inf))
        weights = graph.Softmax(scores + graph.Unsqueeze(hidden, [1, 2]), axis=-1)
        return graph.Reshape(graph.Transpose(weights @ values, perm=[0, 2, 1, 3]), [0, 0, -1])

    def _gated_relations(self, encoder: GRNEncoder, x: Value, batch: WindowBatch) -> Value:
        """Write GRN's context layer, and its relation layer."""
        graph = self.graph
        if encoder.branches:
            branches = [self._convolution(branch, x, batch) for branch in encoder.branches]
            x = graph.Tanh(reduce(graph.Max, branches))
        elif encoder.input is not None:
            x = self._linear(encoder.input, x)
        if encoder.config.relation is None:
            return x
        lefts, rights = self._linear(encoder.left, x), self._linear(encoder.right, x)
        counts = graph.Unsqueeze(batch.lengths.to(np.float32), [1, 2])
        is_real = graph.Unsqueeze(batch.is_real.to(np.float32), [2])
        lefts, rights = (
            graph.Clip(part, *map(np.float32, (-EXPONENT_LIMIT, EXPONENT_LIMIT))) for part in (lefts, rights)
        )
        lefts, rights = graph.Exp(graph.Neg(lefts)), graph.Exp(rights)
        weighted = rights * x * is_real

        def relate(left: Value) -> list[Value]:
            """Return the sum over all units of what one unit's gates let through."""
            return [graph.ReduceSum(weighted / (graph.Unsqueeze(left, [1]) + rights), [1], keepdims=0)]

        [related] = graph.scan([], [lefts], relate, 1, axis=1)
        return graph.Tanh(related / counts)

    def _convolution(self, layer: Convolution, x: Value, batch: WindowBatch) -> Value:
        graph, size = self.graph, len(layer.offsets)
        if size == 1:
            return self._linear(layer.product, x)
        weight = layer.product.weight.reshape(size, -1, layer.product.weight.shape[1]).transpose(2, 1, 0)
        columns = graph.Transpose(x * graph.Unsqueeze(batch.is_real.to(np.float32), [2]), perm=[0, 2, 1])
        biases = [] if layer.product.bias is None else [layer.product.bias]
        return graph.Transpose(graph.Conv(columns, weight, *biases, pads=[size // 2, size // 2]), perm=[0, 2, 1])


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
