"""The plan of a batch of lattices as tensors, and queries that are taken at once.

A group of a sentence is taken by views, or many groups of like size by gathers. On a CPU one group's arrays stay in the
processor's cache, and views cost nothing. A GPU would wait for every small product of a group to be launched: there the
groups of many sentences are laid side by side into rectangles.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..batching import span_plan
from ..batching.lattice import Lattice
from ..batching.sequences import cuts_by_cost, ranges, starts
from ..batching.span_plan import Groups, PositionWindows
from ..types import IntArray
from .devices import on_device


class Queries(ABC):
    """n groups of at most G queries each, with their at most L keys and C columns: rows of the table of positions.

    Whatever is taken has the heads first, and for each head all groups. `add` gives a gradient back to where `take`
    found the rows.
    """

    n: int

    @abstractmethod
    def take(self, rows: Tensor, which: str) -> Tensor:
        """The "queries", "keys" or "columns" among some rows. *Shape: [R, h, w]* to *[h n, G, L or C, w]*"""

    @abstractmethod
    def add(self, rows: Tensor, which: str, gradient: Tensor) -> None:
        """Add to the rows that `take` takes. Those of padding are added zeros."""

    @abstractmethod
    def pairs(self) -> Tensor:
        """Which of a group's *[G, C]* products belongs to each query and key. *Shape: [n, G L]*"""

    @abstractmethod
    def add_bias(self, scores: Tensor, bias: Tensor) -> None:
        """Add to scores what belongs to the places of query and key. *Shape: [h n, G, L]; [h, M, M]*"""

    @abstractmethod
    def add_bias_gradient(self, gradient: Tensor, d_scores: Tensor) -> None:
        """The reverse. *Shape: [h, M, M]; [h n, G, L]*"""

    def bar_padding(self, scores: Tensor) -> None:
        """Let scores of keys that are padding be -inf. *Shape: [h n, G, L]*"""
        return

    def without_padding(self, rows: Tensor) -> Tensor:
        """The same with zeros for queries that are padding. *Shape: [h n, G, w]*"""
        return rows


class QueryGroup(span_plan.QueryGroup, Queries):
    """One group, alone."""

    n = 1

    def take(self, rows: Tensor, which: str) -> Tensor:
        if which == "columns":
            return rows.index_select(0, self.columns).transpose(0, 1)
        return rows[self.queries if which == "queries" else self.keys].transpose(0, 1)

    def add(self, rows: Tensor, which: str, gradient: Tensor) -> None:
        if which == "columns":
            rows.index_add_(0, self.columns, gradient.transpose(0, 1))
        else:
            self.take(rows, which).add_(gradient)

    def pairs(self) -> Tensor:
        # Without selecting, where all queries are of one kind.
        windows = self.windows if len(self.windows) == 1 else self.windows.index_select(0, self.kinds)
        return cast(Tensor, windows + self.shifts).view(1, -1)

    def add_bias(self, scores: Tensor, bias: Tensor) -> None:
        reached, own = self._meet(scores, bias)
        reached += own

    def add_bias_gradient(self, gradient: Tensor, d_scores: Tensor) -> None:
        reached, own = self._meet(d_scores, gradient)
        own += reached

    def _meet(self, scores: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """The parts of the scores and of the bias that belong to the same places, as views."""
        reach = bias.shape[-1]
        queries = max(min(scores.shape[1], reach - self.place), 0)
        own = bias[:, self.place : self.place + queries, : scores.shape[2]]
        return scores[:, :queries, :reach], own


@dataclass(frozen=True)
class QueryRectangle(Queries):
    """Groups of many sentences side by side, each filled up to the largest by repeating its last query and key.

    rows: "queries", "keys" and "columns", as `QueryGroup` has them. *Shape: [n, G], [n, L], [n, C]*
    places: of each query in its sentence. *Shape: [n G]*
    windows, kinds, shifts: as `QueryGroup` has them, kinds counted over all groups. *Shape: [K, L]; [n G]; [n G, 1]*
    no_query, no_key: what is padding, or None where nothing is. *Shape: [n, G, 1]; [n, 1, L]*
    """

    n: int
    rows: dict[str, Tensor]
    places: Tensor
    windows: Tensor
    kinds: Tensor
    shifts: Tensor
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
        return (self.windows.index_select(0, self.kinds) + self.shifts).view(self.n, -1)

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
