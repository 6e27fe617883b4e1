"""TENER's attention: aware of direction and distance, un-scaled (eq. 16 to 19).

For a query at `t` and a key at `j` the paper has

    A[t, j] = (q_t + u) . k_j + (q_t + v) . r_{t-j}

with `r_{t-j} = [.., sin((t-j) c_i), cos((t-j) c_i), ..]`, `c_i = 10000^(-2i / d_k)`, and no scale. A pair (sine,
cosine) of `q_t + v` is read as one complex number `z`. Then its product with `r_{t-j}` is

    Re(z . -i e^{i c t} . e^{-i c j}) = turned_t . [cos(c j), sin(c j)],    turned_t = z . (sin(c t) - i cos(c t))

so that, per head, `A[t, j] = [q_t + u ; turned_t] . [k_j ; cos(c j), sin(c j), ..]`: ordinary attention of twice the
head width, with no table of relative positions, no shifting, and positions exact at any length.

The released code has a third term, `k_j . r_{t-j}`, which becomes one more pair of blocks: `[sin(c t), cos(c t), ..]`
beside the keys turned by `e^{-i c j}`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from ..linear import Linear
from ..ragged import Ragged
from .dot_product import Attention, Heads, split_heads
from .positions import interleave, sinusoids, turn


@dataclass(frozen=True)
class RelativePositions:
    """What the position of each token of a batch puts into its query and its key. Made once, for all layers.

    table: `[cos(c j), sin(c j), ..]` by position. *Shape: [longest, d_k]*
    sin, cos: of each token's own position. *Shape: [N, 1, d_k / 2]*
    """

    table: Tensor
    sin: Tensor
    cos: Tensor

    @classmethod
    def of(cls, ragged: Ragged, head_width: int, like: Tensor) -> RelativePositions:
        """like: a tensor of the device and dtype of the computation."""
        sin, cos = sinusoids(ragged.longest, head_width, like)
        own = (part.index_select(0, ragged.positions)[:, None] for part in (sin, cos))
        return cls(interleave(cos, sin), *own)

    @cached_property
    def query_turn(self) -> Tensor:
        """`sin(c t) - i cos(c t)`. *Shape: [N, 1, d_k / 2]*"""
        return torch.complex(self.sin, -self.cos)

    @cached_property
    def query(self) -> Tensor:
        """`[sin(c t), cos(c t), ..]`. *Shape: [N, 1, d_k]*"""
        return interleave(self.sin, self.cos)

    @cached_property
    def key_turn(self) -> Tensor:
        """`cos(c j) - i sin(c j)`. *Shape: [N, 1, d_k / 2]*"""
        return torch.complex(self.cos, -self.sin)


class AdaptedAttention(Attention):
    """Multi-head attention of the adapted transformer. Its keys are the input itself, split into heads; no output
    projection follows.

    width: d, the width of input and output.
    n_heads: h; `d_k = width / n_heads` must be even.
    dropout: on the attention map.
    scaled: divide the scores by `sqrt(d_k)`: the paper's "w/ scale".
    key_projection: project the keys, as the released code does and the paper does not.
    key_position: add the released code's third term.
    """

    def __init__(
        self,
        *,
        width: int,
        n_heads: int,
        dropout: float = 0.0,
        scaled: bool = False,
        key_projection: bool = False,
        key_position: bool = False,
    ) -> None:
        super().__init__(n_heads=n_heads, dropout=dropout)
        head_width = width // n_heads
        self.scale = 1.0 / math.sqrt(head_width) if scaled else 1.0
        self.key_projection = key_projection
        self.key_position = key_position
        self.query = Linear(width, width, bias=False)
        self.key = Linear(width, width, bias=False) if key_projection else nn.Identity()
        self.value = Linear(width, width, bias=False)
        self.u = nn.Parameter(nn.init.xavier_normal_(torch.empty(n_heads, head_width)))
        self.v = nn.Parameter(nn.init.xavier_normal_(torch.empty(n_heads, head_width)))

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values (eq. 16). x: *Shape: [N, d]*. Returns *Shape: [N, h, d_k]* each"""
        q, k, v = (split_heads(part(x), self.n_heads) for part in (self.query, self.key, self.value))
        return q, k, v

    def heads(self, x: Tensor, *context: Any) -> Heads:
        (relative,) = context
        q, k, v = self.project(x)
        queries = q + self.u
        q_position = turn(q + self.v, relative.query_turn)
        if self.key_position:
            queries = torch.cat((queries, relative.query.expand_as(q)), dim=-1)
            k = torch.cat((k, turn(k, relative.key_turn)), dim=-1)
        if self.scale != 1.0:
            queries, q_position = queries * self.scale, q_position * self.scale
        return Heads(queries, k, v, q_position, relative.table)
