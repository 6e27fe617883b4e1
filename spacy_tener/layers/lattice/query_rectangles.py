"""The groups of a batch's queries side by side: groups of like size share a rectangle, which a GPU takes at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ...batching.sequences import cuts_by_cost, ranges, starts
from ...batching.span_windows import PositionWindows
from ...types import IntArray
from .query_groups import QueryRectangle

# What one more rectangle costs a GPU, in pairs of a query and a key or column: the launches of its operations.
PRICE = 1 << 20
# So many pairs at most are in a rectangle of several groups, which bounds the memory of a batch.
PAIRS_AT_ONCE = 1 << 21


@dataclass(frozen=True)
class RectangleMaker:
    """Lays some groups of a batch out.

    windows: of the batch.
    columns: the row of the table of positions of each column of all groups. *Shape: [C]*
    put: sends an array to the device.
    """

    windows: PositionWindows
    columns: IntArray
    put: Callable[[NDArray[Any]], Tensor]

    def of(self, groups: IntArray, shifts: IntArray) -> tuple[QueryRectangle, ...]:
        """groups: which of the batch's. shifts: what is subtracted from each one's queries. *Shape: [g]* each"""
        own = self.windows.query_groups
        met = self.windows.spans.counts[own.sentences[groups]] + self.windows.widths[groups]
        pairs = met * own.counts.max(initial=0)
        order = np.argsort(-pairs, kind="stable")
        groups, shifts, pairs = groups[order], shifts[order], pairs[order]
        parts = (slice(*cut) for cut in _bounded(cuts_by_cost(pairs, PRICE), pairs))
        return tuple(self._rectangle(groups[part], shifts[part]) for part in parts)

    def _rectangle(self, groups: IntArray, shifts: IntArray) -> QueryRectangle:
        windows, spans, own = self.windows, self.windows.spans, self.windows.query_groups
        sentences, widths = own.sentences[groups], windows.widths
        queries, no_query = _filled(starts(own.counts)[groups], own.counts[groups])
        keys, no_key = _filled(spans.begins[sentences], spans.counts[sentences])
        columns, _ = _filled(starts(widths)[groups], widths[groups])
        # Products lie in rows as wide as the widest group's.
        wider = np.arange(queries.shape[1]) * (columns.shape[1] - widths[groups])[:, None]
        n_kinds = np.bincount(own.kind_groups, minlength=len(own.counts))
        kinds = ranges(starts(n_kinds)[groups], n_kinds[groups])
        of_kinds = spans.counts[own.sentences[own.kind_groups]]
        begins, _ = _filled(starts(of_kinds)[kinds], of_kinds[kinds], keys.shape[1])
        renumbered = (starts(n_kinds[groups]) - starts(n_kinds)[groups])[:, None]
        rows = own.queries[queries]
        parts = (
            rows - shifts[:, None],
            keys,
            self.columns[columns],
            (rows - spans.begins[sentences][:, None]).ravel(),
            windows.begins()[begins],
            (own.kinds[queries] + renumbered).ravel(),
            (windows.products()[queries] + wider).reshape(-1, 1),
        )
        # One copy for all of them.
        joined = self.put(np.concatenate([part.ravel() for part in parts]))
        split = zip(joined.split([part.size for part in parts]), parts, strict=True)
        of_queries, of_keys, of_columns, *others = (part.view(*like.shape) for part, like in split)
        bars = (self.put(bar) if bar.any() else None for bar in (no_query[:, :, None], no_key[:, None]))
        return QueryRectangle(
            len(groups), {"queries": of_queries, "keys": of_keys, "columns": of_columns}, *others, *bars
        )


def _filled(begins: IntArray, counts: IntArray, most: int | None = None) -> tuple[IntArray, NDArray[np.bool_]]:
    """`begin, begin + 1, ..` for each stretch, its last number repeated, and where it is. *Shape: [n, most]* each"""
    number = np.arange(int(counts.max(initial=0)) if most is None else most)
    last = counts[:, None] - 1
    return begins[:, None] + np.minimum(number, last), number > last


def _bounded(cuts: Sequence[int], pairs: IntArray) -> Iterator[tuple[int, int]]:
    """The parts between cuts, again cut where they have too many pairs."""
    for begin, end in pairwise(cuts):
        step = max(PAIRS_AT_ONCE // int(pairs[begin]), 1)
        for first in range(begin, end, step):
            yield first, min(first + step, end)
