"""Embedding tables that grow and whose gradients touch only the rows in use."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..types import FloatArray, IntArray
from .dropout import Dropout

UNKNOWN_ROW = 0


class EmbeddingTables(nn.Module):
    """Rows of one or several tables, side by side.

    Word dropout replaces a known row by the unknown one now and then, so that the unknown row is trained as well;
    dropout then acts on the joined embedding.

    rows: height of each table, by name.
    widths: width of each table, by name.
    word_dropout: probability of being read as unknown, by table.
    dropout: on the joined embedding.
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
        """*Shape* one [N] per table, in the tables' order -> [N, sum of widths]"""
        parts = [
            F.embedding(self._drop_words(name, ids), self.tables[name], sparse=True)
            for name, ids in zip(self.names, rows, strict=True)
        ]
        joined: Tensor = self.dropout(parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1))
        return joined

    def _drop_words(self, name: str, rows: Tensor) -> Tensor:
        probability = self.word_dropout[name]
        if not self.training or probability == 0.0:
            return rows
        return rows.masked_fill(torch.rand(rows.shape, device=rows.device) < probability, UNKNOWN_ROW)

    def grow(self, name: str, height: int) -> None:
        """Make a table higher; its rows stay and the new ones are random."""
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
        """Put pretrained vectors into their rows."""
        table = self.tables[name]
        table.data[torch.as_tensor(rows)] = torch.as_tensor(vectors).to(table)


def random_rows(height: int, width: int) -> Tensor:
    """Uniform within ±sqrt(3 / width): rows of unit length, on average, as in the papers."""
    bound = math.sqrt(3.0 / width)
    return torch.empty(height, width).uniform_(-bound, bound)
