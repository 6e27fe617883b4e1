"""Lattice encoders of characters and lexicon words: FLAT, FLAT-ATSSA and MECT."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..batching.lattice import Lattice
from ..batching.span_plan import QueryGroup, plan_spans
from ..settings import AtssaConfig, FlatConfig, MectConfig
from ..types import FloatArray
from .attention import AdaptedAttention, Rectangle, in_rectangles
from .dense import Linear
from .fusion import WordFusion
from .selection import SelectiveAttention
from .spans import SpanAttention, SpanPositions
from .transformer import TransformerLayer
from .weights import Weights


class AtssaEncoder:
    """FLAT-ATSSA: word fusion, a linear layer, and context layers over the characters."""

    def __init__(self, config: AtssaConfig, weights: Weights) -> None:
        self.config = config
        self.fusion = WordFusion(config.heads, config.width, weights.part("fusion"))
        self.input = Linear(weights.part("input"))
        layers = [weights.part("layers", i) for i in range(config.layers)]
        self.layers = [TransformerLayer(config, _context(config, layer.part("attention")), layer) for layer in layers]

    def __call__(self, chars: FloatArray, words: FloatArray, lattice: Lattice) -> FloatArray:
        """Encode characters and the words over them.

        *Shape:* (characters, character width) and (words, word width), to (characters, width)
        """
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


class SpanEncoder:
    """FLAT, and MECT with a stream of characters and one of radicals. Returns the outputs of characters."""

    def __init__(self, config: FlatConfig | MectConfig, weights: Weights) -> None:
        self.config = config
        streams = range(config.n_streams)
        self.inputs = [Linear(weights.part("inputs", i)) for i in streams]
        self.word_input = Linear(weights.part("word_input"))
        self.positions = [
            SpanPositions(config.width, config.used_distances, weights.part("positions", i)) for i in streams
        ]
        parts = [[weights.part("layers", n, "streams", i) for i in streams] for n in range(config.layers)]
        self.layers = [[_span_layer(config, part) for part in layer] for layer in parts]
        self.fusion = Linear(weights.part("fusion")) if config.n_streams == 2 else None

    def __call__(self, *inputs: Any) -> FloatArray:
        """Encode rows of characters, in MECT of radicals, and of words; then comes the `Lattice`.

        RETURNS (FloatArray): Rows of characters. *Shape:* (characters, width)
        """
        *characters, words, lattice = inputs
        *inner, last = self.layers
        plan = plan_spans(lattice, word_queries=bool(inner))
        relative = [positions(plan) for positions in self.positions]
        if self.config.n_streams == 1 and len(characters) > 1:
            characters = [np.concatenate(characters, axis=1)]
        streams = [project(rows) for project, rows in zip(self.inputs, characters, strict=True)]
        of_words = self.word_input(words)
        # The radicals' stream has zeros for words.
        words_of_streams = [of_words, *(np.zeros_like(of_words) for _ in streams[1:])]
        rows = [np.concatenate(pair) for pair in zip(streams, words_of_streams, strict=True)]
        for layer in inner:
            rows = self._layer(layer, rows, rows, relative, plan.character_groups + plan.word_groups)
        streams = [x[: lattice.n_characters] for x in rows]
        streams = self._layer(last, streams, rows, relative, plan.character_groups)
        return streams[0] if self.fusion is None else self.fusion(np.concatenate(streams, axis=1))

    def _layer(
        self,
        layers: Sequence[TransformerLayer],
        queries: Sequence[FloatArray],
        rows: Sequence[FloatArray],
        relative: Sequence[FloatArray],
        groups: Sequence[QueryGroup],
    ) -> list[FloatArray]:
        """Run one layer of each stream. queries: the spans that are queries; rows: all spans, as keys and values."""
        sources = queries[::-1] if self.config.crossed else queries
        return [
            layer.complete(x, layer.attention(source, *inputs, groups))
            for layer, x, source, *inputs in zip(layers, queries, sources, rows, relative, strict=True)
        ]


def _span_layer(config: FlatConfig | MectConfig, weights: Weights) -> TransformerLayer:
    return TransformerLayer(config, SpanAttention(config, weights.part("attention")), weights)
