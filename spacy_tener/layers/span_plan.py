"""Plans of lattices as tensors, and groups of queries that are computed at once.

On a CPU, each group is computed alone, by views: its arrays stay in the processor's cache, and views cost nothing. On a
GPU, launching the small products of each group would take too long: groups of similar size, of many sentences, are
gathered into padded rectangles.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..batching.lattice import Lattice
from ..batching.sequences import cuts_by_cost, ranges, starts
from ..batching.span_plan import Groups, PositionWindows, Put, QueryGroup, SpanPlan, query_groups
from ..types import IntArray
from .devices import on_device_together


class GroupViews(QueryGroup):
    """One group, alone, by views: its G queries, L keys and C columns, which are rows of the table of positions.

    Whatever is taken has the heads first, and for each head all n groups. `add` gives a gradient back to where `take`
    found the rows. `GroupRectangle` has the same methods.
    """

    n = 1

    def take(self, rows: Tensor, which: str) -> Tensor:
        """Return the "queries", "keys" or "columns" among some rows. *Shape: [R, h, w]* to *[h n, G, L or C, w]*"""
        if which == "columns":
            return rows.index_select(0, self.columns).transpose(0, 1)
        return rows[self.queries if which == "queries" else self.keys].transpose(0, 1)

    def add(self, rows: Tensor, which: str, gradient: Tensor) -> None:
        """Add to the rows that `take` takes. Those of padding are added zeros."""
        if which == "columns":
            rows.index_add_(0, self.columns, gradient.transpose(0, 1))
        else:
            self.take(rows, which).add_(gradient)

    def pairs(self) -> Tensor:
        """Return the index of the product of each query and key among a group's *[G, C]*. *Shape: [n, G L]*"""
        # Without selecting, where all queries are of one kind.
        windows = self.windows if len(self.windows) == 1 else self.windows.index_select(0, self.kinds)
        return (windows + self.shifts).view(1, -1)

    def add_bias(self, scores: Tensor, bias: Tensor) -> None:
        """Add to scores what belongs to the places of query and key. *Shape: [h n, G, L]; [h, M, M]*"""
        reached, own = self._meet(scores, bias)
        reached += own

    def add_bias_gradient(self, gradient: Tensor, d_scores: Tensor) -> None:
        """Add the gradient of scores to that of the bias. *Shape: [h, M, M]; [h n, G, L]*"""
        reached, own = self._meet(d_scores, gradient)
        own += reached

    def _meet(self, scores: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Return the parts of the scores and of the bias that belong to the same places, as views."""
        reach = bias.shape[-1]
        queries = max(min(scores.shape[1], reach - self.place), 0)
        own = bias[:, self.place : self.place + queries, : scores.shape[2]]
        return scores[:, :queries, :reach], own

    def bar_padding(self, scores: Tensor) -> None:
        """Let scores of keys that are padding be -inf. *Shape: [h n, G, L]*"""
        return

    def without_padding(self, rows: Tensor) -> Tensor:
        """Return the rows with zeros for queries that are padding. *Shape: [h n, G, w]*"""
        return rows


@dataclass(frozen=True)
class GroupRectangle:
    """Groups of many sentences side by side, each filled up to the largest by repeating its last query and key.

    rows: "queries", "keys" and "columns", as `QueryGroup` has them. *Shape: [n, G], [n, L], [n, C]*
    places: of each query in its sentence. *Shape: [n G]*
    products: the place of each query's and key's product among a group's *[G, C]*. *Shape: [n, G L]*
    no_query, no_key: what is padding, or None where nothing is. *Shape: [n, G, 1]; [n, 1, L]*
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
        # Keys are the places of a sentence in their order; queries behind the last known place read zeros.
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

    def bar_padding(self, scores: Tensor) -> None:
        if self.no_key is not None:
            scores.view(-1, self.n, *scores.shape[1:]).masked_fill_(self.no_key, -torch.inf)

    def without_padding(self, rows: Tensor) -> Tensor:
        if self.no_query is None:
            return rows
        return rows.view(-1, self.n, *rows.shape[1:]).masked_fill(self.no_query, 0.0).view_as(rows)


# What one more rectangle costs a GPU, in pairs of a query and a key or column: the launches of its operations.
PRICE = 1 << 20
# So many pairs at most are in a rectangle of several groups, which bounds the memory of a batch.
PAIRS_AT_ONCE = 1 << 21


def rectangles_of(windows: PositionWindows, columns: IntArray, put: Put) -> Groups:
    """Return the groups of a batch as a few rectangles. See `SpanPlan.of`."""
    spans, own = windows.spans, windows.query_groups
    words_before = starts(spans.counts - spans.characters)[own.sentences]
    of_characters = np.flatnonzero(own.begins - spans.begins[own.sentences] < spans.characters[own.sentences])
    by_characters = _rectangles(windows, columns, put, of_characters, words_before[of_characters])
    if len(of_characters) == len(own.counts):
        # Words are no queries, or there are none.
        return by_characters, by_characters
    return by_characters, _rectangles(windows, columns, put, np.arange(len(own.counts)), np.zeros_like(own.counts))


def _rectangles(
    windows: PositionWindows, columns: IntArray, put: Put, groups: IntArray, shifts: IntArray
) -> tuple[GroupRectangle, ...]:
    """Lay out some of a batch's groups. shifts: subtracted from each group's queries. *Shape: [g]*"""
    own = windows.query_groups
    met = windows.spans.counts[own.sentences[groups]] + windows.widths[groups]
    pairs = met * own.counts.max(initial=0)
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
    queries, no_query = _filled(starts(own.counts)[groups], own.counts[groups])
    keys, no_key = _filled(spans.begins[sentences], spans.counts[sentences])
    of_columns, _ = _filled(starts(widths)[groups], widths[groups])
    # Products lie in rows as wide as the widest group's.
    wider = np.arange(queries.shape[1]) * (of_columns.shape[1] - widths[groups])[:, None]
    n_kinds = np.bincount(own.kind_groups, minlength=len(own.counts))
    kinds = ranges(starts(n_kinds)[groups], n_kinds[groups])
    of_kinds = spans.counts[own.sentences[own.kind_groups]]
    begins, _ = _filled(starts(of_kinds)[kinds], of_kinds[kinds], keys.shape[1])
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
    bars = (bar if bar.any() else None for bar in (no_query[:, :, None], no_key[:, None]))
    *rows_of, places, begin, kind, shift, no_query, no_key = put([*parts, *bars])
    products = (begin.index_select(0, kind) + shift).view(len(groups), -1)
    by_name = dict(zip(("queries", "keys", "columns"), rows_of, strict=True))
    return GroupRectangle(len(groups), by_name, places, products, no_query, no_key)


def _filled(begins: IntArray, counts: IntArray, most: int | None = None) -> tuple[IntArray, NDArray[np.bool_]]:
    """Return `begin, begin + 1, ..` for each stretch, its last number repeated, and a mask of repeats.
    *Shape: [n, most]* each
    """
    number = np.arange(int(counts.max(initial=0)) if most is None else most)
    last = counts[:, None] - 1
    return begins[:, None] + np.minimum(number, last), number > last


Queries = GroupViews | GroupRectangle


def plan_spans(
    lattice: Lattice,
    *,
    word_queries: bool = False,
    device: torch.device | str = "cpu",
    rectangles: bool | None = None,
) -> SpanPlan:
    """Plan a batch, with its arrays as tensors.

    word_queries: plan for words as queries too. The last layer needs none, as its words are cut off.
    rectangles: lay groups of several sentences side by side; None for just where they are not on a CPU.
    """
    device = torch.device(device)
    side_by_side = device.type != "cpu" if rectangles is None else rectangles
    lay_out = rectangles_of if side_by_side else partial(query_groups, kind=GroupViews)
    return SpanPlan.of(
        lattice, word_queries=word_queries, put=partial(on_device_together, device=device), lay_out=lay_out
    )


def arrange(plan: SpanPlan, characters: Tensor, words: Tensor) -> Tensor:
    """Return a batch's rows. characters: *Shape: [N, d]*; words: *Shape: [W, d]*. Returns *Shape: [N + W, d]*"""
    return torch.cat((characters, words)).index_select(0, plan.order)
