"""Layers that architectures share, in torch: dropout, embedding tables, convolutions and a transformer layer.

They work on the concatenated tokens without padding. `layers_numpy` has the NumPy implementations.
"""

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

# Dropout rates are rounded to multiples of 1 / 65,536, the resolution of 16 random bits.
_DROPOUT_LEVELS = 1 << 16


def dropout(x: Tensor, p: float, *, training: bool) -> Tensor:
    """Set each number to 0 with probability `p`, and multiply other numbers by `1 / (1 - p)`. Return `x` itself in
    evaluation.

    On a CPU, one 64-bit random number is used for four decisions, while torch draws a random number for each. A
    training step of TENER takes 10 to 20 % less time with it. Other devices use torch's own kernel.

    x (Tensor): The numbers.
    p (float): The dropout rate.
    training (bool): Whether dropout is active.
    """
    dropped = round(p * _DROPOUT_LEVELS)
    if not training or dropped == 0:
        return x
    if not x.is_cpu or dropped == _DROPOUT_LEVELS:
        return F.dropout(x, p)
    # The mask is 1 for the numbers from `dropped - 2^15` on, and 0 for smaller ones. It is computed by clamping, since
    # torch does not vectorize comparisons and selections on a CPU.
    keep = random_int16(x).sub_(dropped - _DROPOUT_LEVELS // 2 - 1).clamp_(0.0, 1.0)
    return x * keep.mul_(_DROPOUT_LEVELS / (_DROPOUT_LEVELS - dropped))


def random_int16(like: Tensor) -> Tensor:
    """Draw integers from -2^15 to 2^15 - 1 uniformly, in the shape and dtype of `like`. A 64-bit random number gives
    four.
    """
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
    """A linear layer with the arguments of an encoder: the tokens, and the sequence lengths.

    width_in (int): Input width.
    width_out (int): Output width.
    dropout (float): Dropout rate of the input.
    """

    def __init__(self, *, width_in: int, width_out: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.linear = Linear(width_in, width_out)

    def forward(self, tokens: Tensor, lengths: Sequence[int]) -> Tensor:
        """Compute the layer. *Shape:* (tokens, input width) to (tokens, width)"""
        return self.linear(self.dropout(tokens))


# Index of the row in each embedding table that all unknown strings share.
UNKNOWN_ROW = 0


class EmbeddingTables(nn.Module):
    """Embedding tables whose rows are concatenated for each token.

    Word dropout replaces rows by the row for unknown strings at random, so that this row is trained. Dropout follows on
    the concatenated rows. Gradients of tables are sparse, so that the time of a training step doesn't depend on the
    size of the vocabulary.

    rows (Mapping[str, int]): Number of rows of each table, by name.
    widths (Mapping[str, int]): Width of each table, by name.
    word_dropout (Mapping[str, float]): Word dropout rate of each table, by name.
    dropout (float): Dropout rate of the concatenated rows.
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
        # The order of the arguments of `forward`. A ParameterDict doesn't keep the order of its keys.
        self.names = tuple(rows)
        self.word_dropout = dict(word_dropout)
        self.dropout = Dropout(dropout)
        self.tables = nn.ParameterDict(
            {name: nn.Parameter(random_rows(height, widths[name])) for name, height in rows.items()}
        )

    def forward(self, *rows: Tensor) -> Tensor:
        """Look up the rows of each table, and concatenate them. *Shape:* (tokens,) each to (tokens, sum of widths)"""
        parts = [
            F.embedding(ids, self.tables[name], sparse=True)
            for name, ids in zip(self.names, self._drop_words(rows), strict=True)
        ]
        return self.dropout(parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1))

    def _drop_words(self, rows: Sequence[Tensor]) -> Sequence[Tensor]:
        """Apply word dropout to the row indices, in training mode."""
        probabilities = [self.word_dropout[name] for name in self.names]
        if not self.training or not any(probabilities):
            return rows
        draws = torch.rand(len(rows), *rows[0].shape, device=rows[0].device)
        return [
            ids.masked_fill(draw < probability, UNKNOWN_ROW) if probability else ids
            for ids, draw, probability in zip(rows, draws, probabilities, strict=True)
        ]

    def grow(self, name: str, height: int) -> None:
        """Add randomly initialized rows to a table.

        name (str): Table name.
        height (int): The new number of rows.
        """
        table = self.tables[name]
        added = random_rows(height - len(table), table.shape[1]).to(table)
        grown = torch.cat((table.data, added))
        gradient = table.grad
        self.tables[name] = nn.Parameter(grown)
        if gradient is not None:
            # The gradients of several batches may be accumulated, and a table may grow between two of these batches.
            gradient = gradient.coalesce()
            self.tables[name].grad = torch.sparse_coo_tensor(
                gradient.indices(), gradient.values(), grown.shape, check_invariants=False
            )

    def fill(self, name: str, rows: IntArray, vectors: FloatArray) -> None:
        """Write pretrained vectors to rows of a table."""
        table = self.tables[name]
        table.data[torch.as_tensor(rows)] = torch.as_tensor(vectors).to(table)


def random_rows(height: int, width: int) -> Tensor:
    """Return rows with uniform numbers within ±sqrt(3 / width), so that their expected squared norm is 1, as in the
    papers.
    """
    bound = math.sqrt(3.0 / width)
    return torch.empty(height, width).uniform_(-bound, bound)


@dataclass(frozen=True)
class ConvolutionWindows:
    """The windows around each token of a batch, for convolutions of this size. Computed once per batch.

    size (int): Window size in tokens, an odd number.
    tokens (Segments): Gather index of the token at each position of each window. Positions outside of the sequence have
        the index of a row of zeros, the number of tokens. *Shape:* (tokens * size,)
    """

    size: int
    tokens: Segments

    @classmethod
    def of(cls, lengths: IntArray, size: int, *, device: torch.device | str = "cpu") -> ConvolutionWindows:
        """Compute the windows of a batch.

        lengths (IntArray): Token count per sequence. *Shape:* (sequences,)
        size (int): Window size in tokens.
        device (torch.device | str): Device for the result.
        """
        if size < 1 or size % 2 == 0:
            raise ValueError(f"A convolution's window must be an odd number of tokens; got {size!r}.")
        offsets, n_tokens = np.arange(size) - size // 2, int(lengths.sum())
        positions = ranges(np.zeros_like(lengths), lengths)[:, None] + offsets
        inside = (positions >= 0) & (positions < np.repeat(lengths, lengths)[:, None])
        tokens = np.where(inside, np.arange(n_tokens)[:, None] + offsets, n_tokens)
        return cls(size, Segments.of(tokens.ravel(), n_tokens + 1, device=device))

    def gather(self, x: Tensor) -> Tensor:
        """Concatenate the tokens of each window, with zeros outside of the sequence. *Shape:* (tokens, width) to
        (tokens, size * width)
        """
        if self.size == 1:
            return x
        return self.tokens.gather(F.pad(x, (0, 0, 0, 1))).view(len(x), self.size * x.shape[1])


class Convolution(nn.Module):
    """A convolution over each sequence, with zero padding at both ends.

    `nn.Conv1d` needs padded sequences, and compiles a kernel for each new shape on a CPU. Here, the tokens of each
    window are gathered, and multiplied by a linear layer. For batches of sentences of mixed lengths, forward and
    backward pass take about half the time of `nn.Conv1d`.

    The weights have the shape (out, size * width), and are those of `nn.Conv1d`, transposed to (out, size, width) and
    flattened.

    width (int): Input width.
    out (int): Output width.
    size (int): Window size in tokens, an odd number.
    """

    def __init__(self, width: int, out: int, *, size: int) -> None:
        super().__init__()
        self.size = size
        self.product = Linear(size * width, out)

    def forward(self, x: Tensor, windows: ConvolutionWindows) -> Tensor:
        """Compute the convolution. *Shape:* (tokens, width) to (tokens, out)

        x (Tensor): The tokens, concatenated.
        windows (ConvolutionWindows): Windows of this size.
        """
        return self.product(windows.gather(x))


class Penalty(nn.Module):
    """A penalty that a layer adds to the loss, as a mean over the sequences of a batch.

    The layer adds the gradient of the penalty in its backward pass (see `flat.selection_torch`), and records its value
    here, so that the value can be added to the reported loss.

    weight (float): Weight of the penalty in the loss.
    """

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = weight
        # The loss may be averaged over several batches. This is the fraction of their sequences that is in this batch.
        self.batch_fraction = 1.0
        self._recorded: Tensor | None = None

    def factor(self, n_sequences: int) -> float:
        """Return the factor of the penalty of one sequence in the loss."""
        return self.weight * self.batch_fraction / max(1, n_sequences)

    def record(self, value: Tensor) -> None:
        """Add a value to the record."""
        value = value.detach()
        self._recorded = value if self._recorded is None else self._recorded + value

    def pop_value(self) -> float:
        """Return the sum of the values that were recorded since the last call."""
        recorded, self._recorded = self._recorded, None
        return 0.0 if recorded is None else float(recorded)


class FeedForward(nn.Module):
    """The feed-forward network `max(0, x W_1 + b_1) W_2 + b_2` (TENER, eq. 7), with dropout after the ReLU and at the
    end.

    width (int): Input and output width d.
    hidden (int): Hidden size d_ff.
    dropout (float): Dropout rate.
    """

    def __init__(self, *, width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.widen = Linear(width, hidden)
        self.narrow = Linear(hidden, width)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the network. *Shape:* (tokens, width) to (tokens, width)"""
        hidden = F.relu(self.widen(x), inplace=True)
        return self.dropout(self.narrow(self.dropout(hidden)))


class TransformerLayer(nn.Module):
    """A transformer layer: attention and a feed-forward network, each followed by a residual connection and layer norm.

    As in TENER's released code, the output of the attention has no dropout.

    attention (nn.Module): The attention, called with the arguments of the layer.
    config (StackConfig): Sizes and dropout rates of the layer.
    """

    def __init__(self, attention: nn.Module, config: StackConfig) -> None:
        super().__init__()
        self.attention = attention
        self.feed_forward = FeedForward(width=config.width, hidden=config.hidden_width, dropout=config.dropout)
        self.attention_norm = nn.LayerNorm(config.width)
        self.feed_forward_norm = nn.LayerNorm(config.width)

    def forward(self, x: Tensor, *context: Any) -> Tensor:
        """Compute the layer. *Shape:* (tokens, width) to (tokens, width)

        x (Tensor): The concatenated tokens.
        context (Any): Additional arguments of the attention.
        """
        return self.complete(x, self.attention(x, *context))

    def complete(self, x: Tensor, attended: Tensor) -> Tensor:
        """Compute the part of the layer that follows attention.

        x (Tensor): The layer's input. *Shape:* (tokens, width)
        attended (Tensor): The attention's output. *Shape:* (tokens, width)
        RETURNS (Tensor): The layer's output. *Shape:* (tokens, width)
        """
        x = self.attention_norm(x + attended)
        return self.feed_forward_norm(x + self.feed_forward(x))
