"""The plan of a batch of lattices for the attention of FLAT and MECT, made once on the host for all layers.

The positions of two spans enter their score through the length of the query, the length of the key and the offset of
their heads alone. So queries are taken in groups of neighbours. For a key, a group's queries of one length need the
offsets of one *window*, as wide as their heads spread. Windows of keys of equal length overlap where the keys are near
each other. The union of its windows are a group's columns: one product of its queries with the columns' rows of
position gives all the scores that it needs, and few that it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..types import IntArray
from .lattice import Lattice, LatticeSpans
from .sequences import ranges, starts


@dataclass(frozen=True)
class QueryGroups:
    """Queries cut into groups of neighbours. Those of a group that have one length are of a kind.

    sentences, begins, counts: of each group, its sentence, its first span, and how many it has. *Shape: [G]*
    queries, groups, kinds: of each query, the span, its group and its kind. *Shape: [Q]*
    kind_groups, kind_sizes: of each kind, its group and the length of its spans. *Shape: [K]*
    firsts, spreads: of each kind, the first of its heads, and over how many positions they spread. *Shape: [K]*
    """

    sentences: IntArray
    begins: IntArray
    counts: IntArray
    queries: IntArray
    groups: IntArray
    kinds: IntArray
    kind_groups: IntArray
    kind_sizes: IntArray
    firsts: IntArray
    spreads: IntArray

    @classmethod
    def of(cls, spans: LatticeSpans, *, most: int, words: bool) -> QueryGroups:
        """Cut queries into groups. most: so many queries make a group, or fewer. words: whether words are queries
        too.
        """
        parts = [_cut(spans.begins, spans.characters, most)]
        if words:
            parts.append(_cut(spans.begins + spans.characters, spans.counts - spans.characters, most))
        sentences, begins, counts = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        queries, groups = ranges(begins, counts), np.repeat(np.arange(len(counts)), counts)
        above = spans.sizes.max(initial=0) + 1
        codes, kinds = np.unique(groups * above + spans.sizes[queries], return_inverse=True)
        extent = _extent(spans.heads[queries], kinds, len(codes))
        return cls(sentences, begins, counts, queries, groups, kinds, codes // above, codes % above, *extent)


def _cut(begins: IntArray, counts: IntArray, most: int) -> tuple[IntArray, IntArray, IntArray]:
    """Cut stretches evenly into parts: the stretch, the begin and the length of each part."""
    n_parts = -(-counts // most)
    stretch = np.repeat(np.arange(len(counts)), n_parts)
    part, n_parts, counts = ranges(np.zeros_like(n_parts), n_parts), n_parts[stretch], counts[stretch]
    first, end = part * counts // n_parts, (part + 1) * counts // n_parts
    return stretch, begins[stretch] + first, end - first


def _extent(values: IntArray, groups: IntArray, n_groups: int) -> tuple[IntArray, IntArray]:
    """Return the least value of each group, and over how many numbers its values spread."""
    least, greatest = np.full(n_groups, np.iinfo(np.int64).max), np.zeros(n_groups, np.int64)
    np.minimum.at(least, groups, values)
    np.maximum.at(greatest, groups, values)
    return least, greatest - least + 1


@dataclass(frozen=True)
class PositionWindows:
    """One window for each kind of query and each span of its sentence, laid out over the columns of all groups.

    Kind follows kind; within a kind the shortest keys come first, and of keys of equal length the last. So offsets grow
    from window to window, and a window shares its first columns with the one before it, if they overlap.

    spans, query_groups: what the windows are of.
    kinds, keys: the kind of query and the span of each window. *Shape: [V]*
    ends: where it ends among the columns. *Shape: [V]*
    new: how many columns, at its end, it does not share. *Shape: [V]*
    """

    spans: LatticeSpans
    query_groups: QueryGroups
    kinds: IntArray
    keys: IntArray
    ends: IntArray
    new: IntArray

    @classmethod
    def of(cls, spans: LatticeSpans, query_groups: QueryGroups) -> PositionWindows:
        sentences = query_groups.sentences[query_groups.kind_groups]
        counts = spans.counts[sentences]
        kinds = np.repeat(np.arange(len(counts)), counts)
        # The spans, sentence after sentence, the shortest first, and of equal length the last first.
        order = np.lexsort((-spans.heads, spans.sizes, np.repeat(np.arange(len(spans.counts)), spans.counts)))
        keys = order[ranges(spans.begins[sentences], counts)]
        heads, sizes = spans.heads[keys], spans.sizes[keys]
        new = query_groups.spreads[kinds]
        alike = (kinds[1:] == kinds[:-1]) & (sizes[1:] == sizes[:-1])
        new[1:] = np.where(alike, np.minimum(new[1:], heads[:-1] - heads[1:]), new[1:])
        return cls(spans, query_groups, kinds, keys, np.cumsum(new), new)

    @cached_property
    def widths(self) -> IntArray:
        """Number of columns of each group. *Shape: [G]*"""
        widths = np.zeros_like(self.query_groups.counts)
        np.add.at(widths, self.query_groups.kind_groups[self.kinds], self.new)
        return widths

    def columns(self) -> IntArray:
        """For each column the length of its queries, the length of its keys, and the offset of their heads.

        *Shape: [3, C]*
        """
        spans, own = self.spans, self.query_groups
        last_offsets = (own.firsts + own.spreads - 1)[self.kinds] - spans.heads[self.keys]
        of_windows = np.stack([own.kind_sizes[self.kinds], spans.sizes[self.keys], last_offsets - self.ends + 1])
        columns: IntArray = np.repeat(of_windows, self.new, axis=1)
        columns[2] += np.arange(columns.shape[1])
        return columns

    def begins(self) -> IntArray:
        """Return the begin of each window among the columns; within a kind, the keys lie as the spans do.

        *Shape: [V]*
        """
        sentences = self.query_groups.sentences[self.query_groups.kind_groups]
        shifts = starts(self.spans.counts[sentences]) - self.spans.begins[sentences]
        begins = np.empty_like(self.ends)
        begins[self.keys + shifts[self.kinds]] = self.ends - self.query_groups.spreads[self.kinds]
        return begins

    def products(self) -> IntArray:
        """Return the place of a query's products among its group's, query after query, if its windows began at 0.
        *Shape: [Q]*

        Added to where its windows begin, that is where its product with each key lies.
        """
        own = self.query_groups
        number = np.arange(len(own.queries)) - np.repeat(starts(own.counts), own.counts)
        first = number * self.widths[own.groups] - starts(self.widths)[own.groups]
        return first + self.spans.heads[own.queries] - own.firsts[own.kinds]


Groups = tuple[tuple[Any, ...], tuple[Any, ...]]
"""The groups of characters, their queries counted without words; and the groups of all spans."""
Put = Callable[[Sequence[NDArray[Any] | None]], Sequence[Any]]
"""Sends arrays of the plan to the device of the computation, as arrays or tensors of its library; None stays None."""

GROUP = 48
"""At most so many queries in a group: the fewer, the fewer columns per query, but the more operations."""


@dataclass(frozen=True)
class QueryGroup:
    """G neighbouring spans of a sentence as queries. Their keys are all L spans of the sentence.

    sentence: which one it is.
    queries: where the group lies among the rows that are queries.
    keys: where the sentence's spans lie among all rows.
    place: the first query's place in its sentence: characters come first, then words.
    columns: rows of the batch's table of positions. *Shape: [C]*
    windows: for each kind of query, where each key's window begins among the columns. *Shape: [K, L]*
    kinds: the kind of each query. *Shape: [G]*
    shifts: from there to the product of a query and a key, among the *[G, C]* of the group. *Shape: [G, 1]*
    """

    sentence: int
    queries: slice
    keys: slice
    place: int
    columns: Any
    windows: Any
    kinds: Any
    shifts: Any

    def pairs(self) -> Any:
        """Return the place of each query's and key's product among the group's *[G, C]*. *Shape: [G * L]*"""
        alike = len(self.windows) == 1
        return ((self.windows if alike else self.windows[self.kinds]) + self.shifts).reshape(-1)


@dataclass(frozen=True)
class SpanPlan:
    """A batch of lattices. Its rows are spans, sentence after sentence: the characters, then the words.

    lengths: spans of each sentence.
    characters: the rows of all characters, in the order of the batch. *Shape: [N]*
    order: which of all characters, then all words, lies at each row. *Shape: [N + W]*
    distances: what each row of the table of positions stands for: the distances from query to key of head and head,
        head and tail, tail and head, tail and tail. *Shape: [R, 4]*
    longest: characters of the longest sentence. All distances are nearer to 0 than that.
    by_characters: the groups where the queries are the characters, counted without words.
    by_all: the groups where every row is a query; None where words are not to be queries.
    """

    lengths: tuple[int, ...]
    characters: Any
    order: Any
    distances: Any
    longest: int
    by_characters: tuple[Any, ...]
    by_all: tuple[Any, ...] | None

    @classmethod
    def of(
        cls,
        lattice: Lattice,
        *,
        word_queries: bool = False,
        put: Put = list,
        lay_out: Callable[[PositionWindows, IntArray, Put], Groups] | None = None,
    ) -> SpanPlan:
        """Plan a batch.

        word_queries: plan for words as queries too. The last layer needs none, as its words are cut off.
        lay_out: makes groups of the windows and of the row of the table of positions that each column is, *Shape: [C]*;
            None for a `QueryGroup` each.
        """
        spans = LatticeSpans.of(lattice)
        windows = PositionWindows.of(spans, QueryGroups.of(spans, most=GROUP, words=word_queries))
        distances, columns = _distinct(windows.columns(), lattice.longest)
        by_characters, by_all = (lay_out or query_groups)(windows, columns, put)
        own = spans.places[: lattice.n_characters], np.argsort(spans.places), distances
        characters, order, distances = put(own)
        return cls(
            lengths=tuple(spans.counts.tolist()),
            characters=characters,
            order=order,
            distances=distances,
            longest=lattice.longest,
            by_characters=by_characters,
            by_all=by_all if word_queries else None,
        )

    def groups(self, n_queries: int) -> tuple[Any, ...]:
        """Return the groups of `n_queries` queries: as many as there are characters, or as there are rows."""
        if n_queries == len(self.characters):
            return self.by_characters
        if n_queries != len(self.order):
            raise ValueError(
                f"Queries are the {len(self.characters)} characters of a batch or all of its {len(self.order)} spans: "
                f"got {n_queries} queries."
            )
        if self.by_all is None:
            raise ValueError(
                "Words are among the queries, but were not planned for: make the plan with word_queries=True."
            )
        return self.by_all


def _distinct(columns: IntArray, longest: int) -> tuple[IntArray, IntArray]:
    """Return the different columns as four distances each, and the place of each column among them.

    columns: *Shape: [3, C]*
    """
    above, width = columns.max(initial=0) + 1, 2 * longest + 1
    codes, inverse = np.unique((columns[0] * above + columns[1]) * width + columns[2] + longest, return_inverse=True)
    query, key, offset = codes // width // above, codes // width % above, codes % width - longest
    return np.stack([offset, offset - key + 1, offset + query - 1, offset + query - key], axis=1), inverse


def query_groups(windows: PositionWindows, columns: IntArray, put: Put, kind: type[QueryGroup] = QueryGroup) -> Groups:
    """Return each group of neighbouring queries as a `QueryGroup`, or as a kind of one."""
    spans, own = windows.spans, windows.query_groups
    n_kinds = np.bincount(own.kind_groups, minlength=len(own.counts))
    kinds = own.kinds - starts(n_kinds)[own.groups]
    arrays = put([columns, windows.begins(), kinds, windows.products()[:, None]])
    counts = windows.widths, n_kinds * spans.counts[own.sentences], own.counts, own.counts
    parts = zip(
        *(array.tolist() for array in (own.sentences, own.begins, own.counts)),
        *map(_split, arrays, counts),
        strict=True,
    )
    n_characters, words_before = spans.characters.tolist(), starts(spans.counts - spans.characters).tolist()
    of_characters, groups = [], []
    for sentence, begin, count, rows, begins, kinds, shifts in parts:
        first, length, words = int(spans.begins[sentence]), int(spans.counts[sentence]), words_before[sentence]
        queries, keys = slice(begin, begin + count), slice(first, first + length)
        group = kind(sentence, queries, keys, begin - first, rows, begins.reshape(-1, length), kinds, shifts)
        groups.append(group)
        if group.place < n_characters[sentence]:
            of_characters.append(replace(group, queries=slice(begin - words, begin + count - words)))
    return tuple(of_characters), tuple(groups)


def _split(array: Any, counts: IntArray) -> list[Any]:
    """Return consecutive parts of an array."""
    edges = [0, *np.cumsum(counts).tolist()]
    return [array[begin:end] for begin, end in pairwise(edges)]
