"""Plan of the relative position attention of FLAT and MECT over a batch, made once on the host for all layers.

The relative position of two spans depends only on the length of the query, the length of the key and the offset of
their heads. So queries are grouped with their neighbours. For one key, a group's queries of one length need consecutive
offsets: a *window*, as wide as their heads spread. Windows of keys of equal length overlap where the keys are near each
other. The union of a group's windows are its *columns*: one product of its queries with the position embeddings of the
columns gives all the scores that it needs, and few that it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..types import IntArray
from .lattice import Lattice, LatticeSpans
from .sequences import ranges, starts


@dataclass(frozen=True)
class QueryGroups:
    """Queries in groups of neighbours. The queries of equal length in a group are a *kind*.

    sentences, begins, counts: of each group, the sentence, the first span and the number of spans. *Shape: [G]*
    queries, groups, kinds: of each query, the span, the group and the kind. *Shape: [Q]*
    kind_groups, kind_sizes: of each kind, the group and the length of its spans. *Shape: [K]*
    firsts, spreads: of each kind, the first head, and the number of positions from it to the last. *Shape: [K]*
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
        """Group queries. most: maximum size of a group. words: True if words are queries too."""
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
    """Cut ranges evenly into parts of at most `most`. Returns the range, the begin and the length of each part."""
    n_parts = -(-counts // most)
    stretch = np.repeat(np.arange(len(counts)), n_parts)
    part, n_parts, counts = ranges(np.zeros_like(n_parts), n_parts), n_parts[stretch], counts[stretch]
    first, end = part * counts // n_parts, (part + 1) * counts // n_parts
    return stretch, begins[stretch] + first, end - first


def _extent(values: IntArray, groups: IntArray, n_groups: int) -> tuple[IntArray, IntArray]:
    """Return the minimum of each group of integers, and the number of integers from it to the maximum."""
    least, greatest = np.full(n_groups, np.iinfo(np.int64).max), np.zeros(n_groups, np.int64)
    np.minimum.at(least, groups, values)
    np.maximum.at(greatest, groups, values)
    return least, greatest - least + 1


@dataclass(frozen=True)
class PositionWindows:
    """Windows over the columns of all groups: one for each kind of query and each key, a span of its sentence.

    Windows are sorted by kind, then from the shortest key to the longest, then from the last key to the first. So
    offsets grow from window to window, and a window shares its first columns with the one before where they overlap.

    kinds, keys: the kind of query and the key of each window. *Shape: [V]*
    ends: the end of each window among the columns, exclusive. *Shape: [V]*
    new: the number of columns of each window, at its end, that the window before does not have. *Shape: [V]*
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
        # Of each sentence, spans from the shortest to the longest; those of equal length from the last to the first.
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
        """Return for each column the length of its queries, the length of its keys, and the offset of their heads.

        *Shape: [3, C]*
        """
        spans, own = self.spans, self.query_groups
        last_offsets = (own.firsts + own.spreads - 1)[self.kinds] - spans.heads[self.keys]
        of_windows = np.stack([own.kind_sizes[self.kinds], spans.sizes[self.keys], last_offsets - self.ends + 1])
        columns: IntArray = np.repeat(of_windows, self.new, axis=1)
        columns[2] += np.arange(columns.shape[1])
        return columns

    def begins(self) -> IntArray:
        """Return the first column of each window, sorted by kind, and then by key as the spans are.

        *Shape: [V]*
        """
        sentences = self.query_groups.sentences[self.query_groups.kind_groups]
        shifts = starts(self.spans.counts[sentences]) - self.spans.begins[sentences]
        begins = np.empty_like(self.ends)
        begins[self.keys + shifts[self.kinds]] = self.ends - self.query_groups.spreads[self.kinds]
        return begins

    def products(self) -> IntArray:
        """Return for each query what to add to the first column of a key's window, to get the index of the product of
        query and key among the products of the group, *[G, C]*, flattened. *Shape: [Q]*
        """
        own = self.query_groups
        number = np.arange(len(own.queries)) - np.repeat(starts(own.counts), own.counts)
        first = number * self.widths[own.groups] - starts(self.widths)[own.groups]
        return first + self.spans.heads[own.queries] - own.firsts[own.kinds]


ArrayT = TypeVar("ArrayT")
"""An array or tensor of the computation's library."""
GroupT = TypeVar("GroupT")
Groups = tuple[tuple[GroupT, ...], tuple[GroupT, ...]]
"""Groups with characters, their queries indexed among the characters only; and the groups of all spans."""
Put = Callable[[Sequence[NDArray[Any] | None]], Sequence[Any]]
"""Sends arrays of the plan to the device of the computation, as arrays or tensors of its library; None stays None."""

GROUP = 48
"""Maximum size of a group: smaller ones have fewer columns per query, but need more operations."""


@dataclass(frozen=True)
class QueryGroup(Generic[ArrayT]):
    """G neighbouring spans of a sentence as queries. Their keys are all L spans of the sentence.

    sentence: index of the sentence.
    queries: rows of the group among the queries.
    keys: rows of the sentence's spans.
    place: index of the first query in its sentence: characters come first, then words.
    columns: rows of the batch's position table. *Shape: [C]*
    windows: for each kind of query, the first column of each key's window. *Shape: [K, L]*
    kinds: the kind of each query. *Shape: [G]*
    shifts: see `PositionWindows.products`. *Shape: [G, 1]*
    """

    sentence: int
    queries: slice
    keys: slice
    place: int
    columns: ArrayT
    windows: ArrayT
    kinds: ArrayT
    shifts: ArrayT


@dataclass(frozen=True)
class AttentionPlan(Generic[GroupT]):
    """What attention reads of a plan: queries, which are all rows or the characters; keys are all of their sentence.

    groups: the groups of queries.
    lengths: keys of each sentence.
    most: queries of the sentence that has most.
    """

    groups: tuple[GroupT, ...]
    lengths: tuple[int, ...]
    most: int


@dataclass(frozen=True)
class SpanPlan(Generic[ArrayT, GroupT]):
    """Rows and groups of a batch of lattices. Rows are spans, sentence after sentence: the characters, then the words.

    characters: the rows of all characters, in the order of the batch. *Shape: [N]*
    order: index of each row among all characters, followed by all words. *Shape: [N + W]*
    distances: the distances from query to key that each row of the position table embeds: head and head, head and tail,
        tail and head, tail and tail. *Shape: [R, 4]*
    longest: characters of the longest sentence. All distances are smaller, in absolute value.
    by_characters: for characters as queries, indexed among the characters only.
    planned_by_all: for all rows as queries; None where words are not planned as queries.
    """

    characters: ArrayT
    order: ArrayT
    distances: ArrayT
    longest: int
    by_characters: AttentionPlan[GroupT]
    planned_by_all: AttentionPlan[GroupT] | None

    @classmethod
    def of(
        cls,
        lattice: Lattice,
        *,
        word_queries: bool,
        put: Put,
        lay_out: Callable[[PositionWindows, IntArray, Put], Groups[GroupT]],
    ) -> SpanPlan[ArrayT, GroupT]:
        """Plan a batch.

        word_queries: plan words as queries too. The last layer needs none, as its output for words is not used.
        lay_out: makes the groups from the windows and the position row of each column, *Shape: [C]*.
        """
        spans = LatticeSpans.of(lattice)
        windows = PositionWindows.of(spans, QueryGroups.of(spans, most=GROUP, words=word_queries))
        distances, columns = _distinct(windows.columns(), lattice.longest)
        by_characters, by_all = lay_out(windows, columns, put)
        own = spans.places[: lattice.n_characters], np.argsort(spans.places), distances
        characters, order, distances = put(own)
        lengths = tuple(spans.counts.tolist())
        return cls(
            characters=characters,
            order=order,
            distances=distances,
            longest=lattice.longest,
            by_characters=AttentionPlan(by_characters, lengths, lattice.longest),
            planned_by_all=AttentionPlan(by_all, lengths, max(lengths, default=0)) if word_queries else None,
        )

    @property
    def by_all(self) -> AttentionPlan[GroupT]:
        """The plan for all rows as queries."""
        if self.planned_by_all is None:
            raise ValueError(
                "Words are among the queries, but the plan is for characters only: make it with word_queries=True."
            )
        return self.planned_by_all


def _distinct(columns: IntArray, longest: int) -> tuple[IntArray, IntArray]:
    """Return the distinct columns, as four distances each, and the index of each column among them.

    columns: *Shape: [3, C]*
    """
    above, width = columns.max(initial=0) + 1, 2 * longest + 1
    codes, inverse = np.unique((columns[0] * above + columns[1]) * width + columns[2] + longest, return_inverse=True)
    query, key, offset = codes // width // above, codes // width % above, codes % width - longest
    return np.stack([offset, offset - key + 1, offset + query - 1, offset + query - key], axis=1), inverse


def query_groups(windows: PositionWindows, columns: IntArray, put: Put, kind: Callable[..., GroupT]) -> Groups[GroupT]:
    """Return each group, as the `QueryGroup` that `kind` makes."""
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
    of_characters, groups = list[GroupT](), list[GroupT]()
    for sentence, begin, count, rows, begins, kinds, shifts in parts:
        first, length, words = int(spans.begins[sentence]), int(spans.counts[sentence]), words_before[sentence]
        place, keys = begin - first, slice(first, first + length)
        own_parts = keys, place, rows, begins.reshape(-1, length), kinds, shifts
        groups.append(kind(sentence, slice(begin, begin + count), *own_parts))
        if place < n_characters[sentence]:
            of_characters.append(kind(sentence, slice(begin - words, begin + count - words), *own_parts))
    return tuple(of_characters), tuple(groups)


def _split(array: Any, counts: IntArray) -> list[Any]:
    """Split an array into consecutive parts of the given sizes."""
    edges = [0, *np.cumsum(counts).tolist()]
    return [array[begin:end] for begin, end in pairwise(edges)]
