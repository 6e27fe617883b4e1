"""Relative positions of spans: how far the heads and tails of two spans are from each other (FLAT's eq. 1 to 3)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..attention.positions import interleave, sinusoids
from ..linear import Linear
from .span_plan import SpanPlan

DISTANCES = ("hh", "ht", "th", "tt")
"""From query to key: head to head, head to tail, tail to head, tail to tail. The order of `SpanPlan.distances`."""


class SpanPositions(nn.Module):
    """`R_ij = ReLU(W_r [p(d_1) ; p(d_2) ; ..])` for each row of a plan's table, with `p` the sines and cosines of a
    distance.

    Since `W_r [p(d_1) ; ..] = W_1 p(d_1) + ..`, each distance is multiplied once for the whole batch, and a row is the
    sum of as many rows as there are distances.

    width: d, of `p` and of the result.
    distances: which distances are known, of `hh`, `ht`, `th` and `tt`. FLAT's paper has all four; its released code and
        MECT have `hh` and `tt`.
    """

    def __init__(self, *, width: int, distances: Sequence[str] = DISTANCES) -> None:
        super().__init__()
        check_distances(distances)
        self.kinds = [DISTANCES.index(distance) for distance in distances]
        # W_1, W_2, .. one above the other: W_r turned by blocks.
        self.fuse = Linear(width, len(distances) * width, bias=False)
        bound = 1.0 / math.sqrt(len(distances) * width)
        nn.init.uniform_(self.fuse.weight, -bound, bound)

    def forward(self, plan: SpanPlan) -> Tensor:
        """Returns *Shape: [R, d]*"""
        width, n = self.fuse.in_features, len(self.kinds)
        terms = self.fuse(_symmetric(plan.longest, width, self.fuse.weight)).view(-1, width)
        nearest = torch.arange(n, device=terms.device) + (plan.longest - 1) * n
        return torch.relu(F.embedding_bag(plan.distances[:, self.kinds] * n + nearest, terms, mode="sum"))


def check_distances(distances: Sequence[str]) -> None:
    if not distances or len(set(distances)) != len(distances) or not set(distances) <= set(DISTANCES):
        raise ValueError(
            f"The distances between spans must be one or more of {', '.join(DISTANCES)}, each once; "
            f"got {', '.join(distances) or 'none'}."
        )


def _symmetric(longest: int, width: int, like: Tensor) -> Tensor:
    """`p(d)` (eq. 3) for all distances nearer than `longest`, negative ones first. *Shape: [2 longest - 1, d]*"""
    sin, cos = sinusoids(longest, width, like)
    return interleave(torch.cat((-sin[1:].flip(0), sin)), torch.cat((cos[1:].flip(0), cos)))


def reference_span_positions(positions: SpanPositions, spans: Tensor) -> Tensor:
    """`R_ij` (eq. 1 to 3) as the papers write it, for every pair of one sentence: what the fast form is tested with.

    spans: head and tail of each span. *Shape: [L, 2]*. Returns *Shape: [L, L, d]*
    """
    head, tail = spans.unbind(1)
    weight = positions.fuse.weight
    width = weight.shape[1]
    distances = torch.stack([a[:, None] - b for a in (head, tail) for b in (head, tail)], dim=-1)  # eq. 1
    i = torch.arange(0, width, 2, dtype=torch.float64, device=weight.device)
    angles = distances[..., positions.kinds, None] / 10000.0 ** (i / width)
    p = torch.stack((angles.sin(), angles.cos()), dim=-1).to(weight.dtype)  # eq. 3
    return torch.relu(p.flatten(2) @ torch.cat(weight.split(width), dim=1).T)  # eq. 2
