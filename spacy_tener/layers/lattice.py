"""Lattice encoders of characters and lexicon words: FLAT (Li et al., 2020), FLAT-ATSSA (Hu et al.), MECT (Wu et al.,
2021).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from ..batching.lattice import Lattice
from ..batching.span_plan import AttentionPlan
from ..settings import AtssaConfig, FlatConfig, MectConfig
from .attention import AdaptedAttention, Attention, RelativePositions
from .dense import Linear
from .fusion import CoverSegments, WordFusion
from .ragged import Ragged, Segments
from .selection import Selection, SelectiveAttention
from .span_plan import Queries, TensorPlan, arrange, plan_spans
from .spans import SpanAttention, SpanHeads, SpanPositions, attend_spans, span_layer
from .transformer import TransformerLayer, each_layer


def context_attention(config: AtssaConfig) -> Attention:
    """Return the attention of one context layer."""
    sizes: Any = {"width": config.width, "n_heads": config.heads, "dropout": config.map_dropout}
    if not config.selects:
        return AdaptedAttention(**sizes, key_projection=True)
    by: Literal["threshold", "top_k"] = "top_k" if config.selection == "top_k" else "threshold"
    selection = Selection(by=by, k=config.k, alpha=config.alpha, tau=config.tau)
    adaptive = config.threshold == "adaptive"
    return SelectiveAttention(**sizes, selection=selection, adaptive=adaptive, penalty=config.penalty)


class AtssaEncoder(nn.Module):
    """FLAT-ATSSA: word fusion, a linear layer over `[x ; x^w]`, and context layers over the characters.

    config: sizes and choices.
    char_width: width of the characters.
    word_width: width of the words.
    """

    def __init__(self, config: AtssaConfig, char_width: int, word_width: int) -> None:
        super().__init__()
        self.config = config
        self.fusion = WordFusion(
            char_width=char_width,
            word_width=word_width,
            width=config.width,
            n_heads=config.heads,
            dropout=config.map_dropout,
        )
        self.input = Linear(char_width + config.width, config.width)
        self.layers = nn.ModuleList(TransformerLayer(context_attention(config), config) for _ in range(config.layers))

    def forward(self, chars: Tensor, words: Tensor, lattice: Lattice) -> Tensor:
        """Encode the characters of all sentences, joined.

        chars: *Shape: [N, char_width]*; words: *Shape: [W, word_width]*. Returns *Shape: [N, d]*
        """
        x, *context = self._read(chars, words, lattice)
        for layer in self.layers:
            x = layer(x, *context)
        return x

    def attention_weights(self, chars: Tensor, words: Tensor, lattice: Lattice) -> list[list[Tensor]]:
        """Return the attention map of each sentence in each layer, in evaluation. *Shape: [h, length, length]* each"""
        return each_layer(self.layers, TransformerLayer.weights, *self._read(chars, words, lattice))

    def word_weights(self, chars: Tensor, words: Tensor, lattice: Lattice) -> list[Tensor]:
        """Return the attention of each character to each word of its sentence, 0 for words that do not cover it.

        *Shape: [h, length, words]* each
        """
        lattice.check_rows(characters=len(chars), words=len(words))
        covers = CoverSegments(lattice, device=chars.device)
        weights = chars.new_zeros(self.config.heads, len(chars), len(words))
        weights[:, covers.characters.index, covers.words.index] = self.fusion.weights(chars, words, covers).T
        rows, columns = lattice.lengths.tolist(), lattice.counts.tolist()
        return [part.split(columns, dim=2)[i] for i, part in enumerate(weights.split(rows, dim=1))]

    def _read(self, chars: Tensor, words: Tensor, lattice: Lattice) -> tuple[Any, ...]:
        """Return the input of the first layer, and the other arguments of all layers."""
        lattice.check_rows(characters=len(chars), words=len(words))
        fused = self.fusion(chars, words, CoverSegments(lattice, device=chars.device))
        x = self.input(torch.cat((chars, fused), dim=-1))
        ragged = Ragged.of(lattice.lengths, heads=self.config.heads, device=x.device)
        relative = RelativePositions.of(ragged, self.config.head_width, x)
        if not self.config.selects:
            return x, ragged, relative
        return x, ragged, relative, Segments.of_sequences(lattice.lengths, device=x.device)


Streams = Sequence[Tensor]
"""Arrays of the stream of characters and words, then of that of radicals; or of a single stream."""


class SpanLayer(nn.Module):
    """Transformer layers, one for each stream. Where streams are crossed, the queries of each are computed from the
    other.

    config: sizes and choices.
    """

    def __init__(self, config: FlatConfig | MectConfig) -> None:
        super().__init__()
        self.crossed = config.crossed
        self.dropout = config.map_dropout
        self.streams = nn.ModuleList(span_layer(config) for _ in range(config.n_streams))

    def forward(
        self, rows: Streams, plan: AttentionPlan[Queries], relative: Streams, streams: Streams | None = None
    ) -> list[Tensor]:
        """Run attention and feed-forward of each stream.

        rows: all spans, as keys and values. *Shape: [N + W, d]* each
        relative: each stream's relative positions. *Shape: [R, d]* each
        streams: the spans that are queries: all characters, or None for all spans. *Shape: [n, d]* each
        Returns *Shape: [n, d]* each
        """
        streams = rows if streams is None else streams
        heads = [attention.heads(plan, *given) for attention, *given in self._read(streams, rows, relative)]
        # One pass for all streams: the products of a sentence are so small that calls take as long.
        p = self.dropout if self.training else 0.0
        mixed = attend_spans(SpanHeads.joined(heads), plan.groups, p).flatten(1).chunk(len(heads), dim=1)
        return [layer.complete(x, own) for layer, x, own in zip(self._layers(), streams, mixed, strict=True)]

    def weights(self, rows: Streams, plan: AttentionPlan[Queries], relative: Streams) -> list[list[Tensor]]:
        """Return the attention map of each sentence, for each stream of keys. *Shape: [h, L, L]* each"""
        return [attention.weights(plan, *given) for attention, *given in self._read(rows, rows, relative)]

    def _layers(self) -> list[TransformerLayer]:
        return [cast(TransformerLayer, layer) for layer in self.streams]

    def _read(
        self, streams: Streams, rows: Streams, relative: Streams
    ) -> Iterator[tuple[SpanAttention, Tensor, Tensor, Tensor]]:
        """Return each stream's attention, and its arguments other than the plan."""
        attentions = [cast(SpanAttention, layer.attention) for layer in self._layers()]
        queries = streams[::-1] if self.crossed else streams
        return zip(attentions, queries, rows, relative, strict=True)


class SpanEncoder(nn.Module):
    """FLAT and MECT: a linear layer for each stream and one for words, a stack of layers over both, and the fusion of
    MECT's two streams (eq. 14). It returns the outputs of characters, so only these are queries in the last layer.

    config: sizes and choices.
    widths: widths of the input: characters, in MECT their radicals, words.
    """

    def __init__(self, config: FlatConfig | MectConfig, *widths: int) -> None:
        super().__init__()
        self.config = config
        *given, word_width = widths
        self.inputs = nn.ModuleList(
            Linear(width, config.width) for width in ([sum(given)] if config.n_streams == 1 else given)
        )
        self.word_input = Linear(word_width, config.width)
        self.positions = nn.ModuleList(
            SpanPositions(width=config.width, distances=config.used_distances) for _ in self.inputs
        )
        self.layers = nn.ModuleList(SpanLayer(config) for _ in range(config.layers))
        self.fusion = Linear(2 * config.width, config.width) if config.n_streams == 2 else nn.Identity()

    def forward(self, *inputs: Any) -> Tensor:
        """Encode the characters of all sentences, joined.

        inputs: the characters and, in MECT, their embedded radicals, *Shape: [N, width]* each; the words of all
            sentences, joined, *Shape: [W, word_width]*; the `Lattice`.
        Returns *Shape: [N, d]*
        """
        *inner, last = self.layers
        streams, words, plan = self._read(*inputs, word_queries=bool(inner))
        relative = [positions(plan) for positions in self.positions]
        rows = self._rows(streams, words, plan)
        for layer in inner:
            rows = layer(rows, plan.by_all, relative)
        if inner:
            streams = [stream.index_select(0, plan.characters) for stream in rows]
        streams = last(rows, plan.by_characters, relative, streams)
        return self.fusion(torch.cat(list(streams), dim=-1) if len(streams) > 1 else streams[0])  # eq. 14

    def attention_weights(self, *inputs: Any) -> list[list[list[Tensor]]]:
        """Return the attention map of each sentence, for each layer and each stream of keys, over characters, then
        words. *Shape: [h, L, L]* each
        """
        streams, words, plan = self._read(*inputs, word_queries=True, rectangles=False)
        relative = [positions(plan) for positions in self.positions]
        return each_layer(self.layers, SpanLayer.weights, self._rows(streams, words, plan), plan.by_all, relative)

    def _read(self, *inputs: Any, **options: Any) -> tuple[list[Tensor], Tensor, TensorPlan]:
        """Return each stream's rows for the characters, *Shape: [N, d]*, the rows of the words, [W, d], and the plan.

        options: of `plan_spans`.
        """
        *given, words, lattice = inputs
        for part in given:
            lattice.check_rows(characters=len(part), words=len(words))
        if self.config.n_streams == 1:
            given = [torch.cat(given, dim=-1)] if len(given) > 1 else given
        streams = [project(part) for project, part in zip(self.inputs, given, strict=True)]
        return streams, self.word_input(words), plan_spans(lattice, device=words.device, **options)

    def _rows(self, streams: Streams, words: Tensor, plan: TensorPlan) -> list[Tensor]:
        """Return each stream's rows for all spans; that of radicals has zeros for words. *Shape: [N + W, d]* each"""
        lattice, *radicals = streams
        return [arrange(plan, lattice, words), *(arrange(plan, x, torch.zeros_like(words)) for x in radicals)]
