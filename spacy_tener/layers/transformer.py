"""Transformer layers, and the encoders of TENER and of the vanilla transformer."""

from __future__ import annotations

from typing import Any, TypeVar

import torch.nn.functional as F
from torch import Tensor, nn

from ..batching.sequences import Lengths
from ..settings import StackConfig, TransformerConfig
from .attention import AdaptedAttention, Attention, RelativePositions, VanillaAttention, interleave, sinusoids
from .dense import Dropout, Linear
from .ragged import Ragged

Result = TypeVar("Result")


def transformer_attention(config: TransformerConfig) -> Attention:
    """Return the attention of one layer."""
    scaled = not config.adapted if config.scaled is None else config.scaled
    sizes: Any = {"width": config.width, "n_heads": config.heads, "dropout": config.map_dropout, "scaled": scaled}
    if not config.adapted:
        return VanillaAttention(**sizes)
    return AdaptedAttention(**sizes)


class FeedForward(nn.Module):
    """`max(0, x W_1 + b_1) W_2 + b_2` (eq. 7) with dropout after each half."""

    def __init__(self, *, width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.widen = Linear(width, hidden)
        self.narrow = Linear(hidden, width)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Transform the rows of all texts. *Shape:* (tokens, width) to (tokens, width)"""
        hidden = F.relu(self.widen(x), inplace=True)
        return self.dropout(self.narrow(self.dropout(hidden)))


class TransformerLayer(nn.Module):
    """Attention and feed-forward, each with a residual connection and a layer norm. There is no dropout after
    attention.

    attention (nn.Module): a module that gets the layer's arguments.
    """

    def __init__(self, attention: nn.Module, config: StackConfig) -> None:
        super().__init__()
        self.attention = attention
        hidden = config.ff_width or config.usual_ff * config.width
        self.feed_forward = FeedForward(width=config.width, hidden=hidden, dropout=config.dropout)
        self.attention_norm = nn.LayerNorm(config.width)
        self.feed_forward_norm = nn.LayerNorm(config.width)

    def forward(self, x: Tensor, *context: Any) -> Tensor:
        """Transform the rows of all texts. *Shape:* (tokens, width) to (tokens, width)"""
        return self.complete(x, self.attention(x, *context))

    def complete(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Return the output of the layer. x: its input; mixed: that of attention. *Shape:* (tokens, width) each"""
        x = self.attention_norm(x + mixed)
        return self.feed_forward_norm(x + self.feed_forward(x))


class TransformerEncoder(nn.Module):
    """A stack of layers over the sequences of a flat batch.

    config (TransformerConfig): sizes and choices.
    input_width (int | None): width of the input, for a linear layer to the model's width; None for no such layer.
    """

    def __init__(self, config: TransformerConfig, *, input_width: int | None = None) -> None:
        super().__init__()
        self.config = config
        self.input = nn.Identity() if input_width is None else Linear(input_width, config.width)
        self.layers = nn.ModuleList(
            TransformerLayer(transformer_attention(config), config) for _ in range(config.layers)
        )

    def forward(self, x: Tensor, lengths: Lengths) -> Tensor:
        """Encode the tokens of all sequences, joined; `lengths` says how many each sequence has.

        x (Tensor): *Shape:* (tokens, input width). Returns *Shape:* (tokens, width)
        """
        ragged = Ragged.of(lengths, heads=self.config.heads, device=x.device, n_tokens=len(x))
        x, relative = self.input(x), []
        if self.config.adapted:
            relative = [RelativePositions.of(ragged, self.config.head_width, x)]
        else:
            positions = interleave(*sinusoids(ragged.longest, self.config.width, x))
            x = x + positions.index_select(0, ragged.positions)
        for layer in self.layers:
            x = layer(x, ragged, *relative)
        return x
