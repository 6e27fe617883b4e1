"""The plan of a batch of lattices on torch's device."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from ...plans import span_plan
from ...plans.lattice import Lattice
from ...plans.span_plan import QueryGroup
from ..devices import on_device

__all__ = ["QueryGroup", "SpanPlan"]


class SpanPlan(span_plan.SpanPlan):
    """`plans.span_plan.SpanPlan` with its arrays as tensors."""

    @classmethod
    def of(cls, lattice: Lattice, *, word_queries: bool = False, device: torch.device | str = "cpu") -> SpanPlan:
        """word_queries: plan for words as queries too. The last layer needs none, as its words are cut off."""
        return cls.planned(lattice, word_queries=word_queries, put=partial(on_device, device=torch.device(device)))

    def arrange(self, characters: Tensor, words: Tensor) -> Tensor:
        """The batch's rows. characters: *Shape: [N, d]*; words: *Shape: [W, d]*. Returns *Shape: [N + W, d]*"""
        return torch.cat((characters, words)).index_select(0, self.order)
