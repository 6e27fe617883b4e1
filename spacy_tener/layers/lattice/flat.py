"""FLAT (Li et al., 2020): characters and the words of a lexicon in one sequence of spans, and a transformer over it."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from ...batching.lattice import Lattice
from ...settings import DISTANCES, FlatConfig
from ..attention.transformer import TransformerLayer, each_layer
from ..linear import Linear
from .span_attention import span_layer
from .span_plan import SpanPlan
from .span_positions import SpanPositions


class FlatEncoder(nn.Module):
    """Characters and words, each brought to the model's width, through a stack of layers; what comes out for words is
    cut off. So the queries of the last layer are the characters only.

    config: sizes and choices.
    char_width: width of the characters' input.
    word_width: width of the words' input.
    """

    def __init__(self, config: FlatConfig, char_width: int, word_width: int) -> None:
        super().__init__()
        self.config = config
        self.char_input = Linear(char_width, config.width)
        self.word_input = Linear(word_width, config.width)
        self.positions = SpanPositions(width=config.width, distances=config.distances or DISTANCES)
        self.layers = nn.ModuleList(span_layer(config, scaled=config.scaled) for _ in range(config.layers))
        self.output_norm = nn.LayerNorm(config.width) if config.norm == "pre" else nn.Identity()

    def forward(self, chars: Tensor, words: Tensor, lattice: Lattice) -> Tensor:
        """Encode the characters of all sentences, joined.

        chars: *Shape: [N, char_width]*
        words: the words of all sentences, joined. *Shape: [W, word_width]*
        lattice: which sentences these are, and where the words lie.
        Returns *Shape: [N, d]*
        """
        lattice.check_rows(characters=len(chars), words=len(words))
        *inner, last = [cast(TransformerLayer, layer) for layer in self.layers]
        plan = SpanPlan.of(lattice, word_queries=bool(inner), device=chars.device)
        relative = self.positions(plan)
        x = self.char_input(chars)
        rows = plan.arrange(x, self.word_input(words))
        for layer in inner:
            rows = layer(rows, plan, relative)
        x = rows.index_select(0, plan.characters) if inner else x
        x = last(x, plan, relative, last.attention_input(rows))
        return cast(Tensor, self.output_norm(x))

    def attention_weights(self, chars: Tensor, words: Tensor, lattice: Lattice) -> list[list[Tensor]]:
        """The attention map of each sentence in each layer, over characters, then words. *Shape: [h, L, L]* each"""
        lattice.check_rows(characters=len(chars), words=len(words))
        plan = SpanPlan.of(lattice, word_queries=True, device=chars.device, rectangles=False)
        relative = self.positions(plan)
        rows = plan.arrange(self.char_input(chars), self.word_input(words))
        return each_layer(self.layers, TransformerLayer.weights, rows, plan, relative)
