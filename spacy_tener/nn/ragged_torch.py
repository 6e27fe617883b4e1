"""Batches of sequences with different lengths in torch: padding into buckets, and operations on groups of rows.

Layers that transform each token alone (linear layers, layer norm, feed-forward) work on *flat* rows: the tokens of all
sequences, concatenated without padding. Attention is the only part that needs padding. `Ragged` plans it once per
batch: sequences of similar lengths are padded in a common bucket, and adding or removing the padding is a single
gather. Sequences of 2, 5, 1 and 4 tokens in two buckets, with padding at the dots:

    a b|c d e f g|h|i j k l    flat        c d e f g    a b    buckets
                                           i j k l .    h .

`Segments` has sums, means and softmax over groups of rows, without padding.
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

# Cost of one more bucket, in pairs of tokens: its dozen operations take as long as attention over this number of pairs.
PAIRS_PER_BUCKET = {"cpu": 8192, "cuda": 1 << 22}


@dataclass(frozen=True)
class Bucket:
    """A padded batch of sequences with similar lengths.

    sequences (tuple[int, ...]): Indices of the sequences in the batch, beginning with the longest. *Shape:*
        (sequences,)
    length (int): Maximum sequence length.
    key_mask (Tensor | None): Mask that is added to attention scores: -inf for padded keys, 0 for others. None without
        padding. *Shape:* (sequences, 1, 1, length)
    """

    sequences: tuple[int, ...]
    length: int
    key_mask: Tensor | None


@dataclass(frozen=True)
class Ragged:
    """A batch of sequences, with the indices for padding them. Each token may consist of several rows, its heads.

    lengths (tuple[int, ...]): Token count per sequence, which may be 0. *Shape:* (sequences,)
    heads (int): Number of rows for each token.
    buckets (tuple[Bucket, ...]): The buckets, beginning with the longest sequences. Sequences without tokens are left
        out.
    positions (Tensor): Position of each token in its sequence. *Shape:* (tokens,)
    to_padded (Tensor): Gather index of padding: the flat row in each padded row. Padding repeats the last token of its
        sequence. *Shape:* (padded rows,)
    to_flat (Tensor): Gather index that removes the padding: the padded row of each flat row. *Shape:* (tokens * heads,)
    mask (Tensor | None): 1 for tokens, 0 for padding. None without padding. *Shape:* (padded rows, 1)
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
        """Divide sequences into buckets.

        lengths (Lengths): Token count per sequence. *Shape:* (sequences,)
        heads (int): Number of rows for each token.
        device (torch.device | str): Device for the tensors.
        n_tokens (int | None): The expected sum of the lengths, to check them.
        bucket_cost (int | None): Cost of one more bucket, in pairs of tokens. None for `PAIRS_PER_BUCKET`.
        by_tokens (bool): Whether `bucket_cost` is in tokens, for layers whose computing time grows linearly with the
            length.
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
        """Length of the longest sequence."""
        return max(self.lengths, default=0)

    def pad(self, x: Tensor, *, zeros: bool = False) -> list[Tensor]:
        """Pad flat rows.

        x (Tensor): *Shape:* (tokens * heads, width)
        zeros (bool): Pad with zeros. Otherwise padding repeats the last token of its sequence, which is faster.
        RETURNS (list[Tensor]): The padded rows of each bucket. *Shape:* (sequences, heads, length, width)
        """
        padded_rows = x.index_select(0, self.to_padded)
        if zeros and self.mask is not None:
            padded_rows = padded_rows * self.mask
        shapes = [(len(bucket.sequences), self.heads, bucket.length) for bucket in self.buckets]
        sizes = [n * heads * length for n, heads, length in shapes]
        # A single bucket is not split, since the backward pass of `split` would copy the gradient.
        parts = padded_rows.split(sizes) if len(sizes) > 1 else (padded_rows,) * len(sizes)
        return [part.view(*shape, x.shape[-1]) for part, shape in zip(parts, shapes, strict=True)]

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """Remove the padding. This is the inverse of `pad`.

        parts (Sequence[Tensor]): The padded rows of each bucket. *Shape:* (sequences, heads, length, width)
        RETURNS (Tensor): *Shape:* (tokens * heads, width)
        """
        rows = [part.reshape(-1, part.shape[-1]) for part in parts]
        padded_rows = rows[0] if len(rows) == 1 else torch.cat(rows)
        return padded_rows.index_select(0, self.to_flat)


def key_mask_of(is_key: BoolArray) -> FloatArray:
    """Return a mask that is added to attention scores: -inf for padded keys, 0 for others.

    *Shape:* (rows, keys) to (rows, 1, 1, keys)
    """
    return np.where(is_key, np.float32(0.0), np.float32(-np.inf))[:, None, None]


@dataclass(frozen=True)
class Segments:
    """Groups of rows, the segments: for example, the tokens of each sequence. Segments may be empty.

    `gather` returns the segment's row for each row. `sum`, `mean` and `softmax` compute over the rows of each segment.

    index (Tensor): Each row's segment. *Shape:* (rows,)
    members (Tensor): The rows, ordered by their segment. *Shape:* (rows,)
    starts (Tensor): Index of each segment's first row in `members`. *Shape:* (segments,)
    sizes (Tensor): Number of rows of each segment. It is 1 for empty segments, as a divisor. *Shape:* (segments, 1)
    """

    index: Tensor
    members: Tensor
    starts: Tensor
    sizes: Tensor

    @classmethod
    def of(cls, index: IntArray, n_segments: int, *, device: torch.device | str = "cpu") -> Segments:
        """Create segments from the segment of each row.

        index (IntArray): Each row's segment. *Shape:* (rows,)
        n_segments (int): Number of segments.
        device (torch.device | str): Device for the tensors.
        """
        counts = np.bincount(index, minlength=n_segments)
        arrays = index, np.argsort(index, kind="stable"), starts(counts), np.maximum(counts, 1)[:, None]
        return cls(*(on_device(array, device) for array in arrays))

    @classmethod
    def of_sequences(cls, lengths: Lengths, *, device: torch.device | str = "cpu") -> Segments:
        """Create a segment for each sequence, which has the sequence's tokens."""
        sizes = as_lengths(lengths)
        return cls.of(np.repeat(np.arange(len(sizes)), sizes), len(sizes), device=device)

    def gather(self, x: Tensor) -> Tensor:
        """Return the segment's row for each row. *Shape:* (segments, width) to (rows, width)"""
        return x.index_select(0, self.index)

    def sum(self, x: Tensor) -> Tensor:
        """Return the sum of each segment, 0 for an empty one. *Shape:* (rows, width) to (segments, width)"""
        # `embedding_bag` is the fastest way to sum over segments in torch, and adds in a fixed order on every device.
        return F.embedding_bag(self.members, x.contiguous(), self.starts, mode="sum")

    def mean(self, x: Tensor) -> Tensor:
        """Return the mean of each segment, 0 for an empty one. *Shape:* (rows, width) to (segments, width)"""
        return self.sum(x) / self.sizes

    def softmax(self, x: Tensor) -> Tensor:
        """Compute softmax over the rows of each segment, column by column. *Shape:* (rows, width)"""
        index = self.index[:, None].expand_as(x)
        highest = x.new_zeros(len(self.starts), x.shape[1])
        highest.scatter_reduce_(0, index, x.detach(), "amax", include_self=False)
        exponentials = (x - highest.index_select(0, self.index)).exp()
        return exponentials / self.gather(self.sum(exponentials))
