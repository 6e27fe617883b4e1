"""Plans of lattices as tensors, and groups of queries that are computed at once.

On a CPU, each group is computed alone, by views: its arrays stay in the processor's cache, and views cost nothing. On a
GPU, launching the small products of each group would take too long: groups of similar size, of many sentences, are
gathered into padded rectangles.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..batching.lattice import Lattice
from ..batching.sequences import cuts_by_cost, ranges, starts
from ..batching.span_plan import Groups, PositionWindows, Put, QueryGroup, SpanPlan, query_groups
from ..types import IntArray
from .devices import on_device_together


class GroupViews(QueryGroup[Tensor]):
    """A single group, by views: its G queries, L keys and C columns, which are rows of the position table.

    Arrays that `take` returns have the heads first, and for each head all n groups. `add` adds gradients to the rows
    that `take` reads. `GroupRectangle` has the same methods.
    """

    n = 1

    def take(self, rows: Tensor, which: str) -> Tensor:
        """Return the "queries", "keys" or "columns" among some rows. *Shape: [R, h, w]* to *[h n, G, L or C, w]*"""
        if which == "columns":
            return rows.index_select(0, self.columns).transpose(0, 1)
        return rows[self.queries if which == "queries" else self.keys].transpose(0, 1)

    def add(self, rows: Tensor, which: str, gradient: Tensor) -> None:
        """Add a gradient, which is zero for padding, to the rows that `take` reads."""
        if which == "columns":
            rows.index_add_(0, self.columns, gradient.transpose(0, 1))
        else:
            self.take(rows, which).add_(gradient)

    def pairs(self) -> Tensor:
        """Return the index of the product of each query and key among a group's *[G, C]*. *Shape: [n, G L]*"""
        # Queries of a single kind need no selection.
        windows = self.windows if len(self.windows) == 1 else self.windows.index_select(0, self.kinds)
        return (windows + self.shifts).view(1, -1)

    def add_bias(self, scores: Tensor, bias: Tensor) -> None:
        """Add the bias for the positions of queries and keys to scores. *Shape: [h n, G, L]; [h, M, M]*"""
        scores, bias = self._overlap(scores, bias)
        scores += bias

    def add_bias_gradient(self, gradient: Tensor, d_scores: Tensor) -> None:
        """Add the gradient of scores to that of the bias. *Shape: [h, M, M]; [h n, G, L]*"""
        d_scores, gradient = self._overlap(d_scores, gradient)
        gradient += d_scores

    def _overlap(self, scores: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Return views of the scores and of the bias for the positions that have both."""
        reach = bias.shape[-1]
        queries = max(min(scores.shape[1], reach - self.place), 0)
        own = bias[:, self.place : self.place + queries, : scores.shape[2]]
        return scores[:, :queries, :reach], own

    def mask_padding(self, scores: Tensor) -> None:
        """Set the scores of padded keys to -inf. *Shape: [h n, G, L]*"""
        return

    def without_padding(self, rows: Tensor) -> Tensor:
        """Return the rows with zeros for padded queries. *Shape: [h n, G, w]*"""
        return rows


@dataclass(frozen=True)
class GroupRectangle:
    """Groups of many sentences, padded to the largest by repeating the last query, key and column of each.

    rows: "queries", "keys" and "columns", as in `QueryGroup`. *Shape: [n, G], [n, L], [n, C]*
    places: position of each query in its sentence. *Shape: [n G]*
    products: index of the product of each query and key among a group's *[G, C]*. *Shape: [n, G L]*
    no_query, no_key: masks of padding, or None if there is none. *Shape: [n, G, 1]; [n, 1, L]*
    """

    n: int
    rows: dict[str, Tensor]
    places: Tensor
    products: Tensor
    no_query: Tensor | None
    no_key: Tensor | None

    def take(self, rows: Tensor, which: str) -> Tensor:
        index = self.rows[which]
        taken = rows.transpose(0, 1).index_select(1, index.view(-1))
        return taken.view(-1, index.shape[1], rows.shape[2])

    def add(self, rows: Tensor, which: str, gradient: Tensor) -> None:
        by_head = gradient.reshape(rows.shape[1], -1, rows.shape[2])
        rows.transpose(0, 1).index_add_(1, self.rows[which].view(-1), by_head)

    def pairs(self) -> Tensor:
        return self.products

    def add_bias(self, scores: Tensor, bias: Tensor) -> None:
        # Keys are in the order of positions; queries beyond the last position with a bias get zeros.
        known = torch.nn.functional.pad(bias, (0, 0, 0, 1)).index_select(1, self.places.clamp(max=bias.shape[1]))
        reach = min(bias.shape[2], scores.shape[2])
        scores[..., :reach] += known.view(len(scores), -1, bias.shape[2])[..., :reach]

    def add_bias_gradient(self, gradient: Tensor, d_scores: Tensor) -> None:
        reach = min(gradient.shape[2], d_scores.shape[2])
        places = self.places.clamp(max=gradient.shape[1])
        sums = torch.nn.functional.pad(torch.zeros_like(gradient), (0, 0, 0, 1))
        by_head = d_scores[..., :reach].reshape(len(gradient), -1, reach)
        sums[..., :reach].index_add_(1, places, by_head)
        gradient += sums[:, :-1]

    def mask_padding(self, scores: Tensor) -> None:
        if self.no_key is not None:
            scores.view(-1, self.n, *scores.shape[1:]).masked_fill_(self.no_key, -torch.inf)

    def without_padding(self, rows: Tensor) -> Tensor:
        if self.no_query is None:
            return rows
        return rows.view(-1, self.n, *rows.shape[1:]).masked_fill(self.no_query, 0.0).view_as(rows)


# Cost of launching the operations of one more rectangle on a GPU, in pairs of a query and a key or column.
PRICE = 1 << 20
# Maximum number of pairs in a rectangle of several groups, to bound the memory of a batch.
PAIRS_AT_ONCE = 1 << 21


def rectangles_of(windows: PositionWindows, columns: IntArray, put: Put) -> Groups[GroupRectangle]:
    """Return the groups of a batch in a few rectangles. See `SpanPlan.of`."""
    spans, own = windows.spans, windows.query_groups
    words_before = starts(spans.counts - spans.characters)[own.sentences]
    of_characters = np.flatnonzero(own.begins - spans.begins[own.sentences] < spans.characters[own.sentences])
    by_characters = _rectangles(windows, columns, put, of_characters, words_before[of_characters])
    if len(of_characters) == len(own.counts):
        # There are no words, or they are not planned as queries.
        return by_characters, by_characters
    return by_characters, _rectangles(windows, columns, put, np.arange(len(own.counts)), np.zeros_like(own.counts))


def _rectangles(
    windows: PositionWindows, columns: IntArray, put: Put, groups: IntArray, shifts: IntArray
) -> tuple[GroupRectangle, ...]:
    """Pad some of a batch's groups into rectangles. shifts: subtracted from each group's queries. *Shape: [g]*"""
    own = windows.query_groups
    keys_and_columns = windows.spans.counts[own.sentences[groups]] + windows.widths[groups]
    pairs = keys_and_columns * own.counts.max(initial=0)
    order = np.argsort(-pairs, kind="stable")
    groups, shifts, pairs = groups[order], shifts[order], pairs[order]
    made = []
    for begin, end in pairwise(cuts_by_cost(pairs, PRICE)):
        step = max(PAIRS_AT_ONCE // int(pairs[begin]), 1)
        for first in range(begin, end, step):
            part = slice(first, min(first + step, end))
            made.append(_rectangle(windows, columns, put, groups[part], shifts[part]))
    return tuple(made)


def _rectangle(
    windows: PositionWindows, columns: IntArray, put: Put, groups: IntArray, shifts: IntArray
) -> GroupRectangle:
    spans, own = windows.spans, windows.query_groups
    sentences, widths = own.sentences[groups], windows.widths
    queries, no_query = _padded_ranges(starts(own.counts)[groups], own.counts[groups])
    keys, no_key = _padded_ranges(spans.begins[sentences], spans.counts[sentences])
    of_columns, _ = _padded_ranges(starts(widths)[groups], widths[groups])
    # Rows of products are as wide as those of the widest group.
    wider = np.arange(queries.shape[1]) * (of_columns.shape[1] - widths[groups])[:, None]
    n_kinds = np.bincount(own.kind_groups, minlength=len(own.counts))
    kinds = ranges(starts(n_kinds)[groups], n_kinds[groups])
    of_kinds = spans.counts[own.sentences[own.kind_groups]]
    begins, _ = _padded_ranges(starts(of_kinds)[kinds], of_kinds[kinds], keys.shape[1])
    renumbered = (starts(n_kinds[groups]) - starts(n_kinds)[groups])[:, None]
    rows = own.queries[queries]
    parts = (
        rows - shifts[:, None],
        keys,
        columns[of_columns],
        (rows - spans.begins[sentences][:, None]).ravel(),
        windows.begins()[begins],
        (own.kinds[queries] + renumbered).ravel(),
        (windows.products()[queries] + wider).reshape(-1, 1),
    )
    masks = (mask if mask.any() else None for mask in (no_query[:, :, None], no_key[:, None]))
    *rows_of, places, begin, kind, shift, no_query, no_key = put([*parts, *masks])
    products = (begin.index_select(0, kind) + shift).view(len(groups), -1)
    by_name = dict(zip(("queries", "keys", "columns"), rows_of, strict=True))
    return GroupRectangle(len(groups), by_name, places, products, no_query, no_key)


def _padded_ranges(begins: IntArray, counts: IntArray, most: int | None = None) -> tuple[IntArray, NDArray[np.bool_]]:
    """Return ranges, `begin, begin + 1, ..`, padded with their last number, and a mask of padding.

    *Shape: [n, most]* each
    """
    number = np.arange(int(counts.max(initial=0)) if most is None else most)
    last = counts[:, None] - 1
    return begins[:, None] + np.minimum(number, last), number > last


Queries = GroupViews | GroupRectangle
TensorPlan = SpanPlan[Tensor, Queries]


def plan_spans(
    lattice: Lattice,
    *,
    word_queries: bool = False,
    device: torch.device | str = "cpu",
    rectangles: bool | None = None,
) -> TensorPlan:
    """Plan a batch, with its arrays as tensors.

    word_queries: plan words as queries too. The last layer needs none, as its output for words is not used.
    rectangles: pad groups of several sentences into rectangles; None to do so on any device but the CPU.
    """
    device = torch.device(device)
    rectangles = device.type != "cpu" if rectangles is None else rectangles
    lay_out: Any = rectangles_of if rectangles else partial(query_groups, kind=GroupViews)
    return SpanPlan.of(
        lattice, word_queries=word_queries, put=partial(on_device_together, device=device), lay_out=lay_out
    )


def arrange(plan: TensorPlan, characters: Tensor, words: Tensor) -> Tensor:
    """Return the spans of a batch in its plan's order. *Shape* characters: [N, d]; words: [W, d]; result: [N + W, d]"""
    return torch.cat((characters, words)).index_select(0, plan.order)
