"""Multi-head attention in torch for sequences with different lengths, and sinusoidal position embeddings.

`Attention` is the base class for the attention modules of TENER and FLAT-ATSSA. Subclasses compute queries, keys and
values in the method `heads`. The function `attend` pads the sequences, computes the attention weights and the outputs,
and removes the padding. `sinusoids` computes the sines and cosines in TENER, eq. 8, 9 and 17.
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

# If a sequence is longer than this, its queries are processed in chunks, and each chunk is recomputed in the backward
# pass. Memory therefore grows linearly with the sequence length, instead of quadratically.
MAX_UNCHUNKED_LENGTH = 512
# Number of attention scores in a chunk, about as many as fit into the CPU cache.
SCORES_PER_CHUNK = 1 << 20

# Functions that compute attention weights from attention scores, as an alternative to softmax. Arguments:
# - Attention scores, -inf for padded keys. *Shape:* (sequences, heads, queries, keys)
# - `Heads.per_query`, 0 for padded queries. *Shape:* (sequences, heads, queries, values)
Weighting = Callable[[Tensor, Tensor | None], Tensor]


class Heads(NamedTuple):
    """Queries, keys and values for multi-head attention, with optional position embeddings.

    The attention output is `softmax(q k^T + q_position table^T) v`. If a model scales its attention by `1/sqrt(d)`, it
    has to scale the queries.

    q (Tensor): Queries that are multiplied by the keys. *Shape:* (tokens, heads, width)
    k (Tensor): Keys. *Shape:* (tokens, heads, width)
    v (Tensor): Values. *Shape:* (tokens, heads, head width)
    q_position (Tensor | None): Queries that are multiplied by the position embeddings. None for attention without
        position embeddings. *Shape:* (tokens, heads, position width)
    table (Tensor | None): Position embeddings of the keys. *Shape:* (longest, position width)
    per_query (Tensor | None): Values for each query that are passed to the weighting function, such as thresholds.
        *Shape:* (tokens, heads, values)
    """

    q: Tensor
    k: Tensor
    v: Tensor
    q_position: Tensor | None = None
    table: Tensor | None = None
    per_query: Tensor | None = None


class Attention(nn.Module, ABC):
    """Base class for multi-head attention modules. Subclasses compute queries, keys and values in the method `heads`.

    n_heads (int): Number of attention heads.
    dropout (float): Attention dropout rate.
    """

    def __init__(self, *, n_heads: int, dropout: float) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.dropout = dropout

    @abstractmethod
    def heads(self, x: Tensor, *context: Any) -> Heads:
        """Compute the queries, keys and values.

        x (Tensor): Token embeddings. *Shape:* (tokens, width)
        context (Any): Additional arguments that were passed to `forward`.
        """

    def forward(self, x: Tensor, ragged: Ragged, *context: Any) -> Tensor:
        """Compute attention within each sequence. *Shape:* (tokens, width) to (tokens, width)

        x (Tensor): Concatenated token embeddings.
        ragged (Ragged): The padded buckets, created with this module's number of attention heads.
        context (Any): Additional arguments for the method `heads`, such as relative positions.
        """
        p = self.dropout if self.training else 0.0
        return attend(self.heads(x, *context), ragged, p, self.weighting(sampled=self.training))

    def weighting(self, *, sampled: bool) -> Weighting | None:
        """Return a function that computes attention weights from attention scores, or None for softmax.

        sampled (bool): Whether the weights may be sampled, as in training. If False, they must be deterministic.
        """
        return None


def checkpointed(function: Callable[..., Tensor], *inputs: Any) -> Tensor:
    """Call a function with gradient checkpointing: its result is recomputed in the backward pass, to save memory.

    The recomputation uses the same random numbers, so that dropout masks are the same.

    function (Callable): The function.
    inputs (Any): The arguments. They must be tensors or named tuples of tensors, since torch searches the arguments for
        the GPU whose random state it has to restore.
    """
    if not torch.is_grad_enabled():
        return function(*inputs)
    result: Tensor = checkpoint(function, *inputs, use_reentrant=False)
    return result


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """Split embeddings into attention heads. *Shape:* (tokens, width) to (tokens, heads, head width)"""
    return x.view(x.shape[0], n_heads, x.shape[1] // n_heads)


def attend(heads: Heads, ragged: Ragged, p: float, weighting: Weighting | None = None) -> Tensor:
    """Compute multi-head attention within each sequence in a batch.

    heads (Heads): Queries, keys and values.
    ragged (Ragged): The sequence lengths, grouped into padded buckets.
    p (float): Attention dropout rate.
    weighting (Weighting | None): Function that computes attention weights from attention scores. None for softmax.
    RETURNS (Tensor): The concatenated head outputs. *Shape:* (tokens, width)
    """
    if not ragged.buckets:
        return heads.v.flatten(1)
    padded = zip(_pad(heads, ragged), ragged.buckets, strict=True)
    attended = [_attend_bucket(heads_of_bucket, bucket.key_mask, p, weighting) for heads_of_bucket, bucket in padded]
    return ragged.join(attended).view(heads.v.shape[0], -1)


def _pad(heads: Heads, ragged: Ragged) -> Iterator[Heads]:
    """Pad queries, keys and values, and yield them for each bucket.

    *Shape:* (sequences, heads, length, width) for all tensors except `table`
    """
    none = [None] * len(ragged.buckets)
    parts: Any = (
        none if x is None else ragged.pad(x.flatten(0, 1)) for x in (heads.q, heads.k, heads.v, heads.q_position)
    )
    per_query = none if heads.per_query is None else ragged.pad(heads.per_query.flatten(0, 1), zeros=True)
    for bucket, q, k, v, q_position, values in zip(ragged.buckets, *parts, per_query, strict=True):
        yield Heads(q, k, v, q_position, None if heads.table is None else heads.table[: bucket.length], values)


def _attend_bucket(padded: Heads, key_mask: Tensor | None, p: float, weighting: Weighting | None) -> Tensor:
    """Compute attention for one bucket. Long sequences are processed in chunks of queries.

    torch's `scaled_dot_product_attention` is not used on a CPU, since it supports neither dropout nor values with a
    different width than keys. In our measurements, it was slower for all sequence lengths.

    RETURNS (Tensor): *Shape:* (sequences, heads, length, head width)
    """
    n, h, length, _ = padded.q.shape
    if length <= MAX_UNCHUNKED_LENGTH:
        return _attend_chunk(padded, key_mask, p, weighting)
    # Use at least 32 queries per chunk, so that matrix products are efficient even for extremely long sequences.
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
    """Compute attention for a chunk of queries. *Shape:* (sequences, heads, queries, head width)"""
    return torch.matmul(dropout(_attention_map(padded, key_mask, weighting), p, training=True), padded.v)


def _attention_map(padded: Heads, key_mask: Tensor | None, weighting: Weighting | None) -> Tensor:
    """Compute the attention weights for a chunk of queries. *Shape:* (sequences, heads, queries, keys)"""
    shape = (*padded.q.shape[:3], padded.k.shape[2])
    q, keys = padded.q.flatten(0, 1), padded.k.flatten(0, 1).transpose(1, 2)
    if padded.q_position is None or padded.table is None:
        scores = torch.bmm(q, keys)
    else:
        # The position embeddings are the same for all sequences and heads, so a single matrix product computes the
        # position scores. `baddbmm_` adds `q k^T` in place.
        scores = torch.matmul(padded.q_position.flatten(0, 2), padded.table.T).view(*q.shape[:2], -1).baddbmm_(q, keys)
    scores = scores.view(shape)
    if key_mask is not None:
        scores += key_mask
    return torch.softmax(scores, dim=-1) if weighting is None else weighting(scores, padded.per_query)


def interleave(even: Tensor, odd: Tensor) -> Tensor:
    """Interleave two tensors along the last dimension: `[even_0, odd_0, even_1, odd_1, ...]`.

    Position embeddings contain sines and cosines in this order (TENER, eq. 8, 9, 17).
    """
    return torch.stack((even, odd), dim=-1).flatten(-2)


def sinusoids(length: int, width: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sines and cosines of sinusoidal position embeddings (TENER, eq. 8, 9).

    The values at position `t` are `sin(t c_i)` and `cos(t c_i)`, with `c_i = 10000^(-2i / width)`.

    length (int): Number of positions.
    width (int): Width of the position embeddings, which must be even.
    like (Tensor): A tensor with the result's device and dtype.
    RETURNS (Tuple[Tensor, Tensor]): The sines and the cosines. *Shape:* (length, width / 2) each
    """
    # Use float64. In float32, the angle at position 100,000 would have a rounding error of about 0.004.
    frequencies = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.outer(torch.arange(length, dtype=torch.float64), frequencies)
    return on_device(angles.sin().to(like.dtype), like.device), on_device(angles.cos().to(like.dtype), like.device)
