"""A transformer layer around any attention."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from .layers_torch import Dropout, Linear
from .transformer_config import StackConfig


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
    """Attention and feed-forward, each with a residual connection and a layer norm.

    There is no dropout after attention.

    attention (nn.Module): A module that gets the layer's arguments.
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
        """Return the output of the layer, from that of its attention.

        x (Tensor): The input of the layer. *Shape:* (tokens, width)
        mixed (Tensor): The output of attention. *Shape:* (tokens, width)
        RETURNS (Tensor): *Shape:* (tokens, width)
        """
        x = self.attention_norm(x + mixed)
        return self.feed_forward_norm(x + self.feed_forward(x))
