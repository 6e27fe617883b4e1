"""The CRF's transition scores as tables over all tags.

Two rectangles are learned, `outside` and `inside` (see `spacy_tener.tagging`). Spread out over all tags, with -inf for
what is no path, they let each step of a recursion be one matrix product, and let the right-to-left recursion be the
left-to-right one over mirrored tags: read backwards, an entity begins with its E and ends with its B.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from ..tagging import TagLayout
from ..types import AnyFloats, IntArray

CRFArrays = tuple[AnyFloats, AnyFloats, AnyFloats, AnyFloats]
"""start, end, outside, inside: the parameters of a CRF, or their gradients."""

# Up to here e^score and its inverse are ordinary float32 numbers, and their products too.
MODERATE = 40.0


@lru_cache(maxsize=64)
def mirror(layout: TagLayout) -> IntArray:
    """Return the tag that each tag is when the text is read backwards: B and E change places."""
    tags = np.arange(layout.n_tags)
    tags[layout.begin], tags[layout.end] = tags[layout.end].copy(), tags[layout.begin].copy()
    return tags


@dataclass(frozen=True)
class Transitions:
    """Scores over all `K` tags, -inf where there is no path.

    start, end: of each tag as the first and as the last of a sequence. *Shape* [K]
    table: `[from, to]`. *Shape* [K, K]
    moderate: whether all transitions can be exponentiated in float32.
    """

    layout: TagLayout
    start: AnyFloats
    end: AnyFloats
    table: AnyFloats
    moderate: bool

    @classmethod
    def of(cls, start: AnyFloats, end: AnyFloats, outside: AnyFloats, inside: AnyFloats) -> Transitions:
        """Make the tables of a CRF over `T` entity types. *Shape* [2T + 1], [2T + 1], [2T + 1, 2T + 1], [2, 2T]"""
        layout = TagLayout(inside.shape[1] // 2)
        first, last = (np.full(layout.n_tags, -np.inf, start.dtype) for _ in range(2))
        table = np.full((layout.n_tags, layout.n_tags), -np.inf, start.dtype)
        first[layout.openers] = start
        last[layout.closers] = end
        table[layout.closers, layout.openers] = outside
        for source, scores in zip((layout.begin, layout.inside), inside, strict=True):
            same_type(table, layout, source)[:] = scores.reshape(2, layout.n_labels)
        largest = max(np.abs(learned).max(initial=0.0) for learned in (outside, inside))
        return cls(layout, first, last, table, moderate=bool(largest < MODERATE))

    @cached_property
    def entity_gains(self) -> AnyFloats:
        """Upper bound of the gain over O of the transitions into each tag, and for a last tag those out of it. *Shape*
        [K]
        """
        layout, between = self.layout, self.table[self.layout.closers, self.layout.openers]
        into = np.vstack((self.start[layout.openers], between))
        out_of = np.vstack((self.end[layout.closers], between.T))
        # Among the openers, O stands behind the Bs; among the closers it is the first.
        into = (into - into[:, layout.n_labels, None]).max(axis=0)
        out_of = (out_of - out_of[:, 0, None]).max(axis=0)
        to_end, to_inside = inside_scores(self.table, layout).max(axis=0) - self.table[layout.outside, layout.outside]
        begin, single = into[: layout.n_labels + 1], into[layout.single]
        ended_single, ended = np.split(out_of[1:], 2)
        return np.concatenate((begin, single + ended_single, to_end + ended, to_inside))

    def both_ways(self) -> tuple[AnyFloats, AnyFloats]:
        """Start and transitions for reading forwards and for reading backwards, stacked. *Shape* [2, K], [2, K, K]"""
        swap = mirror(self.layout)
        start = np.stack([self.start, self.end[swap]])
        return start, np.stack([self.table, self.table.T[swap][:, swap]])


def same_type(table: AnyFloats, layout: TagLayout, source: slice) -> AnyFloats:
    """Return a view of the entries of `table` from `source` (B or I) to E and to I of the same type. *Shape* [2, T]"""
    entries = table[source, layout.continuers].reshape(layout.n_labels, 2, layout.n_labels)
    own: AnyFloats = np.einsum("tbt->bt", entries)
    return own


def inside_scores(table: AnyFloats, layout: TagLayout) -> AnyFloats:
    """Return the scores from B and from I to E and I of the same type. *Shape* [K, K] to [2, 2, T]"""
    return np.stack([same_type(table, layout, source) for source in (layout.begin, layout.inside)])


def weight_gradients(layout: TagLayout, start: AnyFloats, end: AnyFloats, table: AnyFloats) -> CRFArrays:
    """Return gradients of the CRF's parameters from those of the tables."""
    inside = inside_scores(table, layout).reshape(2, 2 * layout.n_labels)
    return start[layout.openers], end[layout.closers], table[layout.closers, layout.openers], inside
