"""MECT's encoder (Wu et al., 2021, section 4): characters and words in one stream, the components of characters in
another, and attention in which the queries of each stream come from the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from ...batching.lattice import Lattice
from ...settings import MECT_DISTANCES, MectConfig
from ..attention.transformer import TransformerLayer, each_layer
from ..linear import Linear
from .span_attention import SpanAttention, span_layer
from .span_mixing import SpanHeads, attend_spans
from .span_plan import SpanPlan
from .span_positions import SpanPositions

Streams = Sequence[Tensor]
"""The lattice's, then the radicals'; or one for both."""


class MectLayer(nn.Module):
    """Attention and feed-forward of each stream, each added to what the stream was.

    config: sizes and choices.
    """

    def __init__(self, config: MectConfig) -> None:
        super().__init__()
        self.crossed = config.streams == "cross"
        self.dropout = config.map_dropout
        # The I of eq. 7 is in place of a projection of keys.
        self.streams = nn.ModuleList(
            span_layer(config, key_projection=False, places=config.random_attention) for _ in range(config.n_streams)
        )

    def forward(self, rows: Streams, plan: SpanPlan, relative: Streams, streams: Streams | None = None) -> list[Tensor]:
        """rows: all rows, which are read. *Shape: [N + W, d]* each
        relative: each stream's relative positions. *Shape: [R, d]* each
        streams: the queries' spans: all characters, or None for all rows. *Shape: [n, d]* each
        Returns *Shape: [n, d]* each
        """
        streams = rows if streams is None else streams
        heads = [attention.heads(x, plan, *read) for attention, x, *read in self._read(streams, rows, relative)]
        # One pass for all streams: the products of one sentence are small, and calling for them costs as much.
        p = self.dropout if self.training else 0.0
        mixed = (
            attend_spans(SpanHeads.joined(heads), plan.groups(len(streams[0])), p).flatten(1).chunk(len(heads), dim=1)
        )
        return [layer.complete(x, own) for layer, x, own in zip(self._layers(), streams, mixed, strict=True)]

    def weights(self, rows: Streams, plan: SpanPlan, relative: Streams) -> list[list[Tensor]]:
        """The attention map of each sentence, for each stream that is read. *Shape: [h, L, L]* each"""
        return [attention.weights(x, plan, *read) for attention, x, *read in self._read(rows, rows, relative)]

    def _layers(self) -> list[TransformerLayer]:
        return [cast(TransformerLayer, layer) for layer in self.streams]

    def _read(
        self, streams: Streams, rows: Streams, relative: Streams
    ) -> Iterator[tuple[SpanAttention, Tensor, Tensor, Tensor, Tensor]]:
        """Each stream's attention, and what it is called with but for the plan."""
        layers = self._layers()
        own_input = [layer.attention_input(x) for layer, x in zip(layers, streams, strict=True)]
        read = [layer.attention_input(x) for layer, x in zip(layers, rows, strict=True)]
        attentions = [cast(SpanAttention, layer.attention) for layer in layers]
        # The queries of each stream come from the other.
        query_input = own_input[::-1] if self.crossed else own_input
        return zip(attentions, own_input, relative, read, query_input, strict=True)


class MectEncoder(nn.Module):
    """Each stream brought to the model's width, a stack of layers, the streams joined (eq. 14), and words cut off. So
    the queries of the last layer are the characters only.

    config: sizes and choices.
    char_width, component_width, word_width: widths of the input.
    """

    def __init__(self, config: MectConfig, char_width: int, component_width: int, word_width: int) -> None:
        super().__init__()
        self.config = config
        widths = [char_width + component_width] if config.n_streams == 1 else [char_width, component_width]
        self.inputs = nn.ModuleList(Linear(width, config.width) for width in widths)
        self.word_input = Linear(word_width, config.width)
        self.positions = nn.ModuleList(SpanPositions(width=config.width, distances=MECT_DISTANCES) for _ in widths)
        self.layers = nn.ModuleList(MectLayer(config) for _ in range(config.layers))
        normed = config.norm == "pre"
        self.output_norms = nn.ModuleList(nn.LayerNorm(config.width) if normed else nn.Identity() for _ in widths)
        self.fusion = Linear(2 * config.width, config.width) if config.n_streams == 2 else nn.Identity()

    def forward(self, chars: Tensor, components: Tensor, words: Tensor, lattice: Lattice) -> Tensor:
        """Encode the characters of all sentences, joined.

        chars: *Shape: [N, char_width]*
        components: the embedded components of each character. *Shape: [N, component_width]*
        words: the words of all sentences, joined. *Shape: [W, word_width]*
        lattice: which sentences these are, and where the words lie.
        Returns *Shape: [N, d]*
        """
        *inner, last = self.layers
        plan = self._plan(chars, components, words, lattice, word_queries=bool(inner))
        relative = [positions(plan) for positions in self.positions]
        streams = self._streams(chars, components)
        rows = self._rows(streams, words, plan)
        for layer in inner:
            rows = layer(rows, plan, relative)
        if inner:
            streams = [stream.index_select(0, plan.characters) for stream in rows]
        streams = last(rows, plan, relative, streams)
        normed = [norm(stream) for norm, stream in zip(self.output_norms, streams, strict=True)]
        return cast(Tensor, self.fusion(torch.cat(normed, dim=-1)))  # eq. 14

    def attention_weights(
        self, chars: Tensor, components: Tensor, words: Tensor, lattice: Lattice
    ) -> list[list[list[Tensor]]]:
        """The attention map of each sentence, for each layer and in it for each stream that is read, over characters,
        then words. *Shape: [h, L, L]* each"""
        plan = self._plan(chars, components, words, lattice, word_queries=True, rectangles=False)
        relative = [positions(plan) for positions in self.positions]
        rows = self._rows(self._streams(chars, components), words, plan)
        return each_layer(self.layers, MectLayer.weights, rows, plan, relative)

    def _plan(self, chars: Tensor, components: Tensor, words: Tensor, lattice: Lattice, **options: Any) -> SpanPlan:
        for given in (chars, components):
            lattice.check_rows(characters=len(given), words=len(words))
        return SpanPlan.of(lattice, device=chars.device, **options)

    def _streams(self, chars: Tensor, components: Tensor) -> list[Tensor]:
        """What each stream has for the characters. *Shape: [N, d]* each"""
        given = [torch.cat((chars, components), dim=-1)] if self.config.n_streams == 1 else [chars, components]
        return [project(part) for project, part in zip(self.inputs, given, strict=True)]

    def _rows(self, streams: Streams, words: Tensor, plan: SpanPlan) -> list[Tensor]:
        """What each stream has for all spans; the radicals' has zeros for words. *Shape: [N + W, d]* each"""
        lattice, *radicals = streams
        of_words = self.word_input(words)
        return [plan.arrange(lattice, of_words), *(plan.arrange(x, torch.zeros_like(of_words)) for x in radicals)]
