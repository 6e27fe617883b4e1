"""Which rows of position a group of queries needs, and where each pair of spans finds its own among them.

The positions of two spans enter their score through the length of the query, the length of the key and the offset of
their heads alone. So queries are taken in groups of neighbours. For a key, a group's queries of one length need the
offsets of one *window*, as wide as their heads spread. Windows of keys of equal length overlap where the keys are near
each other. The union of its windows are a group's columns: one product of its queries with the columns' rows of
position gives all the scores that it needs, and few that it does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..types import IntArray
from .lattice import LatticeSpans
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
        """most: so many queries make a group, or fewer. words: whether words are queries too."""
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
    """The least value of each group, and over how many numbers its values spread."""
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
        """How many columns each group has. *Shape: [G]*"""
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
        """Where each window begins among the columns; within a kind, the keys lie as the spans do. *Shape: [V]*"""
        sentences = self.query_groups.sentences[self.query_groups.kind_groups]
        shifts = starts(self.spans.counts[sentences]) - self.spans.begins[sentences]
        begins = np.empty_like(self.ends)
        begins[self.keys + shifts[self.kinds]] = self.ends - self.query_groups.spreads[self.kinds]
        return begins

    def products(self) -> IntArray:
        """Where a query's products lie among its group's, query after query, if its windows began at 0. *Shape: [Q]*

        Added to where its windows begin, that is where its product with each key lies.
        """
        own = self.query_groups
        number = np.arange(len(own.queries)) - np.repeat(starts(own.counts), own.counts)
        first = number * self.widths[own.groups] - starts(self.widths)[own.groups]
        located: IntArray = first + self.spans.heads[own.queries] - own.firsts[own.kinds]
        return located
