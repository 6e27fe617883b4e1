"""Rows that belong to segments: give each row what its segment has, or sum up each segment's rows.

The two are each other's transpose, so each is the other's gradient: a gather one way, sums of gathered rows the other
way, and neither scatters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..batching.sequences import Lengths, as_lengths, starts
from ..types import IntArray
from .devices import on_device


@dataclass(frozen=True)
class Segments:
    """Which of `n` segments each of `m` rows belongs to; a segment may be empty.

    index: the segment of each row. *Shape: [m]*
    members: the rows, segment after segment. *Shape: [m]*
    starts: where each segment begins in `members`. *Shape: [n]*
    sizes: rows of each segment; 1 for an empty one, so that it can be divided by. *Shape: [n, 1]*
    """

    index: Tensor
    members: Tensor
    starts: Tensor
    sizes: Tensor

    @classmethod
    def of(cls, index: IntArray, n_segments: int, *, device: torch.device | str = "cpu") -> Segments:
        counts = np.bincount(index, minlength=n_segments)
        parts = (index, np.argsort(index, kind="stable"), starts(counts), np.maximum(counts, 1)[:, None])
        return cls(*(on_device(part, device) for part in parts))

    @classmethod
    def of_sequences(cls, lengths: Lengths, *, device: torch.device | str = "cpu") -> Segments:
        """Each sequence is a segment, its tokens are its rows."""
        sizes = as_lengths(lengths)
        return cls.of(np.repeat(np.arange(len(sizes)), sizes), len(sizes), device=device)

    def gather(self, x: Tensor) -> Tensor:
        """What its segment has, for each row. x: *Shape: [n, w]*. Returns *Shape: [m, w]*"""
        rows: Tensor = _Transposed.apply(x, self, _gather, _sum)  # type: ignore[no-untyped-call]
        return rows

    def sum(self, x: Tensor) -> Tensor:
        """The sum of each segment's rows, 0 for an empty segment. x: *Shape: [m, w]*. Returns *Shape: [n, w]*"""
        sums: Tensor = _Transposed.apply(x, self, _sum, _gather)  # type: ignore[no-untyped-call]
        return sums

    def mean(self, x: Tensor) -> Tensor:
        """The mean of each segment's rows, 0 for an empty segment. x: *Shape: [m, w]*. Returns *Shape: [n, w]*"""
        return self.sum(x) / self.sizes

    def softmax(self, x: Tensor) -> Tensor:
        """Softmax over the rows of each segment, column by column. x: *Shape: [m, w]*. Returns *Shape: [m, w]*"""
        index = self.index[:, None].expand_as(x)
        highest = x.new_zeros(len(self.starts), x.shape[1])
        highest.scatter_reduce_(0, index, x.detach(), "amax", include_self=False)
        exponentials = (x - highest.index_select(0, self.index)).exp()
        return exponentials / self.gather(self.sum(exponentials))


def _gather(x: Tensor, segments: Segments) -> Tensor:
    return x.index_select(0, segments.index)


def _sum(x: Tensor, segments: Segments) -> Tensor:
    # The fastest of torch's sums over segments, in a fixed order on every device.
    return F.embedding_bag(segments.members, x.contiguous(), segments.starts, mode="sum")


class _Transposed(torch.autograd.Function):
    """One of two operations that are each other's transpose."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, segments: Segments, operation: Any, transpose: Any) -> Tensor:
        ctx.segments, ctx.transpose = segments, transpose
        result: Tensor = operation(x, segments)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.transpose(gradients[0], ctx.segments), None, None, None
