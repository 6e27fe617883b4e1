"""FLAT (Li et al., 2020): characters and the words of a lexicon in one sequence of spans, and a transformer over it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

from torch import Tensor, nn

from ..attention.transformer import TransformerLayer
from ..linear import Linear
from ..settings import check, check_dropouts, check_sizes
from .lattice import Lattice
from .span_attention import check_span_width, span_layer
from .span_plan import SpanPlan
from .span_positions import DISTANCES, SpanPositions, check_distances


@dataclass(frozen=True, kw_only=True)
class FlatConfig:
    """Sizes and choices of a FLAT encoder. The defaults are the released code's for Weibo, in the paper's form: with
    residuals, and with all four distances.

    width: Width d of the output, shared by the heads.
    layers: Number of layers.
    heads: Number of heads h; each is `width / heads` wide.
    ff_width: Width inside the feed-forward; None for three times the width.
    dropout: Inside the feed-forward.
    attention_dropout: On the attention map.
    distances: Which distances between two spans the attention knows, of "hh", "ht", "th" and "tt" (head to head, head
        to tail, ..); None for all, as the paper. The released code and MECT have "hh" and "tt".
    scaled: Divide attention scores by the root of the head's width `sqrt(d_k)`, which the paper does not.
    norm: Normalise after each sum ("post", as the paper), or before each part and once at the end ("pre"). (Where this
        sum should be, the released code adds a part's output to itself: that is not an option.)
    """

    width: int = 128
    layers: int = 1
    heads: int = 8
    ff_width: int | None = None
    dropout: float = 0.15
    attention_dropout: float = 0.0
    distances: list[Literal["hh", "ht", "th", "tt"]] | None = None
    scaled: bool = False
    norm: Literal["post", "pre"] = "post"

    def __post_init__(self) -> None:
        what = "FLAT's"
        check_sizes(what, self, ("width", "layers", "heads"), optional=("ff_width",))
        check_dropouts(what, self, ("dropout", "attention_dropout"))
        check(what, "norm", self.norm, self.norm in ("post", "pre"), "'post' or 'pre'")
        check_span_width(what, self.width, self.heads)
        check_distances(self.distances or DISTANCES)


class FlatEncoder(nn.Module):
    """Characters and words, each brought to the model's width, through a stack of layers; what comes out for words is
    cut off. So the queries of the last layer are the characters only.

    config: sizes and choices.
    char_width: width of the characters' input.
    word_width: width of the words' input.
    """

    def __init__(self, config: FlatConfig, *, char_width: int, word_width: int) -> None:
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
        plan = SpanPlan.of(lattice, word_queries=True, device=chars.device)
        relative = self.positions(plan)
        rows = plan.arrange(self.char_input(chars), self.word_input(words))
        maps = []
        for layer in self.layers:
            maps.append(cast(TransformerLayer, layer).weights(rows, plan, relative))
            rows = layer(rows, plan, relative)
        return maps
