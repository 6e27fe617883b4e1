"""Which rows of position a group of queries needs, and where each pair of spans finds its own among them.

The positions of two spans enter their score through the length of the query, the length of the key and the offset of
their heads alone. So queries are taken in groups of neighbours. For a key, a group's queries of one length need the
offsets of one *window*, as wide as their heads spread. Windows of keys of equal length overlap where the keys are near
each other. The union of its windows are a group's columns: one product of its queries with the columns' rows of
position gives all the scores that it needs, and few that it does not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...types import IntArray
from ..sequences import ranges, starts
from .lattice import LatticeSpans


@dataclass(frozen=True)
class QueryKinds:
    """The queries of a group that have one length are of a kind. *Shape: [K]* each

    groups, sentences: the group and the sentence of each kind.
    sizes: the length of its spans.
    firsts: the first of their heads.
    spreads: over how many positions their heads spread.
    """

    groups: IntArray
    sentences: IntArray
    sizes: IntArray
    firsts: IntArray
    spreads: IntArray


@dataclass(frozen=True)
class QueryGroups:
    """Queries cut into groups of neighbours.

    sentences, begins, counts: of each group, its sentence, its first span, and how many it has. *Shape: [G]*
    queries, groups, of_kind: of each query, the span, its group and its kind. *Shape: [Q]*
    kinds: the kinds of all groups, group after group.
    """

    sentences: IntArray
    begins: IntArray
    counts: IntArray
    queries: IntArray
    groups: IntArray
    of_kind: IntArray
    kinds: QueryKinds

    @classmethod
    def of(cls, spans: LatticeSpans, *, most: int, words: bool) -> QueryGroups:
        """most: so many queries make a group, or fewer. words: whether words are queries too."""
        parts = [_cut(spans.begins, spans.characters, most)]
        if words:
            parts.append(_cut(spans.begins + spans.characters, spans.counts - spans.characters, most))
        sentences, begins, counts = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        queries, groups = ranges(begins, counts), np.repeat(np.arange(len(counts)), counts)
        above = spans.sizes.max(initial=0) + 1
        codes, of_kind = np.unique(groups * above + spans.sizes[queries], return_inverse=True)
        firsts, spreads = _extent(spans.heads[queries], of_kind, len(codes))
        kinds = QueryKinds(codes // above, sentences[codes // above], codes % above, firsts, spreads)
        return cls(sentences, begins, counts, queries, groups, of_kind, kinds)

    @property
    def cut(self) -> tuple[list[int], list[int], list[int]]:
        """The sentence, the first span and the number of spans of each group."""
        return self.sentences.tolist(), self.begins.tolist(), self.counts.tolist()


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

    kinds, keys: of each window. *Shape: [V]*
    ends: where it ends among the columns. *Shape: [V]*
    new: how many columns, at its end, it does not share. *Shape: [V]*
    """

    kinds: IntArray
    keys: IntArray
    ends: IntArray
    new: IntArray

    @classmethod
    def of(cls, spans: LatticeSpans, kinds: QueryKinds) -> PositionWindows:
        counts = spans.counts[kinds.sentences]
        of_kind = np.repeat(np.arange(len(counts)), counts)
        keys = _sorted_keys(spans)[ranges(spans.begins[kinds.sentences], counts)]
        heads, sizes = spans.heads[keys], spans.sizes[keys]
        new = kinds.spreads[of_kind]
        alike = (of_kind[1:] == of_kind[:-1]) & (sizes[1:] == sizes[:-1])
        new[1:] = np.where(alike, np.minimum(new[1:], heads[:-1] - heads[1:]), new[1:])
        return cls(of_kind, keys, np.cumsum(new), new)

    def widths(self, query_groups: QueryGroups) -> IntArray:
        """How many columns each group has. *Shape: [G]*"""
        widths = np.zeros_like(query_groups.counts)
        np.add.at(widths, query_groups.kinds.groups[self.kinds], self.new)
        return widths

    def columns(self, spans: LatticeSpans, kinds: QueryKinds) -> IntArray:
        """For each column the length of its queries, the length of its keys, and the offset of their heads.

        *Shape: [3, C]*
        """
        last_offsets = (kinds.firsts + kinds.spreads - 1)[self.kinds] - spans.heads[self.keys]
        of_windows = np.stack([kinds.sizes[self.kinds], spans.sizes[self.keys], last_offsets - self.ends + 1])
        columns: IntArray = np.repeat(of_windows, self.new, axis=1)
        columns[2] += np.arange(columns.shape[1])
        return columns

    def begins(self, spans: LatticeSpans, kinds: QueryKinds) -> IntArray:
        """Where each window begins among the columns; within a kind, the keys lie as the spans do. *Shape: [V]*"""
        shifts = starts(spans.counts[kinds.sentences]) - spans.begins[kinds.sentences]
        begins = np.empty_like(self.ends)
        begins[self.keys + shifts[self.kinds]] = self.ends - kinds.spreads[self.kinds]
        return begins


def _sorted_keys(spans: LatticeSpans) -> IntArray:
    """The spans, sentence after sentence, the shortest first, and of equal length the last first."""
    sentences = np.repeat(np.arange(len(spans.counts)), spans.counts)
    return np.lexsort((-spans.heads, spans.sizes, sentences))


def products(spans: LatticeSpans, query_groups: QueryGroups, windows: PositionWindows) -> IntArray:
    """Where a query's products lie among its group's, query after query, if its windows began at 0. *Shape: [Q]*

    Added to where its windows begin, that is where its product with each key lies.
    """
    widths = windows.widths(query_groups)
    number = np.arange(len(query_groups.queries)) - np.repeat(starts(query_groups.counts), query_groups.counts)
    first = number * widths[query_groups.groups] - starts(widths)[query_groups.groups]
    located: IntArray = first + spans.heads[query_groups.queries] - query_groups.kinds.firsts[query_groups.of_kind]
    return located
