"""Padding of sequences of different lengths: from one flat array to a few padded buckets, and back.

Token-wise layers (linear layers, norms, feed-forward) work on flat rows, those of all tokens of a batch. Only attention
needs padding. `Ragged` plans it once per batch: sequences of similar length share a bucket, and padding and joining are
one gather each. The rows of sequences of 2, 5, 1 and 4 tokens, and how they fill two buckets, with padding at the dots:

    a b|c d e f g|h|i j k l    flat        c d e f g    a b    buckets
                                           i j k l .    h .
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

PAIRS_PER_BUCKET = {"cpu": 8192, "cuda": 1 << 22}
"""Cost of one more bucket, in pairs of tokens: its dozen operations take as long as attention over so many pairs."""


@dataclass(frozen=True)
class Bucket:
    """One padded batch of sequences of similar length.

    sequences (tuple[int, ...]): Indices of its sequences in the batch, the longest first. *Shape:* (sequences,)
    length (int): Length of the longest sequence.
    key_mask (Tensor | None): Added to scores, -inf at padded keys, else 0; None if there is no padding.
        *Shape:* (sequences, 1, 1, length)
    """

    sequences: tuple[int, ...]
    length: int
    key_mask: Tensor | None


@dataclass(frozen=True)
class Ragged:
    """A batch of sequences, each token split into `heads` rows, planned into buckets.

    lengths (tuple[int, ...]): Tokens of each sequence; 0 is legal. *Shape:* (sequences,)
    heads (int): Rows per token.
    buckets (tuple[Bucket, ...]): Longest first; sequences without tokens are in none of them.
    positions (Tensor): Each token's position in its sequence. *Shape:* (tokens,)
    to_padded (Tensor): The flat row of each padded row; for padding, its sequence's last token. *Shape:* (padded rows,)
    to_flat (Tensor): The padded row of each flat row. *Shape:* (tokens * heads,)
    mask (Tensor | None): 1 at real tokens, 0 at padding, or None if there is no padding. *Shape:* (padded rows, 1)
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
        """Plan the buckets.

        n_tokens (int | None): Number of tokens, to check the lengths against.
        bucket_cost (int | None): Cost of one more bucket, in pairs of tokens; None for the cost in attention.
        by_tokens (bool): True if the cost is in tokens, for layers whose time grows with tokens, not with pairs of
            them.
        """
        device = torch.device(device)
        if bucket_cost is None:
            bucket_cost = PAIRS_PER_BUCKET["cpu" if device.type == "cpu" else "cuda"]
        sizes = as_lengths(lengths, n_tokens)
        begins = starts(sizes)
        members = plan_buckets(sizes if by_tokens else sizes**2, bucket_cost=bucket_cost)
        buckets, row_of_position, masks = [], [np.zeros(0, np.int64)], [np.zeros(0, np.bool_)]
        for sequences in members:
            tokens, mask = pad_rows(begins[sequences], sizes[sequences])
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
        return max(self.lengths, default=0)

    def pad(self, x: Tensor, *, zeros: bool = False) -> list[Tensor]:
        """Pad flat rows, bucket by bucket. Padding holds a finite filler, the last row of its sequence.

        x (Tensor): *Shape:* (tokens * heads, width)
        zeros (bool): Pad with zeros.
        RETURNS (list[Tensor]): *Shape:* (sequences, heads, length, width) for each bucket
        """
        padded_rows = x.index_select(0, self.to_padded)
        if zeros and self.mask is not None:
            padded_rows = padded_rows * self.mask
        shapes = [(len(bucket.sequences), self.heads, bucket.length) for bucket in self.buckets]
        sizes = [n * heads * length for n, heads, length in shapes]
        # Without a split if there is one bucket: its gradient would be a copy.
        parts = padded_rows.split(sizes) if len(sizes) > 1 else (padded_rows,) * len(sizes)
        return [part.view(*shape, x.shape[-1]) for part, shape in zip(parts, shapes, strict=True)]

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """Undo `pad`: drop the padding, and join the buckets.

        parts (Sequence[Tensor]): *Shape:* (sequences, heads, length, width) for each bucket
        RETURNS (Tensor): *Shape:* (tokens * heads, width)
        """
        rows = [part.reshape(-1, part.shape[-1]) for part in parts]
        padded_rows = rows[0] if len(rows) == 1 else torch.cat(rows)
        return padded_rows.index_select(0, self.to_flat)


def key_mask_of(is_key: BoolArray) -> FloatArray:
    """Return what is added to scores: -inf at padded keys, else 0. *Shape:* (rows, keys) to (rows, 1, 1, keys)"""
    return np.where(is_key, np.float32(0.0), np.float32(-np.inf))[:, None, None]


@dataclass(frozen=True)
class Segments:
    """Assignment of rows to segments, of which some may be empty.

    `gather` gives each row that of its segment; `sum` adds up the rows of each segment.

    index (Tensor): The segment of each row. *Shape:* (rows,)
    members (Tensor): The rows, segment after segment. *Shape:* (rows,)
    starts (Tensor): Where each segment begins in `members`. *Shape:* (segments,)
    sizes (Tensor): Rows of each segment; 1 for an empty one, so that it can be divided by. *Shape:* (segments, 1)
    """

    index: Tensor
    members: Tensor
    starts: Tensor
    sizes: Tensor

    @classmethod
    def of(cls, index: IntArray, n_segments: int, *, device: torch.device | str = "cpu") -> Segments:
        """Make the segments, from that of each row. *Shape:* (rows,)"""
        counts = np.bincount(index, minlength=n_segments)
        arrays = index, np.argsort(index, kind="stable"), starts(counts), np.maximum(counts, 1)[:, None]
        return cls(*(on_device(array, device) for array in arrays))

    @classmethod
    def of_sequences(cls, lengths: Lengths, *, device: torch.device | str = "cpu") -> Segments:
        """Make segments of sequences: the rows of each are its tokens."""
        sizes = as_lengths(lengths)
        return cls.of(np.repeat(np.arange(len(sizes)), sizes), len(sizes), device=device)

    def gather(self, x: Tensor) -> Tensor:
        """Return the segment's row for each row. *Shape:* (segments, width) to (rows, width)"""
        return x.index_select(0, self.index)

    def sum(self, x: Tensor) -> Tensor:
        """Return the sum of each segment's rows, 0 for an empty one. *Shape:* (rows, width) to (segments, width)"""
        # The fastest of torch's sums over segments, in a fixed order on every device.
        return F.embedding_bag(self.members, x.contiguous(), self.starts, mode="sum")

    def mean(self, x: Tensor) -> Tensor:
        """Return the mean of each segment's rows, 0 for an empty one. *Shape:* (rows, width) to (segments, width)"""
        return self.sum(x) / self.sizes

    def softmax(self, x: Tensor) -> Tensor:
        """Return the softmax over the rows of each segment, column by column. *Shape:* (rows, width)"""
        index = self.index[:, None].expand_as(x)
        highest = x.new_zeros(len(self.starts), x.shape[1])
        highest.scatter_reduce_(0, index, x.detach(), "amax", include_self=False)
        exponentials = (x - highest.index_select(0, self.index)).exp()
        return exponentials / self.gather(self.sum(exponentials))
