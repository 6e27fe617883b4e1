"""Multi-head attention within sequences of different lengths, and sinusoidal position embeddings, in torch.

`Attention` is the base class of the attention of TENER and of FLAT-ATSSA. A subclass computes queries, keys and values
in `heads`; `attend` does the rest: it pads the sequences, computes their attention maps, and removes the padding.
`sinusoids` has the sines and cosines of TENER's eq. 8, 9 and 17.
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

# Attention over longer sequences is computed in chunks of queries, and each chunk is recomputed in the backward pass.
# So memory grows linearly with the length.
MAX_UNCHUNKED_LENGTH = 512
# Number of attention scores in a chunk: about as many as fit into a core's cache.
SCORES_PER_CHUNK = 1 << 20

# A function that computes attention weights from scores, instead of softmax. Its arguments are:
# - the scores, -inf for padded keys. *Shape:* (sequences, heads, queries, keys)
# - `Heads.per_query`, 0 for padded queries. *Shape:* (sequences, heads, queries, values)
Weighting = Callable[[Tensor, Tensor | None], Tensor]


class Heads(NamedTuple):
    """Queries, keys and values, split into heads. The output is `softmax(q k^T + q_position table^T) v`, so that a
    scale of the scores must be in the queries.

    q (Tensor): Queries that are multiplied with keys. *Shape:* (tokens, heads, width)
    k (Tensor): Keys. *Shape:* (tokens, heads, width)
    v (Tensor): Values. *Shape:* (tokens, heads, head width)
    q_position (Tensor | None): Queries that are multiplied with position embeddings. None for attention without
        relative positions. *Shape:* (tokens, heads, position width)
    table (Tensor | None): The embedding of each position of a key. *Shape:* (longest, position width)
    per_query (Tensor | None): Values of each query for a `Weighting`. *Shape:* (tokens, heads, values)
    """

    q: Tensor
    k: Tensor
    v: Tensor
    q_position: Tensor | None = None
    table: Tensor | None = None
    per_query: Tensor | None = None


class Attention(nn.Module, ABC):
    """Base class of multi-head attention. A subclass computes queries, keys and values in `heads`.

    n_heads (int): Number of heads h.
    dropout (float): Attention dropout rate.
    """

    def __init__(self, *, n_heads: int, dropout: float) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.dropout = dropout

    @abstractmethod
    def heads(self, x: Tensor, *context: Any) -> Heads:
        """Compute queries, keys and values.

        x (Tensor): *Shape:* (tokens, width)
        context (Any): The additional arguments of `forward`.
        """

    def forward(self, x: Tensor, ragged: Ragged, *context: Any) -> Tensor:
        """Compute attention within each sequence. *Shape:* (tokens, width) to (tokens, width)

        x (Tensor): The concatenated tokens.
        ragged (Ragged): The sequences, planned for this number of heads.
        context (Any): Additional arguments of `heads`, such as relative positions.
        """
        p = self.dropout if self.training else 0.0
        return attend(self.heads(x, *context), ragged, p, self.weighting(sampled=self.training))

    def weighting(self, *, sampled: bool) -> Weighting | None:
        """Return the function that computes attention weights from scores, or None for softmax.

        sampled (bool): Whether the weights are for training, and may be sampled.
        """
        return None


def checkpointed(function: Callable[..., Tensor], *inputs: Any) -> Tensor:
    """Return `function(*inputs)`, and recompute it in the backward pass with the same random numbers, to save memory.

    inputs (Any): Tensors, or named tuples of tensors. torch finds the GPU, whose random state it has to restore, only
        from tensors in tuples, lists and dicts.
    """
    if not torch.is_grad_enabled():
        return function(*inputs)
    result: Tensor = checkpoint(function, *inputs, use_reentrant=False)
    return result


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """Split the last dimension into heads. *Shape:* (tokens, width) to (tokens, heads, head width)"""
    return x.view(x.shape[0], n_heads, x.shape[1] // n_heads)


def attend(heads: Heads, ragged: Ragged, p: float, weighting: Weighting | None = None) -> Tensor:
    """Compute attention within each sequence.

    heads (Heads): Queries, keys and values.
    ragged (Ragged): The sequences.
    p (float): Attention dropout rate.
    weighting (Weighting | None): The function from scores to attention weights. None for softmax.
    RETURNS (Tensor): The heads' outputs, concatenated. *Shape:* (tokens, width)
    """
    if not ragged.buckets:
        return heads.v.flatten(1)
    padded = zip(_pad(heads, ragged), ragged.buckets, strict=True)
    attended = [_attend_bucket(heads_of_bucket, bucket.key_mask, p, weighting) for heads_of_bucket, bucket in padded]
    return ragged.join(attended).view(heads.v.shape[0], -1)


def _pad(heads: Heads, ragged: Ragged) -> Iterator[Heads]:
    """Yield the padded heads of each bucket. *Shape:* (sequences, heads, length, ..), except for `table`"""
    none = [None] * len(ragged.buckets)
    parts: Any = (
        none if x is None else ragged.pad(x.flatten(0, 1)) for x in (heads.q, heads.k, heads.v, heads.q_position)
    )
    per_query = none if heads.per_query is None else ragged.pad(heads.per_query.flatten(0, 1), zeros=True)
    for bucket, q, k, v, q_position, values in zip(ragged.buckets, *parts, per_query, strict=True):
        yield Heads(q, k, v, q_position, None if heads.table is None else heads.table[: bucket.length], values)


def _attend_bucket(padded: Heads, key_mask: Tensor | None, p: float, weighting: Weighting | None) -> Tensor:
    """Compute the attention of one bucket, in chunks of queries if its sequences are long.

    torch's `scaled_dot_product_attention` isn't used on a CPU: it supports neither dropout nor values that are narrower
    than keys, and was slower at every length.

    RETURNS (Tensor): *Shape:* (sequences, heads, length, head width)
    """
    n, h, length, _ = padded.q.shape
    if length <= MAX_UNCHUNKED_LENGTH:
        return _attend_chunk(padded, key_mask, p, weighting)
    # At least 32 queries per chunk, so that matrix products stay efficient even in extremely long sequences.
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
    """Compute the attention of some queries of a bucket. *Shape:* (sequences, heads, queries, head width)"""
    return torch.matmul(dropout(_attention_map(padded, key_mask, weighting), p, training=True), padded.v)


def _attention_map(padded: Heads, key_mask: Tensor | None, weighting: Weighting | None) -> Tensor:
    """Compute the attention weights of some queries of a bucket. *Shape:* (sequences, heads, queries, keys)"""
    shape = (*padded.q.shape[:3], padded.k.shape[2])
    q, keys = padded.q.flatten(0, 1), padded.k.flatten(0, 1).transpose(1, 2)
    if padded.q_position is None or padded.table is None:
        scores = torch.bmm(q, keys)
    else:
        # All heads and sequences have the same table, so one matrix product is enough. `baddbmm_` adds q k^T in place.
        scores = torch.matmul(padded.q_position.flatten(0, 2), padded.table.T).view(*q.shape[:2], -1).baddbmm_(q, keys)
    scores = scores.view(shape)
    if key_mask is not None:
        scores += key_mask
    return torch.softmax(scores, dim=-1) if weighting is None else weighting(scores, padded.per_query)


def interleave(even: Tensor, odd: Tensor) -> Tensor:
    """Return `[even_0, odd_0, even_1, odd_1, ...]` along the last dimension: the order of sines and cosines in eq. 8,
    9, 17.
    """
    return torch.stack((even, odd), dim=-1).flatten(-2)


def sinusoids(length: int, width: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return `sin(t c_i)` and `cos(t c_i)` for the positions `t < length`, with `c_i = 10000^(-2i / width)`.

    length (int): Number of positions.
    width (int): Width of the position embeddings, which must be even.
    like (Tensor): A tensor with the device and the dtype of the result.
    RETURNS (Tuple[Tensor, Tensor]): *Shape:* (length, width / 2) each
    """
    # In float32, the angle of position 100,000 would have a rounding error of about 0.004.
    frequencies = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.outer(torch.arange(length, dtype=torch.float64), frequencies)
    return on_device(angles.sin().to(like.dtype), like.device), on_device(angles.cos().to(like.dtype), like.device)
