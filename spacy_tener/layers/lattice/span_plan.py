"""The plan of a batch of lattices on torch's device."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...batching import span_plan
from ...batching.lattice import Lattice
from ...batching.sequences import starts
from ...batching.span_plan import Groups
from ...batching.span_windows import PositionWindows
from ...types import IntArray
from ..devices import on_device
from .query_groups import QueryGroup
from .query_rectangles import RectangleMaker

__all__ = ["QueryGroup", "SpanPlan"]


class SpanPlan(span_plan.SpanPlan):
    """`plans.span_plan.SpanPlan` with its arrays as tensors."""

    group_type = QueryGroup

    @classmethod
    def of(
        cls,
        lattice: Lattice,
        *,
        word_queries: bool = False,
        device: torch.device | str = "cpu",
        rectangles: bool | None = None,
    ) -> SpanPlan:
        """Plan a batch.

        word_queries: plan for words as queries too. The last layer needs none, as its words are cut off.
        rectangles: lay groups of several sentences side by side; None for just where they are not on a CPU.
        """
        device = torch.device(device)
        kind = RectanglePlan if (device.type != "cpu" if rectangles is None else rectangles) else SpanPlan
        return kind.planned(lattice, word_queries=word_queries, put=partial(on_device, device=device))

    def arrange(self, characters: Tensor, words: Tensor) -> Tensor:
        """The batch's rows. characters: *Shape: [N, d]*; words: *Shape: [W, d]*. Returns *Shape: [N + W, d]*"""
        return torch.cat((characters, words)).index_select(0, self.order)


class RectanglePlan(SpanPlan):
    """A plan of a few rectangles of groups."""

    @classmethod
    def lay_out(cls, windows: PositionWindows, columns: IntArray, put: Callable[[IntArray], Any]) -> Groups:
        spans, own, maker = windows.spans, windows.query_groups, RectangleMaker(windows, columns, put)
        words_before = starts(spans.counts - spans.characters)[own.sentences]
        of_characters = np.flatnonzero(own.begins - spans.begins[own.sentences] < spans.characters[own.sentences])
        by_characters = maker.of(of_characters, words_before[of_characters])
        if len(of_characters) == len(own.counts):
            # Words are no queries, or there are none.
            return by_characters, by_characters
        return by_characters, maker.of(np.arange(len(own.counts)), np.zeros_like(own.counts))
