"""Batches of sequences with different lengths in torch: padded buckets, and reductions over groups of rows.

Layers that process each token separately, such as linear layers, need no padding. Their input is *flat*: the tokens of
all sequences are concatenated. Only attention needs padding. `Ragged` computes the gather indices for padding once per
batch. Sequences with similar lengths are padded together in a bucket.

For example, sequences with 2, 5, 1 and 4 tokens are padded in two buckets. The dots are padded positions:

    a b|c d e f g|h|i j k l    flat        c d e f g    a b    buckets
                                           i j k l .    h .

`Segments` computes sums, means and softmax over groups of rows, such as the tokens of a sequence, without padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..sequences import Lengths, as_lengths, pad_rows, plan_buckets, ranges, starts
from ..types import BoolArray, FloatArray, IntArray
from .devices_torch import on_device

# The cost of an additional bucket, in token pairs: the bucket takes as long as attention for this number of queries and
# keys.
PAIRS_PER_BUCKET = {"cpu": 8192, "cuda": 1 << 22}


@dataclass(frozen=True)
class Bucket:
    """A padded batch of sequences with similar lengths.

    sequences (tuple[int, ...]): Indices of the sequences, in descending order of length. *Shape:* (sequences,)
    length (int): Maximum sequence length.
    key_mask (Tensor | None): Mask that is added to attention scores: -inf for padded keys, 0 for other keys. None if
        there is no padding. *Shape:* (sequences, 1, 1, length)
    """

    sequences: tuple[int, ...]
    length: int
    key_mask: Tensor | None


@dataclass(frozen=True)
class Ragged:
    """The lengths of all sequences in a batch, and gather indices that add and remove padding.

    The input of multi-head attention has a row for each token and head. Other layers have one row per token.

    lengths (tuple[int, ...]): Sequence lengths in tokens. Sequences may be empty. *Shape:* (sequences,)
    heads (int): Number of rows per token.
    buckets (tuple[Bucket, ...]): The padded buckets, in descending order of length. Empty sequences are skipped.
    positions (Tensor): Position of each token in its sequence. *Shape:* (tokens,)
    to_padded (Tensor): Gather index that adds padding, by repeating a sequence's last token. *Shape:* (padded rows,)
    to_flat (Tensor): Gather index that removes padding. *Shape:* (tokens * heads,)
    mask (Tensor | None): 1 for tokens, 0 for padding. None if there is no padding. *Shape:* (padded rows, 1)
    """

    lengths: tuple[int, ...]
    heads: int
    buckets: tuple[Bucket, ...]
    positions: Tensor
    to_padded: Tensor
    to_flat: Tensor
    mask: Tensor | None

    @classmethod
    def of(
        cls,
        lengths: Lengths,
        *,
        heads: int = 1,
        device: torch.device | str = "cpu",
        n_tokens: int | None = None,
        bucket_cost: int | None = None,
        by_tokens: bool = False,
    ) -> Ragged:
        """Group sequences into padded buckets.

        More buckets need less padding, but each bucket takes additional time.

        lengths (Lengths): Sequence lengths in tokens. *Shape:* (sequences,)
        heads (int): Number of rows per token.
        device (torch.device | str): Target device.
        n_tokens (int | None): The expected total number of tokens, for a check of `lengths`.
        bucket_cost (int | None): The cost of an additional bucket, in token pairs (a query and a key). None for
            `PAIRS_PER_BUCKET`.
        by_tokens (bool): Whether `bucket_cost` is in tokens instead of token pairs. Use this for layers whose running
            time is linear in the sequence length.
        """
        device = torch.device(device)
        if bucket_cost is None:
            bucket_cost = PAIRS_PER_BUCKET["cpu" if device.type == "cpu" else "cuda"]
        sizes = as_lengths(lengths, n_tokens)
        begins = starts(sizes)
        # Attention's running time is quadratic in the sequence length.
        members = plan_buckets(sizes if by_tokens else sizes**2, bucket_cost=bucket_cost)
        buckets, row_of_position, masks = [], [np.zeros(0, np.int64)], [np.zeros(0, np.bool_)]
        for sequences in members:
            tokens, mask = pad_rows(begins[sequences], sizes[sequences])
            # In flat order, a token's heads are adjacent. In a bucket, a head's tokens are adjacent.
            row_of_position.append((tokens[:, None] * heads + np.arange(heads)[:, None]).ravel())
            masks.append(np.repeat(mask, heads, axis=0).ravel())
            key_mask = None if mask.all() else on_device(key_mask_of(mask), device)
            buckets.append(Bucket(tuple(sequences.tolist()), mask.shape[1], key_mask))
        to_padded, is_real = np.concatenate(row_of_position), np.concatenate(masks)
        to_flat = np.empty(sizes.sum() * heads, np.int64)
        to_flat[to_padded[is_real]] = np.flatnonzero(is_real)
        real_mask = None if is_real.all() else on_device(is_real[:, None].astype(np.float32), device)
        return cls(
            tuple(sizes.tolist()),
            heads,
            tuple(buckets),
            on_device(ranges(np.zeros_like(sizes), sizes), device),
            on_device(to_padded, device),
            on_device(to_flat, device),
            real_mask,
        )

    @property
    def longest(self) -> int:
        """Maximum sequence length."""
        return max(self.lengths, default=0)

    def pad(self, x: Tensor, *, zeros: bool = False) -> list[Tensor]:
        """Pad embeddings, and return the padded embeddings in each bucket.

        x (Tensor): Embeddings without padding. *Shape:* (tokens * heads, width)
        zeros (bool): Whether to pad with zeros. If False, padding repeats a sequence's last token, which is faster.
        RETURNS (list[Tensor]): The padded embeddings in each bucket. *Shape:* (sequences, heads, length, width)
        """
        padded_rows = x.index_select(0, self.to_padded)
        if zeros and self.mask is not None:
            padded_rows = padded_rows * self.mask
        shapes = [(len(bucket.sequences), self.heads, bucket.length) for bucket in self.buckets]
        sizes = [n * heads * length for n, heads, length in shapes]
        # Do not split a single bucket, since the backward pass of `split` would copy the gradient.
        parts = padded_rows.split(sizes) if len(sizes) > 1 else (padded_rows,) * len(sizes)
        return [part.view(*shape, x.shape[-1]) for part, shape in zip(parts, shapes, strict=True)]

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """Remove the padding from all buckets, and concatenate the embeddings. This is the inverse of `pad`.

        parts (Sequence[Tensor]): The padded embeddings in each bucket. *Shape:* (sequences, heads, length, width)
        RETURNS (Tensor): Embeddings without padding. *Shape:* (tokens * heads, width)
        """
        rows = [part.reshape(-1, part.shape[-1]) for part in parts]
        padded_rows = rows[0] if len(rows) == 1 else torch.cat(rows)
        return padded_rows.index_select(0, self.to_flat)


def key_mask_of(is_key: BoolArray) -> FloatArray:
    """Convert a boolean mask to a mask that is added to attention scores: -inf for padded keys, 0 for other keys.

    *Shape:* (rows, keys) to (rows, 1, 1, keys)
    """
    return np.where(is_key, np.float32(0.0), np.float32(-np.inf))[:, None, None]


@dataclass(frozen=True)
class Segments:
    """Sums, means and softmax over groups of rows (segments), such as the tokens of each sequence.

    Rows in the same segment do not have to be adjacent, and segments may be empty.

    index (Tensor): Segment index of each row. *Shape:* (rows,)
    members (Tensor): Indices of the rows, sorted by segment. *Shape:* (rows,)
    starts (Tensor): Index in `members` at which each segment starts. *Shape:* (segments,)
    sizes (Tensor): Number of rows in each segment. 1 for empty segments, to avoid division by zero. *Shape:* (segments,
        1)
    """

    index: Tensor
    members: Tensor
    starts: Tensor
    sizes: Tensor

    @classmethod
    def of(cls, index: IntArray, n_segments: int, *, device: torch.device | str = "cpu") -> Segments:
        """Create segments from an array that contains each row's segment index.

        index (IntArray): Segment index of each row. *Shape:* (rows,)
        n_segments (int): Number of segments.
        device (torch.device | str): Target device.
        """
        counts = np.bincount(index, minlength=n_segments)
        arrays = index, np.argsort(index, kind="stable"), starts(counts), np.maximum(counts, 1)[:, None]
        return cls(*(on_device(array, device) for array in arrays))

    @classmethod
    def of_sequences(cls, lengths: Lengths, *, device: torch.device | str = "cpu") -> Segments:
        """Create a segment for each sequence in a concatenated batch.

        lengths (Lengths): Sequence lengths in tokens. *Shape:* (sequences,)
        device (torch.device | str): Target device.
        """
        sizes = as_lengths(lengths)
        return cls.of(np.repeat(np.arange(len(sizes)), sizes), len(sizes), device=device)

    def gather(self, x: Tensor) -> Tensor:
        """Copy each segment's embedding to all rows in the segment. *Shape:* (segments, width) to (rows, width)"""
        return x.index_select(0, self.index)

    def sum(self, x: Tensor) -> Tensor:
        """Sum the rows in each segment. Empty segments have a sum of 0. *Shape:* (rows, width) to (segments, width)"""
        # `embedding_bag` is the fastest segment sum in torch. It is deterministic, since it adds in a fixed order.
        return F.embedding_bag(self.members, x.contiguous(), self.starts, mode="sum")

    def mean(self, x: Tensor) -> Tensor:
        """Average the rows in each segment.

        Empty segments have a mean of 0. *Shape:* (rows, width) to (segments, width)
        """
        return self.sum(x) / self.sizes

    def softmax(self, x: Tensor) -> Tensor:
        """Apply softmax over the rows in each segment, separately for each column. *Shape:* (rows, width)"""
        index = self.index[:, None].expand_as(x)
        highest = x.new_zeros(len(self.starts), x.shape[1])
        highest.scatter_reduce_(0, index, x.detach(), "amax", include_self=False)
        # Subtracting the segment's maximum avoids an overflow, and does not change the result.
        exponentials = (x - highest.index_select(0, self.index)).exp()
        return exponentials / self.gather(self.sum(exponentials))
