"""Lattice encoders of characters and lexicon words: FLAT, FLAT-ATSSA and MECT."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..batching.lattice import Lattice
from ..batching.span_plan import AttentionPlan
from ..settings import DISTANCES, MECT_DISTANCES, AtssaConfig, FlatConfig, MectConfig
from ..types import FloatArray
from .attention import AdaptedAttention, Rectangle, divided, in_rectangles
from .dense import Linear
from .fusion import WordFusion
from .selection import SelectiveAttention
from .spans import Queries, SpanAttention, SpanHeads, SpanPositions, attend_spans, plan_spans
from .transformer import TransformerLayer
from .weights import Weights

FEW_ROWS = 512
"""Up to so many rows, both streams of MECT are computed together: copying takes less time than more calls of numpy."""


class FlatEncoder:
    """FLAT: a stack of layers over characters and words. Returns the outputs of characters."""

    def __init__(self, config: FlatConfig, weights: Weights) -> None:
        self.char_input, self.word_input = (Linear(weights.part(name)) for name in ("char_input", "word_input"))
        self.positions = SpanPositions(config.width, config.distances or DISTANCES, weights.part("positions"))
        self.layers = [_span_layer(config, weights.part("layers", i)) for i in range(config.layers)]

    def __call__(self, chars: FloatArray, words: FloatArray, lattice: Lattice) -> FloatArray:
        """*Shape* chars: [N, char_width]; words: [W, word_width]; result: [N, d]"""
        *inner, last = self.layers
        plan = plan_spans(lattice, word_queries=bool(inner))
        relative = self.positions(plan)
        x = self.char_input(chars)
        rows = np.concatenate((x, self.word_input(words)))[plan.order]
        for layer in inner:
            rows = layer(rows, plan.by_all, relative)
        x = rows[plan.characters] if inner else x
        return last(x, plan.by_characters, relative, rows)


def _span_layer(config: Any, weights: Weights, **options: Any) -> TransformerLayer:
    return TransformerLayer(config, SpanAttention(config, weights.part("attention"), **options), weights)


class AtssaEncoder:
    """FLAT-ATSSA: word fusion, a linear layer, and context layers over the characters."""

    def __init__(self, config: AtssaConfig, weights: Weights) -> None:
        self.config = config
        self.fusion = WordFusion(config.heads, config.width, weights.part("fusion"))
        self.input = Linear(weights.part("input"))
        layers = [weights.part("layers", i) for i in range(config.layers)]
        self.layers = [TransformerLayer(config, _context(config, layer.part("attention")), layer) for layer in layers]

    def __call__(self, chars: FloatArray, words: FloatArray, lattice: Lattice) -> FloatArray:
        """*Shape* chars: [N, char_width]; words: [W, word_width]; result: [N, d]"""
        x = np.concatenate((chars, self.fusion(chars, words, lattice)), axis=1)
        return in_rectangles(lattice.lengths, x, self.config.width, self._encode)

    def _encode(self, x: FloatArray, rectangle: Rectangle) -> FloatArray:
        x = self.input(x)
        for layer in self.layers:
            x = layer(x, rectangle)
        return x


def _context(config: AtssaConfig, weights: Weights) -> Callable[..., FloatArray]:
    if config.selects:
        return SelectiveAttention(config, weights)
    return AdaptedAttention(config, weights, key_projection=True)


class MectEncoder:
    """MECT: two streams, of characters and of radicals, or one, over words too. Returns the outputs of characters."""

    def __init__(self, config: MectConfig, weights: Weights) -> None:
        self.config = config
        each = range(config.n_streams)
        self.inputs = [Linear(weights.part("inputs", i)) for i in each]
        self.word_input = Linear(weights.part("word_input"))
        self.positions = [SpanPositions(config.width, MECT_DISTANCES, weights.part("positions", i)) for i in each]
        options: Any = {"key_projection": False, "places": config.random_attention}
        self.layers = [
            [_span_layer(config, weights.part("layers", n, "streams", i), **options) for i in each]
            for n in range(config.layers)
        ]
        self.fusion = Linear(weights.part("fusion")) if config.n_streams == 2 else None

    def __call__(self, chars: FloatArray, radicals: FloatArray, words: FloatArray, lattice: Lattice) -> FloatArray:
        """*Shape* chars, radicals: [N, ..]; words: [W, word_width]; result: [N, d]"""
        *inner, last = self.layers
        plan = plan_spans(lattice, word_queries=bool(inner))
        relative = [positions(plan) for positions in self.positions]
        given = [chars, radicals] if self.config.n_streams == 2 else [np.concatenate((chars, radicals), axis=1)]
        streams = [project(part) for project, part in zip(self.inputs, given, strict=True)]
        of_words = self.word_input(words)
        # The radicals' stream has zeros for words.
        beside = [of_words, *(np.zeros_like(of_words) for _ in streams[1:])]
        rows = [np.concatenate(pair)[plan.order] for pair in zip(streams, beside, strict=True)]
        for layer in inner:
            rows = self._layer(layer, rows, rows, plan.by_all, relative)
        if inner:
            streams = [stream[plan.characters] for stream in rows]
        streams = self._layer(last, rows, streams, plan.by_characters, relative)
        return streams[0] if self.fusion is None else self.fusion(np.concatenate(streams, axis=1))

    def _layer(
        self,
        layers: Sequence[TransformerLayer],
        rows: Sequence[FloatArray],
        streams: Sequence[FloatArray],
        plan: AttentionPlan[Queries],
        relative: Sequence[FloatArray],
    ) -> list[FloatArray]:
        """Run one layer of each stream. rows: all spans, as keys and values; streams: the spans that are queries."""
        queries = streams[::-1] if self.config.streams == "cross" else streams
        heads: list[SpanHeads] = [
            layer.attention.heads(x, plan, *others)  # type: ignore[attr-defined]
            for layer, x, *others in zip(layers, streams, relative, rows, queries, strict=True)
        ]
        if len(rows[0]) > FEW_ROWS:
            parts = [divided(attend_spans(each, plan.groups)) for each in heads]
        else:
            mixed = divided(attend_spans(SpanHeads.joined(heads), plan.groups))
            parts = [part.copy() for part in np.split(mixed, len(layers), axis=1)]
        return [layer.complete(x, part) for layer, x, part in zip(layers, streams, parts, strict=True)]
