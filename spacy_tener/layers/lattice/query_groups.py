"""Queries that are taken at once: one group of a sentence by views, or many groups of like size by gathers.

On a CPU one group's arrays stay in the processor's cache, and views cost nothing. A GPU would wait for every small
product of a group to be launched: there the groups of many sentences are laid side by side into rectangles.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from ...batching import span_plan


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
