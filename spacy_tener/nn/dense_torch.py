"""Token-wise layers: linear layers, dropout, embedding tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn import Linear as Linear

from ..types import FloatArray, IntArray

_STEPS = 1 << 16
"""Dropout probabilities are rounded to multiples of one in so many."""


def dropout(x: Tensor, p: float, *, training: bool) -> Tensor:
    """Zero each number with probability `p` and scale the others by `1 / (1 - p)`; in evaluation return `x` itself.

    One 64-bit draw decides four numbers, where torch's CPU kernel draws one for each: a training step of TENER takes 10
    to 20% less. Other devices keep torch's own kernel.
    """
    dropped = round(p * _STEPS)
    if not training or dropped == 0:
        return x
    if not x.is_cpu or dropped == _STEPS:
        return F.dropout(x, p)
    # Clamped arithmetic rather than a comparison: comparing and selecting are not vectorised.
    keep = random_steps(x).sub_(dropped - _STEPS // 2 - 1).clamp_(0.0, 1.0)
    return x * keep.mul_(_STEPS / (_STEPS - dropped))


def random_steps(like: Tensor) -> Tensor:
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
        shares = [self.word_dropout[name] for name in self.names]
        if not self.training or not any(shares):
            return rows
        draws = torch.rand(len(rows), *rows[0].shape, device=rows[0].device)
        return [
            ids.masked_fill(draw < share, UNKNOWN_ROW) if share else ids
            for ids, draw, share in zip(rows, draws, shares, strict=True)
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
