"""MECT's random attention (4.3): a learned number for each head, place of a query and place of a key, added to scores.

Most sentences are short, and a place means nothing beyond the longest of a batch. So the square of places is kept in
small blocks, each one row of a table whose gradient is sparse: a batch reads, and an optimizer updates, only the blocks
that its sentences reach, as if they were the rows of an embedding.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...settings import RANDOM_BLOCK as BLOCK


class RandomAttention(nn.Module):
    """B (eq. 12 and 13) of one stream. A sentence's places are its characters', then its words', as in the released
    code.

    n_heads: h.
    places: M, how many places are told apart. Those behind have nothing added, so that a sentence may have any length;
        the released code, whose M is the longest sentence of a corpus, ends there.
    """

    def __init__(self, *, n_heads: int, places: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.places = places
        # As small as the released code begins: places that training does not reach will hardly count.
        deviation = 1.0 / (places * math.sqrt(3 * n_heads))
        self.blocks = nn.Parameter(torch.randn(self._along**2, n_heads * BLOCK * BLOCK) * deviation)

    @property
    def _along(self) -> int:
        """Blocks along each side of the square."""
        return -(-self.places // BLOCK)

    def forward(self, queries: int, keys: int) -> Tensor:
        """The numbers of so many first places of queries and of keys, as far as there are.

        *Returns Shape: [h, min(queries, M), min(keys, M)]*
        """
        queries, keys = min(queries, self.places), min(keys, self.places)
        down, across = (torch.arange(-(-n // BLOCK), device=self.blocks.device) for n in (queries, keys))
        blocks = F.embedding(down[:, None] * self._along + across, self.blocks, sparse=True)
        square = blocks.view(len(down), len(across), self.n_heads, BLOCK, BLOCK).permute(2, 0, 3, 1, 4)
        square = square.reshape(self.n_heads, len(down) * BLOCK, len(across) * BLOCK)
        return square[:, :queries, :keys]
