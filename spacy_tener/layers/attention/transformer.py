"""The transformer encoder of TENER and, for comparison, the vanilla one: a stack of attention and feed-forward."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar, cast

import torch.nn.functional as F
from torch import Tensor, nn

from ..dropout import Dropout
from ..linear import Linear
from ..ragged import Ragged
from ..sequences import Lengths
from ..settings import Probability, Settings, Size, check
from .adapted import AdaptedAttention, RelativePositions
from .dot_product import Attention, VanillaAttention
from .positions import interleave, sinusoids

Seen = TypeVar("Seen")


@dataclass(frozen=True, kw_only=True)
class StackConfig(Settings):
    """What all encoders that are stacks of transformer layers have in common.

    width: Width d of the output, shared by the heads.
    layers: Number of layers.
    heads: Number of heads h; each is `width / heads` wide.
    dropout: Inside the feed-forward.
    attention_dropout: On the attention map; None for the same as `dropout`.
    norm: Normalise after each sum ("post", as the papers), or before each part and once at the end ("pre").
    """

    width: Size = 128
    layers: Size = 1
    heads: Size = 8
    ff_width: Size | None = None
    dropout: Probability = 0.15
    attention_dropout: Probability | None = 0.0
    norm: Literal["post", "pre"] = "post"

    usual_ff: ClassVar[int] = 3
    """How many times as wide as the model the feed-forward is, where `ff_width` is None."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check("width", self.width, self.width % self.heads == 0, f"a multiple of heads, which is {self.heads}")
        paired, needed = self.width, "even"
        if self.positions_by_head:
            paired, needed = self.head_width, f"an even number times heads, which is {self.heads}"
        check("width", self.width, paired % 2 == 0, f"{needed}, since positions are pairs of sine and cosine")

    @property
    def positions_by_head(self) -> bool:
        """Whether a position is as wide as a head, or as the model."""
        return False

    @property
    def head_width(self) -> int:
        return self.width // self.heads

    @property
    def map_dropout(self) -> float:
        """Dropout on the attention map."""
        return self.dropout if self.attention_dropout is None else self.attention_dropout


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(StackConfig):
    """Sizes and choices of a transformer encoder. The defaults are TENER's for Weibo.

    width: Width d of the output, shared by the heads. A linear layer brings the input to it.
    ff_width: Width inside the feed-forward; None for twice the width.
    dropout: Inside the feed-forward, and on the attention map unless `attention_dropout` says otherwise.
    adapted: TENER's attention; else the vanilla one, with sinusoidal positions added to its input.
    scaled: Divide attention scores by the root of the head's width `sqrt(d_k)`; None for the papers' choice: vanilla
        attention is scaled, adapted is not.
    key_projection: Give the keys of adapted attention a projection, as the released code does and the paper does not.
    key_position: Give adapted attention the released code's third term, `k_j . r_{t-j}`.
    """

    heads: Size = 4
    attention_dropout: Probability | None = None
    adapted: bool = True
    scaled: bool | None = None
    key_projection: bool = False
    key_position: bool = False

    usual_ff = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("key_projection", "key_position"):
            value = getattr(self, name)
            check(name, value, self.adapted or not value, "False with vanilla attention, which has no use for it")

    @property
    def positions_by_head(self) -> bool:
        return self.adapted


def transformer_attention(config: TransformerConfig) -> Attention:
    """The attention of one layer."""
    scaled = not config.adapted if config.scaled is None else config.scaled
    sizes: Any = {"width": config.width, "n_heads": config.heads, "dropout": config.map_dropout, "scaled": scaled}
    if not config.adapted:
        return VanillaAttention(**sizes)
    return AdaptedAttention(**sizes, key_projection=config.key_projection, key_position=config.key_position)


class FeedForward(nn.Module):
    """`max(0, x W_1 + b_1) W_2 + b_2` (eq. 7) with dropout after each half."""

    def __init__(self, *, width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.widen = Linear(width, hidden)
        self.narrow = Linear(hidden, width)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """x: *Shape: [N, d]*. Returns *Shape: [N, d]*"""
        hidden = F.relu(self.widen(x), inplace=True)
        mixed: Tensor = self.dropout(self.narrow(self.dropout(hidden)))
        return mixed


class TransformerLayer(nn.Module):
    """Attention and feed-forward, each added to what it read. Attention's output itself has no dropout.

    attention: any kind with `weights`; both are called with the tokens and whatever the layer is called with beside
        them.
    """

    def __init__(self, attention: nn.Module, config: StackConfig) -> None:
        super().__init__()
        self.pre_norm = config.norm == "pre"
        self.attention = attention
        hidden = config.ff_width or config.usual_ff * config.width
        self.feed_forward = FeedForward(width=config.width, hidden=hidden, dropout=config.dropout)
        self.attention_norm = nn.LayerNorm(config.width)
        self.feed_forward_norm = nn.LayerNorm(config.width)

    def forward(self, x: Tensor, *context: Any) -> Tensor:
        """x: *Shape: [N, d]*. Returns *Shape: [N, d]*"""
        return self.complete(x, self.attention(self.attention_input(x), *context))

    def attention_input(self, x: Tensor) -> Tensor:
        """The layer's input as its attention reads it. x: *Shape: [N, d]*. Returns *Shape: [N, d]*"""
        return cast(Tensor, self.attention_norm(x)) if self.pre_norm else x

    def complete(self, x: Tensor, mixed: Tensor) -> Tensor:
        """What follows attention. x: the layer's input; mixed: what attention made of it. *Shape: [N, d]* all"""
        if self.pre_norm:
            x = x + mixed
            return cast(Tensor, x + self.feed_forward(self.feed_forward_norm(x)))
        x = self.attention_norm(x + mixed)
        return cast(Tensor, self.feed_forward_norm(x + self.feed_forward(x)))

    def weights(self, x: Tensor, *context: Any) -> list[Tensor]:
        """The attention map of each sequence for this layer's input. *Shape: [h, length, length]* each"""
        maps: list[Tensor] = cast(Any, self.attention).weights(self.attention_input(x), *context)
        return maps


def each_layer(layers: Iterable[nn.Module], look: Callable[..., Seen], x: Any, *context: Any) -> list[Seen]:
    """What `look` sees in each layer of a stack, called with the layer and what the layer is called with."""
    seen = []
    for layer in layers:
        seen.append(look(layer, x, *context))
        x = layer(x, *context)
    return seen


class TransformerEncoder(nn.Module):
    """A stack of layers over the sequences of a flat batch.

    config: sizes and choices.
    input_width: width of the input; a linear layer brings it to the model's width. None where it has that width and
        no such layer is wanted.
    """

    def __init__(self, config: TransformerConfig, *, input_width: int | None = None) -> None:
        super().__init__()
        self.config = config
        self.input = nn.Identity() if input_width is None else Linear(input_width, config.width)
        self.layers = nn.ModuleList(
            TransformerLayer(transformer_attention(config), config) for _ in range(config.layers)
        )
        self.output_norm = nn.LayerNorm(config.width) if config.norm == "pre" else nn.Identity()

    def forward(self, x: Tensor, lengths: Lengths) -> Tensor:
        """Encode the tokens of all sequences, joined; `lengths` says how many each sequence has.

        x: *Shape: [N, input_width]*. Returns *Shape: [N, d]*
        """
        x, *context = self._read(x, lengths)
        for layer in self.layers:
            x = layer(x, *context)
        return cast(Tensor, self.output_norm(x))

    def attention_weights(self, x: Tensor, lengths: Lengths) -> list[list[Tensor]]:
        """The attention map of each sequence in each layer. *Shape: [h, length, length]* each"""
        return each_layer(self.layers, TransformerLayer.weights, *self._read(x, lengths))

    def _read(self, x: Tensor, lengths: Lengths) -> tuple[Any, ...]:
        """The first layer's input, and what each layer needs to know beside it."""
        ragged = Ragged.of(lengths, heads=self.config.heads, device=x.device, n_tokens=len(x))
        x = self.input(x)
        if self.config.adapted:
            return x, ragged, RelativePositions.of(ragged, self.config.head_width, x)
        table = interleave(*sinusoids(ragged.longest, self.config.width, x))
        return x + table.index_select(0, ragged.positions), ragged
