"""Lattice encoders of characters and lexicon words: FLAT (Li et al., 2020), FLAT-ATSSA (Hu et al.), MECT (Wu et al.,
2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from ..batching.lattice import Lattice
from ..batching.span_plan import plan_spans
from ..settings import AtssaConfig, FlatConfig, MectConfig
from .attention import AdaptedAttention, Attention, RelativePositions
from .dense import Linear
from .devices import on_device
from .fusion import CoverSegments, WordFusion
from .ragged import Ragged, Segments
from .selection import Selection, SelectiveAttention
from .span_groups import PaddedGroups
from .spans import SpanAttention, SpanHeads, SpanPositions, attend_spans, span_layer
from .transformer import TransformerLayer


def context_attention(config: AtssaConfig) -> Attention:
    """Return the attention of one context layer."""
    sizes: Any = {"width": config.width, "n_heads": config.heads, "dropout": config.map_dropout}
    if not config.selects:
        return AdaptedAttention(**sizes, key_projection=True)
    selection = Selection(k=config.k, alpha=config.alpha, tau=config.tau)
    return SelectiveAttention(**sizes, selection=selection, penalty=config.penalty)


class AtssaEncoder(nn.Module):
    """FLAT-ATSSA: word fusion, a linear layer over `[x ; x^w]`, and context layers over the characters.

    config (AtssaConfig): sizes and choices.
    char_width (int): width of the characters.
    word_width (int): width of the words.
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

        chars (Tensor): *Shape:* (characters, character width); words: *Shape:* (words, word width). Returns
            *Shape:* (characters, width)
        """
        lattice.check_rows(characters=len(chars), words=len(words))
        fused = self.fusion(chars, words, CoverSegments(lattice, device=chars.device))
        x = self.input(torch.cat((chars, fused), dim=-1))
        ragged = Ragged.of(lattice.lengths, heads=self.config.heads, device=x.device)
        context: tuple[Any, ...] = ragged, RelativePositions.of(ragged, self.config.head_width, x)
        if self.config.selects:
            context += (Segments.of_sequences(lattice.lengths, device=x.device),)
        for layer in self.layers:
            x = layer(x, *context)
        return x


class SpanLayer(nn.Module):
    """Transformer layers, one for each stream. The queries of MECT's two streams are computed from the other one.

    config (FlatConfig | MectConfig): Sizes and choices.
    """

    def __init__(self, config: FlatConfig | MectConfig) -> None:
        super().__init__()
        self.dropout = config.map_dropout
        self.streams = nn.ModuleList(span_layer(config) for _ in range(config.n_streams))

    def forward(
        self, queries: Sequence[Tensor], rows: Sequence[Tensor], relative: Sequence[Tensor], groups: PaddedGroups
    ) -> list[Tensor]:
        """Run attention and feed-forward of each stream.

        queries (Sequence[Tensor]): The spans that are queries. *Shape:* (queries, width) each
        rows (Sequence[Tensor]): All spans, as keys and values. *Shape:* (spans, width) each
        relative (Sequence[Tensor]): Relative positions. *Shape:* (relative positions, width) each
        groups (PaddedGroups): The groups of the queries.
        RETURNS (List[Tensor]): *Shape:* (queries, width) each
        """
        heads = self.heads(queries, rows, relative, groups)
        p = self.dropout if self.training else 0.0
        mixed = attend_spans(SpanHeads.join(heads), groups, p).flatten(1).chunk(len(heads), dim=1)
        streams = zip(self.streams, queries, mixed, strict=True)
        return [cast(TransformerLayer, layer).complete(x, values) for layer, x, values in streams]

    def heads(
        self, queries: Sequence[Tensor], rows: Sequence[Tensor], relative: Sequence[Tensor], groups: PaddedGroups
    ) -> list[SpanHeads]:
        """Return the queries, keys and values of each stream, from the inputs of `forward`."""
        return [
            cast(SpanAttention, layer.attention).heads(source, spans, positions, groups)
            for layer, source, spans, positions in zip(self.streams, queries[::-1], rows, relative, strict=True)
        ]


class SpanEncoder(nn.Module):
    """FLAT and MECT: a linear layer for each stream and one for words, a stack of layers over both, and the fusion of
    MECT's two streams (eq. 14). It returns the outputs of characters, so only these are queries in the last layer.

    config (FlatConfig | MectConfig): sizes and choices.
    widths: widths of the input: characters, in MECT their radicals, words.
    """

    def __init__(self, config: FlatConfig | MectConfig, *widths: int) -> None:
        super().__init__()
        self.config = config
        *input_widths, word_width = widths
        self.inputs = nn.ModuleList(Linear(width, config.width) for width in input_widths)
        self.word_input = Linear(word_width, config.width)
        self.positions = nn.ModuleList(
            SpanPositions(width=config.width, distances=config.used_distances) for _ in self.inputs
        )
        self.layers = nn.ModuleList(SpanLayer(config) for _ in range(config.layers))
        self.fusion = Linear(2 * config.width, config.width) if config.n_streams == 2 else nn.Identity()

    def forward(self, *inputs: Any) -> Tensor:
        """Encode the characters of all sentences, joined.

        inputs (Any): the characters and, in MECT, their embedded radicals, *Shape:* (characters, width) each; the
            words of all sentences, joined, *Shape:* (words, word width); the `Lattice`.
        Returns *Shape:* (characters, width)
        """
        *characters, words, lattice = inputs
        for rows in characters:
            lattice.check_rows(characters=len(rows), words=len(words))
        *inner, last = self.layers
        plan, device = plan_spans(lattice, word_queries=bool(inner)), words.device
        distances = on_device(plan.distances, device)
        relative = [positions(distances, plan.longest) for positions in self.positions]
        streams = [project(rows) for project, rows in zip(self.inputs, characters, strict=True)]
        of_words = self.word_input(words)
        # The radicals' stream has zeros for words.
        words_of_streams = [of_words, *(torch.zeros_like(of_words) for _ in streams[1:])]
        rows = [torch.cat(pair) for pair in zip(streams, words_of_streams, strict=True)]
        if inner:
            groups = PaddedGroups.of(plan.character_groups + plan.word_groups, len(distances), device)
            for layer in inner:
                rows = layer(rows, rows, relative, groups)
        groups = PaddedGroups.of(plan.character_groups, len(distances), device)
        streams = last([x[: lattice.n_characters] for x in rows], rows, relative, groups)
        return self.fusion(torch.cat(streams, dim=-1) if len(streams) > 1 else streams[0])  # eq. 14
