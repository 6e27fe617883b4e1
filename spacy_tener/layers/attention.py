"""Attention among the tokens of a sequence: the vanilla form (eq. 1 to 6), TENER's adapted one (eq. 16 to 19), and the
sines and cosines of positions (eq. 8, 9 and 17).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .dense import Linear, dropout
from .devices import on_device
from .ragged import Ragged


def interleave(even: Tensor, odd: Tensor) -> Tensor:
    """Return `[even_0, odd_0, even_1, odd_1, ...]` along the last dimension, the order of eq. 8, 9 and 17."""
    return torch.stack((even, odd), dim=-1).flatten(-2)


def sinusoids(length: int, width: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return `sin(t c_i)` and `cos(t c_i)` for the positions `t < length`, with `c_i = 10000^(-2i / width)`.

    like (Tensor): They get its device and dtype.
    RETURNS (Tuple[Tensor, Tensor]): *Shape:* (length, width / 2) each
    """
    # In float32 the angle itself would be off by some 0.004 at position 100,000.
    frequencies = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.outer(torch.arange(length, dtype=torch.float64), frequencies)
    return on_device(angles.sin().to(like.dtype), like.device), on_device(angles.cos().to(like.dtype), like.device)


def turn(x: Tensor, by: Tensor) -> Tensor:
    """Multiply `x` by complex numbers: pairs of its last dimension are their real and imaginary parts.

    x (Tensor): *Shape:* (..., width); by: complex, broadcast against it. *Shape:* (..., width / 2)
    """
    return torch.view_as_real(torch.view_as_complex(x.view(*x.shape[:-1], by.shape[-1], 2)) * by).flatten(-2)


# Maximum length of sequences whose maps are computed whole, so that memory grows with the number of tokens only.
WHOLE_MAP = 512
# Number of scores computed at once for longer sequences: about what fits into a core's own cache.
SCORES_AT_ONCE = 1 << 20

Weighting = Callable[[Tensor, Tensor | None], Tensor]
"""Function from scores to attention weights, in place of softmax.

It gets the scores, -inf at padded keys, *Shape:* (sequences, heads, queries, keys).
It also gets `Heads.per_query`, zeros at padded queries, *Shape:* (sequences, heads, queries, values).
"""


@dataclass(frozen=True)
class Heads:
    """Queries, keys and values by head, ready for `softmax(q k^T + q_position table^T) v`; any scale is in the queries.

    q, k (Tensor): *Shape:* (tokens, heads, width); v: *Shape:* (tokens, heads, head width)
    q_position (Tensor | None): queries to positions rather than to keys, for relative positions. *Shape:* (tokens,
        heads, position width)
    table (Tensor | None): the embedding of each position. *Shape:* (longest, position width)
    per_query (Tensor | None): inputs of a weighting other than softmax, for each query. *Shape:* (tokens, heads,
        values)
    """

    q: Tensor
    k: Tensor
    v: Tensor
    q_position: Tensor | None = None
    table: Tensor | None = None
    per_query: Tensor | None = None

    @property
    def tensors(self) -> tuple[Any, ...]:
        return self.q, self.k, self.v, self.q_position, self.table, self.per_query


class Attention(nn.Module, ABC):
    """Multi-head attention. Subclasses compute queries, keys and values in `heads`."""

    def __init__(self, *, n_heads: int, dropout: float) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.dropout = dropout

    @abstractmethod
    def heads(self, x: Tensor, *context: Any) -> Heads:
        """Return queries, keys and values of `x`. *Shape:* (tokens, width)"""

    def forward(self, x: Tensor, ragged: Ragged, *context: Any) -> Tensor:
        """Transform the rows of all texts. *Shape:* (tokens, width) to (tokens, width)

        ragged (Ragged): the sequences, planned for this number of heads.
        context (Any): other arguments of `heads`, such as positions.
        """
        p = self.dropout if self.training else 0.0
        return attend(self.heads(x, *context), ragged, p, self.weighting(sampled=self.training))

    def weighting(self, *, sampled: bool) -> Weighting | None:
        """Return the function from scores to attention weights; None for softmax. sampled: In training."""
        return None


class VanillaAttention(Attention):
    """Attention as in Vaswani et al.: projected keys, scaled scores, an output projection; positions are in its input.

    Its linear layers have biases, as the parameter counts in the TENER paper's supplement (6.1) show; the released
    code has one at the output only.
    """

    def __init__(self, *, width: int, n_heads: int, dropout: float = 0.0, scaled: bool = True) -> None:
        super().__init__(n_heads=n_heads, dropout=dropout)
        self.scale = 1.0 / math.sqrt(width // n_heads) if scaled else 1.0
        self.query = Linear(width, width)
        self.key = Linear(width, width)
        self.value = Linear(width, width)
        self.out = Linear(width, width)

    def heads(self, x: Tensor, *context: Any) -> Heads:
        q, k, v = (split_heads(part(x), self.n_heads) for part in (self.query, self.key, self.value))  # eq. 1, 4
        return Heads(q * self.scale, k, v)

    def forward(self, x: Tensor, ragged: Ragged, *context: Any) -> Tensor:
        return self.out(super().forward(x, ragged, *context))  # eq. 6


def checkpointed(function: Callable[..., Tensor], *inputs: Any) -> Tensor:
    """Return `function(*inputs)`, recomputed in the backward pass with the same random numbers."""
    if not torch.is_grad_enabled():
        return function(*inputs)
    result: Tensor = checkpoint(function, *inputs, use_reentrant=False)
    return result


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """Split rows into heads. x: *Shape:* (tokens, width). Returns *Shape:* (tokens, heads, head width)"""
    return x.view(x.shape[0], n_heads, x.shape[1] // n_heads)


def attend(heads: Heads, ragged: Ragged, p: float, weighting: Weighting | None = None) -> Tensor:
    """Compute attention within each sequence, with dropout of probability `p` on its map. Returns
    *Shape:* (tokens, width)

    weighting (Weighting | None): function from scores to the map; None for softmax.
    """
    if not ragged.buckets:
        return heads.v.flatten(1)
    padded = zip(_pad(heads, ragged), ragged.buckets, strict=True)
    mixed = [_plain(heads_of_bucket, bucket.key_mask, p, weighting) for heads_of_bucket, bucket in padded]
    return ragged.join(mixed).view(heads.v.shape[0], -1)


def _pad(heads: Heads, ragged: Ragged) -> Iterator[Heads]:
    """Yield the heads of each bucket, padded. *Shape:* (sequences, heads, length, ..), but for `table`"""
    none = [None] * len(ragged.buckets)
    parts: Any = (
        none if x is None else ragged.pad(x.flatten(0, 1)) for x in (heads.q, heads.k, heads.v, heads.q_position)
    )
    per_query = none if heads.per_query is None else ragged.pad(heads.per_query.flatten(0, 1), zeros=True)
    for bucket, q, k, v, q_position, values in zip(ragged.buckets, *parts, per_query, strict=True):
        yield Heads(q, k, v, q_position, None if heads.table is None else heads.table[: bucket.length], values)


def _plain(padded: Heads, key_mask: Tensor | None, p: float, weighting: Weighting | None) -> Tensor:
    """Compute one bucket by matrix products. Returns *Shape:* (sequences, heads, length, head width)

    torch's fused CPU kernel takes neither dropout nor values narrower than keys, and is slower at every length.
    """
    n, h, length, _ = padded.q.shape
    if length <= WHOLE_MAP:
        return _mix(key_mask, p, weighting, *padded.tensors)
    # Memory grows with the length and not with its square: maps are recomputed in the backward pass.
    step = max(SCORES_AT_ONCE // (n * h * length), 32)
    mix, (q, k, v, q_position, table, per_query) = partial(checkpointed, _mix, key_mask, p, weighting), padded.tensors
    parts = [[None] * len(q.split(step, dim=2)) if x is None else x.split(step, dim=2) for x in (q_position, per_query)]
    queries = zip(q.split(step, dim=2), *parts, strict=True)
    return torch.cat([mix(content, k, v, position, table, values) for content, position, values in queries], dim=2)


def _mix(key_mask: Tensor | None, p: float, weighting: Weighting | None, *tensors: Tensor) -> Tensor:
    """Mix the values for some queries of a bucket. tensors: those of its `Heads`. Returns
    *Shape:* (sequences, heads, queries, head width)
    """
    heads = Heads(*tensors)
    return torch.matmul(dropout(_map(heads, key_mask, weighting), p, training=True), heads.v)


def _map(padded: Heads, key_mask: Tensor | None, weighting: Weighting | None) -> Tensor:
    """Return the attention map of some queries of a bucket. Returns *Shape:* (sequences, heads, queries, keys)"""
    shape = (*padded.q.shape[:3], padded.k.shape[2])
    q, keys = padded.q.flatten(0, 1), padded.k.flatten(0, 1).transpose(1, 2)
    if padded.q_position is None or padded.table is None:
        scores = torch.bmm(q, keys)
    else:
        # Every head and sequence has the same table: one product for all of them.
        scores = torch.matmul(padded.q_position.flatten(0, 2), padded.table.T).view(*q.shape[:2], -1).baddbmm_(q, keys)
    scores = scores.view(shape)
    if key_mask is not None:
        scores += key_mask
    return torch.softmax(scores, dim=-1) if weighting is None else weighting(scores, padded.per_query)


@dataclass(frozen=True)
class RelativePositions:
    """Factors of relative positions for queries and for keys. Made once per batch, for all layers.

    table (Tensor): `[cos(c j), sin(c j), ..]` by position. *Shape:* (longest, head width)
    query_turn (Tensor): `sin(c t) - i cos(c t)` of each token's own position. *Shape:* (tokens, 1, head width / 2)
    """

    table: Tensor
    query_turn: Tensor

    @classmethod
    def of(cls, ragged: Ragged, head_width: int, like: Tensor) -> RelativePositions:
        """Make the positions of a batch. like: a tensor of the device and dtype of the computation."""
        sin, cos = sinusoids(ragged.longest, head_width, like)
        return cls(interleave(cos, sin), torch.complex(sin, -cos).index_select(0, ragged.positions)[:, None])


class AdaptedAttention(Attention):
    """Multi-head attention of the adapted transformer. Its keys are the input itself, split into heads; no output
    projection follows.

    It is aware of direction and distance, and un-scaled (eq. 16 to 19). For a query at `t` and a key at `j` the paper
    has

        A[t, j] = (q_t + u) . k_j + (q_t + v) . r_{t-j}

    with `r_{t-j} = [.., sin((t-j) c_i), cos((t-j) c_i), ..]`, `c_i = 10000^(-2i / d_k)`, and no scale. A pair (sine,
    cosine) of `q_t + v` is read as one complex number `z`. Then its product with `r_{t-j}` is

        Re(z . -i e^{i c t} . e^{-i c j}) = turned_t . [cos(c j), sin(c j)],    turned_t = z . (sin(c t) - i cos(c t))

    so that, per head, `A[t, j] = [q_t + u ; turned_t] . [k_j ; cos(c j), sin(c j), ..]`: ordinary attention of twice
    the head width, with no table of relative positions, no shifting, and positions exact at any length.

    width (int): d, the width of input and output.
    n_heads (int): h; `d_k = width / n_heads` must be even.
    dropout (float): on the attention map.
    scaled (bool): divide the scores by `sqrt(d_k)`: the paper's "w/ scale".
    key_projection (bool): project the keys, as FLAT-ATSSA does and TENER does not.
    """

    def __init__(
        self,
        *,
        width: int,
        n_heads: int,
        dropout: float = 0.0,
        scaled: bool = False,
        key_projection: bool = False,
    ) -> None:
        super().__init__(n_heads=n_heads, dropout=dropout)
        head_width = width // n_heads
        self.scale = 1.0 / math.sqrt(head_width) if scaled else 1.0
        self.query = Linear(width, width, bias=False)
        self.key = Linear(width, width, bias=False) if key_projection else nn.Identity()
        self.value = Linear(width, width, bias=False)
        self.u = nn.Parameter(nn.init.xavier_normal_(torch.empty(n_heads, head_width)))
        self.v = nn.Parameter(nn.init.xavier_normal_(torch.empty(n_heads, head_width)))

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values (eq. 16). x: *Shape:* (tokens, width). Returns
        *Shape:* (tokens, heads, head width) each
        """
        q, k, v = (split_heads(part(x), self.n_heads) for part in (self.query, self.key, self.value))
        return q, k, v

    def heads(self, x: Tensor, *context: Any) -> Heads:
        (relative,) = context
        q, k, v = self.project(x)
        queries, q_position = q + self.u, turn(q + self.v, relative.query_turn)
        if self.scale != 1.0:
            queries, q_position = queries * self.scale, q_position * self.scale
        return Heads(queries, k, v, q_position, relative.table)
