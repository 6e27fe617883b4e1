"""Attention among the tokens of a sequence, whatever its queries and keys are, and the sines and cosines of positions
(TENER, eq. 8, 9 and 17).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .devices_torch import on_device
from .layers_torch import dropout
from .ragged_torch import Ragged

MAX_UNCHUNKED_LENGTH = 512
"""Maximum length of sequences whose maps are computed whole, so that memory grows with the number of tokens only."""
SCORES_PER_CHUNK = 1 << 20
"""Number of scores in a part of a longer sequence's map: about what fits into a core's own cache."""

Weighting = Callable[[Tensor, Tensor | None], Tensor]
"""Function from scores to attention weights, in place of softmax. Its arguments are:

The scores, -inf at padded keys. *Shape:* (sequences, heads, queries, keys)
`Heads.per_query`, zeros at padded queries. *Shape:* (sequences, heads, queries, values)
"""


class Heads(NamedTuple):
    """Queries, keys and values by head, ready for `softmax(q k^T + q_position table^T) v`; any scale is in the queries.

    q (Tensor): Queries to keys. *Shape:* (tokens, heads, width)
    k (Tensor): Keys. *Shape:* (tokens, heads, width)
    v (Tensor): Values. *Shape:* (tokens, heads, head width)
    q_position (Tensor | None): Queries to positions rather than to keys, for relative positions. *Shape:* (tokens,
        heads, position width)
    table (Tensor | None): The embedding of each position. *Shape:* (longest, position width)
    per_query (Tensor | None): Inputs of a weighting other than softmax, for each query. *Shape:* (tokens, heads,
        values)
    """

    q: Tensor
    k: Tensor
    v: Tensor
    q_position: Tensor | None = None
    table: Tensor | None = None
    per_query: Tensor | None = None


class Attention(nn.Module, ABC):
    """Multi-head attention. A subclass computes queries, keys and values in `heads`.

    n_heads (int): Number of heads h.
    dropout (float): Dropout on the attention map.
    """

    def __init__(self, *, n_heads: int, dropout: float) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.dropout = dropout

    @abstractmethod
    def heads(self, x: Tensor, *context: Any) -> Heads:
        """Return queries, keys and values of `x`. *Shape:* (tokens, width)"""

    def forward(self, x: Tensor, ragged: Ragged, *context: Any) -> Tensor:
        """Transform the rows of all texts. *Shape:* (tokens, width) to (tokens, width)

        ragged (Ragged): The sequences, planned for this number of heads.
        context (Any): Other arguments of `heads`, such as positions.
        """
        p = self.dropout if self.training else 0.0
        return attend(self.heads(x, *context), ragged, p, self.weighting(sampled=self.training))

    def weighting(self, *, sampled: bool) -> Weighting | None:
        """Return the function from scores to attention weights; None for softmax.

        sampled (bool): Whether it is for training, in which it may draw random numbers.
        """
        return None


def checkpointed(function: Callable[..., Tensor], *inputs: Any) -> Tensor:
    """Return `function(*inputs)`, recomputed in the backward pass with the same random numbers.

    inputs (Any): Tensors, and named tuples of them. torch does not look for tensors in other classes, and on a GPU that
        it does not find so, dropout would be drawn anew.
    """
    if not torch.is_grad_enabled():
        return function(*inputs)
    result: Tensor = checkpoint(function, *inputs, use_reentrant=False)
    return result


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """Split rows into heads. *Shape:* (tokens, width) to (tokens, heads, head width)"""
    return x.view(x.shape[0], n_heads, x.shape[1] // n_heads)


def attend(heads: Heads, ragged: Ragged, p: float, weighting: Weighting | None = None) -> Tensor:
    """Compute attention within each sequence, with dropout of probability `p` on its map.

    weighting (Weighting | None): Function from scores to the map; None for softmax.
    RETURNS (Tensor): *Shape:* (tokens, width)
    """
    if not ragged.buckets:
        return heads.v.flatten(1)
    padded = zip(_pad(heads, ragged), ragged.buckets, strict=True)
    attended = [_attend_bucket(heads_of_bucket, bucket.key_mask, p, weighting) for heads_of_bucket, bucket in padded]
    return ragged.join(attended).view(heads.v.shape[0], -1)


def _pad(heads: Heads, ragged: Ragged) -> Iterator[Heads]:
    """Yield the heads of each bucket, padded. *Shape:* (sequences, heads, length, ..), but for `table`"""
    none = [None] * len(ragged.buckets)
    parts: Any = (
        none if x is None else ragged.pad(x.flatten(0, 1)) for x in (heads.q, heads.k, heads.v, heads.q_position)
    )
    per_query = none if heads.per_query is None else ragged.pad(heads.per_query.flatten(0, 1), zeros=True)
    for bucket, q, k, v, q_position, values in zip(ragged.buckets, *parts, per_query, strict=True):
        yield Heads(q, k, v, q_position, None if heads.table is None else heads.table[: bucket.length], values)


def _attend_bucket(padded: Heads, key_mask: Tensor | None, p: float, weighting: Weighting | None) -> Tensor:
    """Compute one bucket by matrix products: a long one in chunks, some queries at a time.

    torch's fused CPU kernel takes neither dropout nor values narrower than keys, and is slower at every length.

    RETURNS (Tensor): *Shape:* (sequences, heads, length, head width)
    """
    n, h, length, _ = padded.q.shape
    if length <= MAX_UNCHUNKED_LENGTH:
        return _attend_chunk(padded, key_mask, p, weighting)
    # Memory grows with the length and not with its square: maps are recomputed in the backward pass.
    chunk_size = max(SCORES_PER_CHUNK // (n * h * length), 32)
    none = [None] * -(-length // chunk_size)
    per_chunk: Any = (
        none if x is None else x.split(chunk_size, dim=2) for x in (padded.q, padded.q_position, padded.per_query)
    )
    chunks = (
        padded._replace(q=q, q_position=q_position, per_query=per_query)
        for q, q_position, per_query in zip(*per_chunk, strict=True)
    )
    return torch.cat([checkpointed(_attend_chunk, chunk, key_mask, p, weighting) for chunk in chunks], dim=2)


def _attend_chunk(padded: Heads, key_mask: Tensor | None, p: float, weighting: Weighting | None) -> Tensor:
    """Return the attention output of some queries of a bucket. *Shape:* (sequences, heads, queries, head width)"""
    return torch.matmul(dropout(_attention_map(padded, key_mask, weighting), p, training=True), padded.v)


def _attention_map(padded: Heads, key_mask: Tensor | None, weighting: Weighting | None) -> Tensor:
    """Return the attention map of some queries of a bucket. *Shape:* (sequences, heads, queries, keys)"""
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


def interleave(even: Tensor, odd: Tensor) -> Tensor:
    """Return `[even_0, odd_0, even_1, odd_1, ...]` along the last dimension, the order of eq. 8, 9 and 17."""
    return torch.stack((even, odd), dim=-1).flatten(-2)


def sinusoids(length: int, width: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return `sin(t c_i)` and `cos(t c_i)` for the positions `t < length`, with `c_i = 10000^(-2i / width)`.

    like (Tensor): A tensor whose device and dtype they get.
    RETURNS (Tuple[Tensor, Tensor]): *Shape:* (length, width / 2) each
    """
    # In float32 the angle itself would be off by some 0.004 at position 100,000.
    frequencies = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.outer(torch.arange(length, dtype=torch.float64), frequencies)
    return on_device(angles.sin().to(like.dtype), like.device), on_device(angles.cos().to(like.dtype), like.device)
