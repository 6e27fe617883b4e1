"""FLAT (Li et al., 2020): characters and the words of a lexicon in one sequence of spans, and a transformer over it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

from torch import Tensor, nn

from .lattice import Lattice
from .linear import Linear
from .span_attention import SpanAttention
from .span_plan import SpanPlan
from .span_positions import DISTANCES, SpanPositions, check_distances
from .transformer import TransformerLayer


@dataclass(frozen=True, kw_only=True)
class FlatConfig:
    """Sizes and choices of a FLAT encoder. The defaults are the released code's for Weibo, in the paper's form.

    width: d, the model's width, shared by the heads.
    n_layers: how many layers.
    n_heads: h; each head is `width / n_heads` wide.
    ff_width: width inside the feed-forward; None for three times the model's.
    dropout: after the feed-forward's ReLU and after its second product.
    attention_dropout: on the attention map.
    distances: which distances between two spans are known, of `hh`, `ht`, `th`, `tt` (head to head, head to tail, ..).
        The paper has all, the released code and MECT have `hh` and `tt`.
    scaled: divide scores by `sqrt(d_k)`, which the paper does not.
    norm: "post" normalises after each sum, as the paper does; "pre" before each part, and once at the end. (Where this
        sum should be, the released code adds a part's output to itself: that is not an option.)
    """

    width: int = 128
    n_layers: int = 1
    n_heads: int = 8
    ff_width: int | None = None
    dropout: float = 0.15
    attention_dropout: float = 0.0
    distances: tuple[str, ...] = DISTANCES
    scaled: bool = False
    norm: Literal["post", "pre"] = "post"

    def __post_init__(self) -> None:
        for name in ("width", "n_layers", "n_heads", "ff_width"):
            _check(name, getattr(self, name), getattr(self, name) is None or getattr(self, name) >= 1, "at least 1")
        for name in ("dropout", "attention_dropout"):
            _check(name, getattr(self, name), 0.0 <= getattr(self, name) < 1.0, "at least 0 and below 1")
        _check("norm", self.norm, self.norm in ("post", "pre"), "'post' or 'pre'")
        _check("width", self.width, self.width % self.n_heads == 0, f"a multiple of n_heads, which is {self.n_heads}")
        _check("width", self.width, self.width % 2 == 0, "even, since positions are pairs of sine and cosine")
        check_distances(self.distances)


def _check(name: str, value: object, valid: bool, needed: str) -> None:
    if not valid:
        raise ValueError(f"FLAT's {name} must be {needed}; got {value!r}.")


class FlatEncoder(nn.Module):
    """Characters and words, each brought to the model's width, through a stack of layers; what comes out for words is
    cut off. So the last layer asks for the characters only.

    config: sizes and choices.
    char_width: width of the characters' input.
    word_width: width of the words' input.
    """

    def __init__(self, config: FlatConfig, *, char_width: int, word_width: int) -> None:
        super().__init__()
        self.config = config
        self.char_input = Linear(char_width, config.width)
        self.word_input = Linear(word_width, config.width)
        self.positions = SpanPositions(width=config.width, distances=config.distances)
        self.layers = nn.ModuleList(_layer(config) for _ in range(config.n_layers))
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
        plan = SpanPlan.of(lattice, words_ask=bool(inner), device=chars.device)
        relative = self.positions(plan)
        x = self.char_input(chars)
        rows = plan.arrange(x, self.word_input(words))
        for layer in inner:
            rows = layer(rows, plan, relative)
        x = rows.index_select(0, plan.characters) if inner else x
        x = last(x, plan, relative, last.as_read(rows))
        return cast(Tensor, self.output_norm(x))

    def attention_weights(self, chars: Tensor, words: Tensor, lattice: Lattice) -> list[list[Tensor]]:
        """The attention map of each sentence in each layer, over characters, then words. *Shape: [h, L, L]* each"""
        lattice.check_rows(characters=len(chars), words=len(words))
        plan = SpanPlan.of(lattice, words_ask=True, device=chars.device)
        relative = self.positions(plan)
        rows = plan.arrange(self.char_input(chars), self.word_input(words))
        maps = []
        for layer in self.layers:
            maps.append(cast(TransformerLayer, layer).weights(rows, plan, relative))
            rows = layer(rows, plan, relative)
        return maps


def _layer(config: FlatConfig) -> TransformerLayer:
    attention = SpanAttention(
        width=config.width, n_heads=config.n_heads, dropout=config.attention_dropout, scaled=config.scaled
    )
    hidden = config.ff_width or 3 * config.width
    return TransformerLayer(attention, width=config.width, hidden=hidden, dropout=config.dropout, norm=config.norm)
