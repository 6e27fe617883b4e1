"""Rows that belong to groups: give each row what its group has, or add up each group's rows.

The two are each other's transpose, so each is the other's gradient: a gather one way, sums of gathered rows the other
way, and neither scatters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Segments:
    """Which of `n` groups each of `m` rows belongs to; a group may be empty.

    index: the group of each row. *Shape: [m]*
    members: the rows, group after group. *Shape: [m]*
    starts: where each group begins in `members`. *Shape: [n]*
    """

    index: Tensor
    members: Tensor
    starts: Tensor

    @classmethod
    def of(cls, index: NDArray[np.int64], n_groups: int, *, device: torch.device | str = "cpu") -> Segments:
        counts = np.bincount(index, minlength=n_groups)
        parts = (index, np.argsort(index, kind="stable"), np.cumsum(counts) - counts)
        return cls(*(torch.from_numpy(part).to(device, non_blocking=True) for part in parts))

    def spread(self, x: Tensor) -> Tensor:
        """What its group has, for each row. x: *Shape: [n, w]*. Returns *Shape: [m, w]*"""
        rows: Tensor = _Spread.apply(x, self)  # type: ignore[no-untyped-call]
        return rows

    def total(self, x: Tensor) -> Tensor:
        """The sum of each group's rows, 0 for an empty group. x: *Shape: [m, w]*. Returns *Shape: [n, w]*"""
        sums: Tensor = _Total.apply(x, self)  # type: ignore[no-untyped-call]
        return sums

    def softmax(self, x: Tensor) -> Tensor:
        """Shares of the rows within their group, column by column. x: *Shape: [m, w]*. Returns *Shape: [m, w]*"""
        index = self.index[:, None].expand_as(x)
        highest = x.new_zeros(len(self.starts), x.shape[1])
        highest.scatter_reduce_(0, index, x.detach(), "amax", include_self=False)
        exponentials = (x - highest.index_select(0, self.index)).exp()
        return exponentials / self.spread(self.total(exponentials))


def _spread(x: Tensor, groups: Segments) -> Tensor:
    return x.index_select(0, groups.index)


def _total(x: Tensor, groups: Segments) -> Tensor:
    # The fastest of torch's sums over groups, in a fixed order on every device.
    return F.embedding_bag(groups.members, x, groups.starts, mode="sum")


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, groups: Segments) -> Tensor:
        ctx.groups = groups
        return _spread(x, groups)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _total(gradients[0].contiguous(), ctx.groups), None


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, groups: Segments) -> Tensor:
        ctx.groups = groups
        return _total(x, groups)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _spread(gradients[0], ctx.groups), None
