"""A batch as rectangles of sequences, for what is computed of all pairs of tokens, channel by channel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..ragged import Ragged

# What one more rectangle costs a GPU, in numbers of pairs that padding may have instead.
NUMBERS_PER_RECTANGLE = 1 << 21


@dataclass(frozen=True)
class Rectangles:
    """The sequences of a batch, those of like length side by side; on a CPU each is alone, as a view.

    ragged: where they lie; None on a CPU.
    """

    lengths: list[int]
    ragged: Ragged | None

    @classmethod
    def of(cls, lengths: Sequence[int], like: Tensor) -> Rectangles:
        if like.is_cpu:
            return cls(list(lengths), None)
        price = NUMBERS_PER_RECTANGLE // max(like.shape[1], 1)
        return cls(list(lengths), Ragged.of(lengths, device=like.device, price=price))

    @property
    def most(self) -> int:
        """How many sequences the largest rectangle has."""
        buckets = () if self.ragged is None else self.ragged.buckets
        return max((len(bucket.sequences) for bucket in buckets), default=1)

    def cut(self, x: Tensor, *, zeros: bool = False) -> list[Tensor]:
        """x: *Shape: [N, w]*. Returns for each rectangle *Shape: [n, T, w]*

        zeros: padding is to be zero, rather than any finite number.
        """
        if self.ragged is None:
            return [part[None] for part in x.split(self.lengths)]
        parts = [part[:, 0] for part in self.ragged.pad(x)]
        if not zeros:
            return parts
        masks = [bucket.mask for bucket in self.ragged.buckets]
        return [part if mask is None else part * mask[:, :, None] for part, mask in zip(parts, masks, strict=True)]

    def join(self, parts: Sequence[Tensor], like: Tensor) -> Tensor:
        """The inverse of `cut`. like: what was cut, which is returned where there is nothing."""
        if not parts:
            return like
        if self.ragged is None:
            return torch.cat([part[0] for part in parts])
        return self.ragged.join([part[:, None] for part in parts])
