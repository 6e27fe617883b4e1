"""Dot-product attention over the sequences of a flat batch, and the vanilla multi-head form (eq. 1 to 6)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .dropout import dropout
from .linear import Linear
from .ragged import Ragged

# Up to this length a bucket's attention maps are made whole; their memory then grows with the number of tokens only.
WHOLE_MAP = 512
# Longer sequences are read some queries at a time, so many scores at once: about what a core's own cache holds.
SCORES_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Heads:
    """Queries, keys and values by head, ready for `softmax(q k^T + placed table^T) v`; any scale is in the queries.

    q, k: *Shape: [N, h, w]*; v: *Shape: [N, h, d_k]*
    placed: queries to positions rather than to keys, if there are such. *Shape: [N, h, w']*
    table: the row that stands for each position. *Shape: [longest, w']*
    """

    q: Tensor
    k: Tensor
    v: Tensor
    placed: Tensor | None = None
    table: Tensor | None = None


class Attention(nn.Module, ABC):
    """What every kind of attention does once it has said what its queries, keys and values are."""

    def __init__(self, *, n_heads: int, dropout: float) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.dropout = dropout

    @abstractmethod
    def heads(self, x: Tensor, *places: Any) -> Heads:
        """Queries, keys and values of `x`. *Shape: [N, d]*"""

    def forward(self, x: Tensor, ragged: Ragged, *places: Any) -> Tensor:
        """x: *Shape: [N, d]*. Returns *Shape: [N, d]*

        ragged: the sequences, planned for this number of heads.
        places: what the attention needs to know of positions.
        """
        return attend(self.heads(x, *places), ragged, self.dropout if self.training else 0.0)

    def weights(self, x: Tensor, ragged: Ragged, *places: Any) -> list[Tensor]:
        """The attention map of each sequence, in the batch's order. *Shape: [h, length, length]* each"""
        return attention_maps(self.heads(x, *places), ragged)


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

    def heads(self, x: Tensor, *places: Any) -> Heads:
        q, k, v = (split_heads(part(x), self.n_heads) for part in (self.query, self.key, self.value))  # eq. 1, 4
        return Heads(q * self.scale, k, v)

    def forward(self, x: Tensor, ragged: Ragged, *places: Any) -> Tensor:
        mixed: Tensor = self.out(super().forward(x, ragged, *places))  # eq. 6
        return mixed


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """x: *Shape: [N, d]*. Returns *Shape: [N, h, d / h]*"""
    return x.view(x.shape[0], n_heads, x.shape[1] // n_heads)


def attend(heads: Heads, ragged: Ragged, p: float) -> Tensor:
    """Attention within each sequence, with dropout of probability `p` on its map. *Returns Shape: [N, h d_k]*"""
    if not ragged.buckets:
        return heads.v.flatten(1)
    mix = _on_cpu if heads.v.is_cpu else _on_device
    mixed = [mix(padded, bucket.mask, p) for padded, bucket in zip(_pad(heads, ragged), ragged.buckets, strict=True)]
    return ragged.join(mixed).view(heads.v.shape[0], -1)


def attention_maps(heads: Heads, ragged: Ragged) -> list[Tensor]:
    """The attention map of each sequence, in plain view. *Shape: [h, length, length]* each"""
    maps = [heads.q.new_zeros(ragged.heads, 0, 0) for _ in ragged.lengths]
    for padded, bucket in zip(_pad(heads, ragged), ragged.buckets, strict=True):
        weights = _softmax(padded, bucket.mask)
        for row, sequence in enumerate(bucket.sequences):
            length = ragged.lengths[sequence]
            maps[sequence] = weights[row, :, :length, :length]
    return maps


def _pad(heads: Heads, ragged: Ragged) -> Iterator[Heads]:
    """The same by bucket. q, k, v, placed: *Shape: [n, h, L, ..]*; table: *Shape: [L, w']*"""
    q, k, v = (ragged.pad(rows.flatten(0, 1)) for rows in (heads.q, heads.k, heads.v))
    if heads.placed is None or heads.table is None:
        return map(Heads, q, k, v)
    placed = ragged.pad(heads.placed.flatten(0, 1))
    return map(Heads, q, k, v, placed, [heads.table[: bucket.length] for bucket in ragged.buckets])


def _on_device(padded: Heads, mask: Tensor | None, p: float) -> Tensor:
    """One bucket by torch's fused kernel. *Returns Shape: [n, h, L, d_k]*"""
    joined = _joined(padded)
    seen = None if mask is None else mask[:, None, None, :]
    return F.scaled_dot_product_attention(joined.q, joined.k, joined.v, attn_mask=seen, dropout_p=p, scale=1.0)


def _on_cpu(padded: Heads, mask: Tensor | None, p: float) -> Tensor:
    """One bucket by plain products. *Returns Shape: [n, h, L, d_k]*

    torch's fused CPU kernel takes neither dropout nor values narrower than keys, and is slower at every length.
    """
    if padded.q.shape[2] <= WHOLE_MAP:
        return _mix(padded, mask, p)
    joined = _joined(padded)
    mixed: Tensor = _InParts.apply(joined.q, joined.k, joined.v, mask, p)  # type: ignore[no-untyped-call]
    return mixed


def _joined(padded: Heads) -> Heads:
    """The same attention by queries and keys alone, which carry the positions in their second halves."""
    if padded.placed is None or padded.table is None:
        return padded
    table = padded.table.expand(*padded.k.shape[:3], -1)
    return Heads(torch.cat((padded.q, padded.placed), dim=-1), torch.cat((padded.k, table), dim=-1), padded.v)


def _mix(padded: Heads, mask: Tensor | None, p: float) -> Tensor:
    return torch.matmul(dropout(_softmax(padded, mask), p, training=True), padded.v)


def _softmax(padded: Heads, mask: Tensor | None) -> Tensor:
    """The map of a bucket, or of some of its queries. q, placed: *Shape: [n, h, T, ..]*. Returns *[n, h, T, L]*"""
    shape = (*padded.q.shape[:3], padded.k.shape[2])
    q, keys = padded.q.flatten(0, 1), padded.k.flatten(0, 1).transpose(1, 2)
    if padded.placed is None or padded.table is None:
        scores = torch.bmm(q, keys)
    else:
        # Every head and sequence has the same table: one product for all of them.
        scores = torch.matmul(padded.placed.flatten(0, 2), padded.table.T).view(*q.shape[:2], -1).baddbmm_(q, keys)
    scores = scores.view(shape)
    if mask is not None:
        scores += torch.where(mask, 0.0, -torch.inf)[:, None, None, :]
    return torch.softmax(scores, dim=-1)


class _InParts(torch.autograd.Function):
    """Attention of some queries at a time, so that memory grows with the length and not with its square.

    Maps are made again in the backward pass instead of being kept, with the same random numbers for their dropout.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, p: float) -> Tensor:
        ctx.save_for_backward(q, k, v, mask)
        ctx.p = p
        ctx.random_state = torch.get_rng_state()
        mixed = torch.empty_like(v)
        for part in _parts(q):
            mixed[:, :, part] = _mix(Heads(q[:, :, part], k, v), mask, p)
        return mixed

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, mask = ctx.saved_tensors
        sums = [torch.zeros_like(x) for x in (q, k, v)]
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.set_rng_state(ctx.random_state)
            for part in _parts(q):
                leaves = [x.detach().requires_grad_() for x in (q[:, :, part], k, v)]
                mixed = _mix(Heads(*leaves), mask, ctx.p)
                added = torch.autograd.grad(mixed, leaves, gradients[0][:, :, part])
                for total, term in zip((sums[0][:, :, part], *sums[1:]), added, strict=True):
                    total += term
        return (*sums, None, None)


def _parts(q: Tensor) -> Iterator[slice]:
    n, h, length, _ = q.shape
    step = max(SCORES_AT_ONCE // (n * h * length), 32)
    return (slice(begin, begin + step) for begin in range(0, length, step))
