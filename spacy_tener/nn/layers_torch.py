"""Layers that architectures share: linear layers, dropout, embedding tables, convolutions, a transformer layer around
any attention; and a term of the loss."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn import Linear as Linear

from ..sequences import ranges
from ..types import FloatArray, IntArray
from .ragged_torch import Segments
from .stack_config import StackConfig

_DROPOUT_LEVELS = 1 << 16
"""Dropout probabilities are rounded to multiples of one in so many."""


def dropout(x: Tensor, p: float, *, training: bool) -> Tensor:
    """Zero each number with probability `p` and scale the others by `1 / (1 - p)`; in evaluation return `x` itself.

    One 64-bit draw decides four numbers, where torch's CPU kernel draws one for each: a training step of TENER takes 10
    to 20% less. Other devices keep torch's own kernel.
    """
    dropped = round(p * _DROPOUT_LEVELS)
    if not training or dropped == 0:
        return x
    if not x.is_cpu or dropped == _DROPOUT_LEVELS:
        return F.dropout(x, p)
    # Clamped arithmetic rather than a comparison: comparing and selecting are not vectorised.
    keep = random_int16(x).sub_(dropped - _DROPOUT_LEVELS // 2 - 1).clamp_(0.0, 1.0)
    return x * keep.mul_(_DROPOUT_LEVELS / (_DROPOUT_LEVELS - dropped))


def random_int16(like: Tensor) -> Tensor:
    """Draw integers from -2^15 .. 2^15 - 1 uniformly, in the dtype of `like`. One 64-bit draw gives four of them."""
    draws = torch.empty((like.numel() + 3) // 4, dtype=torch.int64, device=like.device).random_(-(1 << 63), None)
    return draws.view(torch.int16)[: like.numel()].view(like.shape).to(like.dtype)


class Dropout(nn.Module):
    """`dropout` as a module, active in training mode."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p, training=self.training)


class Projection(nn.Module):
    """Linear layer between two parts of a model that differ in width. It is called as an encoder is, with lengths.

    dropout (float): Dropout on its input.
    """

    def __init__(self, *, width_in: int, width_out: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.linear = Linear(width_in, width_out)

    def forward(self, tokens: Tensor, lengths: Sequence[int]) -> Tensor:
        """Transform the rows of all texts. *Shape:* (tokens, input width) to (tokens, width)"""
        return self.linear(self.dropout(tokens))


UNKNOWN_ROW = 0
"""The row of each table that all unknown strings share."""


class EmbeddingTables(nn.Module):
    """Embedding tables, whose rows are concatenated.

    Word dropout replaces a row by the unknown one at random, so that the unknown row is trained as well; dropout then
    acts on the joined embedding.

    rows (Mapping[str, int]): Height of each table, by name.
    widths (Mapping[str, int]): Width of each table, by name.
    word_dropout (Mapping[str, float]): Probability of the unknown row, by name.
    dropout (float): Dropout on the joined embedding.
    """

    def __init__(
        self,
        *,
        rows: Mapping[str, int],
        widths: Mapping[str, int],
        word_dropout: Mapping[str, float],
        dropout: float,
    ) -> None:
        super().__init__()
        # Kept beside the parameters, since a ParameterDict orders its keys by itself.
        self.names = tuple(rows)
        self.word_dropout = dict(word_dropout)
        self.dropout = Dropout(dropout)
        self.tables = nn.ParameterDict(
            {name: nn.Parameter(random_rows(height, widths[name])) for name, height in rows.items()}
        )

    def forward(self, *rows: Tensor) -> Tensor:
        """Embed the rows of each table, side by side. *Shape:* (tokens,) each to (tokens, sum of widths)"""
        parts = [
            F.embedding(ids, self.tables[name], sparse=True)
            for name, ids in zip(self.names, self._drop_words(rows), strict=True)
        ]
        return self.dropout(parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1))

    def _drop_words(self, rows: Sequence[Tensor]) -> Sequence[Tensor]:
        probabilities = [self.word_dropout[name] for name in self.names]
        if not self.training or not any(probabilities):
            return rows
        draws = torch.rand(len(rows), *rows[0].shape, device=rows[0].device)
        return [
            ids.masked_fill(draw < probability, UNKNOWN_ROW) if probability else ids
            for ids, draw, probability in zip(rows, draws, probabilities, strict=True)
        ]

    def grow(self, name: str, height: int) -> None:
        """Add random rows to a table, up to `height` rows in all."""
        table = self.tables[name]
        added = random_rows(height - len(table), table.shape[1]).to(table)
        grown = torch.cat((table.data, added))
        gradient = table.grad
        self.tables[name] = nn.Parameter(grown)
        if gradient is not None:
            # Gradients may be accumulated over several batches, and a table may grow between two of them.
            gradient = gradient.coalesce()
            self.tables[name].grad = torch.sparse_coo_tensor(
                gradient.indices(), gradient.values(), grown.shape, check_invariants=False
            )

    def fill(self, name: str, rows: IntArray, vectors: FloatArray) -> None:
        """Write pretrained vectors into rows of a table."""
        table = self.tables[name]
        table.data[torch.as_tensor(rows)] = torch.as_tensor(vectors).to(table)


def random_rows(height: int, width: int) -> Tensor:
    """Return rows uniform within ±sqrt(3 / width), of unit length on average, as in the papers."""
    bound = math.sqrt(3.0 / width)
    return torch.empty(height, width).uniform_(-bound, bound)


@dataclass(frozen=True)
class ConvolutionWindows:
    """Windows around each token of a batch. Made once per batch, for all convolutions of this size.

    size (int): Number of tokens in a window: odd, with the token itself in the middle.
    tokens (Segments): The token at each place of each window, in reading order. Beyond the sequence's ends it is the
        number of tokens.
    """

    size: int
    tokens: Segments

    @classmethod
    def of(cls, lengths: IntArray, size: int, *, device: torch.device | str = "cpu") -> ConvolutionWindows:
        """Plan the windows."""
        if size < 1 or size % 2 == 0:
            raise ValueError(f"A convolution's window must be an odd number of tokens; got {size!r}.")
        offsets, n_tokens = np.arange(size) - size // 2, int(lengths.sum())
        positions = ranges(np.zeros_like(lengths), lengths)[:, None] + offsets
        inside = (positions >= 0) & (positions < np.repeat(lengths, lengths)[:, None])
        tokens = np.where(inside, np.arange(n_tokens)[:, None] + offsets, n_tokens)
        return cls(size, Segments.of(tokens.ravel(), n_tokens + 1, device=device))

    def gather(self, x: Tensor) -> Tensor:
        """Return the tokens of each window, concatenated in reading order, with zeros beyond the sequence's ends.

        *Shape:* (tokens, width) to (tokens, window * width)
        """
        if self.size == 1:
            return x
        return self.tokens.gather(F.pad(x, (0, 0, 0, 1))).view(len(x), self.size * x.shape[1])


class Convolution(nn.Module):
    """Convolution with zero padding at both ends of each sequence.

    torch's own convolution needs padded sequences, and on a CPU compiles a kernel for every new shape. Here one gather
    concatenates the tokens of each window, and a linear layer multiplies them. On batches of sentences of mixed
    lengths, that takes about half the time of `nn.Conv1d`, forwards and backwards.

    Its weights are those of `nn.Conv1d` with the last two dimensions swapped and joined.

    width (int): Width of the input.
    out (int): Width of the output.
    size (int): Number of tokens in a window.
    """

    def __init__(self, width: int, out: int, *, size: int) -> None:
        super().__init__()
        self.size = size
        self.product = Linear(size * width, out)

    def forward(self, x: Tensor, windows: ConvolutionWindows) -> Tensor:
        """Transform the rows of all texts. *Shape:* (tokens, width) to (tokens, out)

        windows (ConvolutionWindows): Windows of `size` tokens.
        """
        return self.product(windows.gather(x))


class Penalty(nn.Module):
    """Weighted penalty term of the loss, a mean over the sequences of a batch, with a record of its value.

    weight (float): Weight of the term in the loss.
    """

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = weight
        self.batch_fraction = 1.0
        """The batch's share of the sequences over which the loss is averaged, which may be those of several batches."""
        self._recorded: Tensor | None = None

    def factor(self, n_sequences: int) -> float:
        """Return the factor in the loss of the penalty of one sequence."""
        return self.weight * self.batch_fraction / max(1, n_sequences)

    def record(self, value: Tensor) -> None:
        """Add a part of the term, whose gradient has been added, to the record."""
        value = value.detach()
        self._recorded = value if self._recorded is None else self._recorded + value

    def pop_value(self) -> float:
        """Return the sum of the values recorded since the last call."""
        recorded, self._recorded = self._recorded, None
        return 0.0 if recorded is None else float(recorded)


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
        self.feed_forward = FeedForward(width=config.width, hidden=config.hidden_width, dropout=config.dropout)
        self.attention_norm = nn.LayerNorm(config.width)
        self.feed_forward_norm = nn.LayerNorm(config.width)

    def forward(self, x: Tensor, *context: Any) -> Tensor:
        """Transform the rows of all texts. *Shape:* (tokens, width) to (tokens, width)"""
        return self.complete(x, self.attention(x, *context))

    def complete(self, x: Tensor, attended: Tensor) -> Tensor:
        """Return the output of the layer, from that of its attention.

        x (Tensor): The input of the layer. *Shape:* (tokens, width)
        attended (Tensor): The output of attention. *Shape:* (tokens, width)
        RETURNS (Tensor): *Shape:* (tokens, width)
        """
        x = self.attention_norm(x + attended)
        return self.feed_forward_norm(x + self.feed_forward(x))
