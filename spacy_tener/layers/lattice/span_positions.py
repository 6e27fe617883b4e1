"""Relative positions of spans: how far the heads and tails of two spans are from each other (FLAT's eq. 1 to 3)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...settings import DISTANCES, check_distances
from ..attention.positions import interleave, sinusoids
from ..linear import Linear
from .span_plan import SpanPlan


class SpanPositions(nn.Module):
    """`R_ij = ReLU(W_r [p(d_1) ; p(d_2) ; ..])` for each row of a plan's table, with `p` the sines and cosines of a
    distance.

    Since `W_r [p(d_1) ; ..] = W_1 p(d_1) + ..`, each distance is multiplied once for the whole batch, and a row is the
    sum of as many rows as there are distances.

    width: d, of `p` and of the result.
    distances: which distances are known, of `hh`, `ht`, `th` and `tt`. FLAT's paper has all four; its released code and
        MECT have `hh` and `tt`.
    """

    kinds: Tensor

    def __init__(self, *, width: int, distances: Sequence[str] = DISTANCES) -> None:
        super().__init__()
        check_distances(distances)
        # Not a list: torch would copy it to the device at each use, and wait for it.
        kinds = torch.tensor([DISTANCES.index(distance) for distance in distances])
        self.register_buffer("kinds", kinds, persistent=False)
        # W_1, W_2, .. one above the other: W_r turned by blocks.
        self.fuse = Linear(width, len(distances) * width, bias=False)
        bound = 1.0 / math.sqrt(len(distances) * width)
        nn.init.uniform_(self.fuse.weight, -bound, bound)

    def forward(self, plan: SpanPlan) -> Tensor:
        """Returns *Shape: [R, d]*"""
        width, n = self.fuse.in_features, len(self.kinds)
        terms = self.fuse(_symmetric(plan.longest, width, self.fuse.weight)).view(-1, width)
        nearest = torch.arange(n, device=terms.device) + (plan.longest - 1) * n
        return torch.relu(F.embedding_bag(plan.distances.index_select(1, self.kinds) * n + nearest, terms, mode="sum"))


def _symmetric(longest: int, width: int, like: Tensor) -> Tensor:
    """`p(d)` (eq. 3) for all distances nearer than `longest`, negative ones first. *Shape: [2 longest - 1, d]*"""
    sin, cos = sinusoids(longest, width, like)
    return interleave(torch.cat((-sin[1:].flip(0), sin)), torch.cat((cos[1:].flip(0), cos)))
