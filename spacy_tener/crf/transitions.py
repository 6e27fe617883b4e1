"""Transition scores of a CRF as tables over all tags.

Two rectangles are learned, `outside` and `inside` (see `spacy_tener.tagging`). Here they are one table over all tags,
with -inf for forbidden transitions. Then each step of a recursion is one matrix product, and the recursion from right
to left is that from left to right over mirrored tags: read backwards, an entity begins with its E and ends with its B.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ..processes import cached_property
from ..tagging import TagLayout
from ..types import AnyFloats, IntArray

CRFArrays = tuple[AnyFloats, AnyFloats, AnyFloats, AnyFloats]
"""start, end, outside, inside: the parameters of a CRF, or their gradients."""

MAX_EXPONENT = 40.0
"""For scores up to this, e^score, its inverse and their products are normal float32 numbers."""


@lru_cache(maxsize=64)
def mirrored_tags(layout: TagLayout) -> IntArray:
    """Return the counterpart of each tag in the text read backwards: B and E change places."""
    tags = np.arange(layout.n_tags)
    tags[layout.begin], tags[layout.end] = tags[layout.end].copy(), tags[layout.begin].copy()
    return tags


@lru_cache(maxsize=64)
def parameter_indices(layout: TagLayout) -> IntArray:
    """Return, for each score of start, end and the table over all tags, the index of its parameter.

    The parameters are start, end, outside and inside, joined, and then -inf for all that is forbidden.

    *Shape:* (2 tags + tags squared,)
    """
    sizes = layout.n_open, layout.n_open, layout.n_open**2, 4 * layout.n_labels
    start, end, outside, inside = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    scores = np.full((2 + layout.n_tags, layout.n_tags), sum(sizes))
    scores[0, layout.openers], scores[1, layout.closers] = start, end
    scores[2:][layout.closers, layout.openers] = outside.reshape(layout.n_open, layout.n_open)
    for source, parameters in zip((layout.begin, layout.inside), inside.reshape(2, 2, layout.n_labels), strict=True):
        same_type(scores[2:], layout, source)[:] = parameters
    return scores.ravel()


@dataclass(frozen=True)
class Transitions:
    """Scores over all tags, -inf for forbidden ones.

    start, end (AnyFloats): Scores of each tag as the first and as the last of a sequence. *Shape:* (tags,)
    table (AnyFloats): Scores of pairs of tags, `[from, to]`. *Shape:* (tags, tags)
    can_exponentiate (bool): True if all transitions can be exponentiated in float32.
    """

    layout: TagLayout
    start: AnyFloats
    end: AnyFloats
    table: AnyFloats
    can_exponentiate: bool

    @classmethod
    def of(cls, start: AnyFloats, end: AnyFloats, outside: AnyFloats, inside: AnyFloats) -> Transitions:
        """Make the tables of a CRF over `T` entity types. *Shape:* (2T + 1,), (2T + 1,), (2T + 1, 2T + 1), (2, 2T)"""
        layout = TagLayout(inside.shape[1] // 2)
        parameters = np.concatenate([start, end, outside.ravel(), inside.ravel(), np.full(1, -np.inf, start.dtype)])
        scores = parameters[parameter_indices(layout)].reshape(-1, layout.n_tags)
        largest = max(np.abs(learned).max(initial=0.0) for learned in (outside, inside))
        return cls(layout, scores[0], scores[1], scores[2:], can_exponentiate=bool(largest < MAX_EXPONENT))

    @cached_property
    def entity_gains(self) -> AnyFloats:
        """Upper bound of how much each tag's transitions score above those of O: those into it, and for E and S those
        out of it too. *Shape:* (tags,)
        """
        layout, between = self.layout, self.table[self.layout.closers, self.layout.openers]
        into = np.vstack((self.start[layout.openers], between))
        out_of = np.vstack((self.end[layout.closers], between.T))
        # O is the opener after all B, and the first of the closers.
        into = (into - into[:, layout.n_labels, None]).max(axis=0)
        out_of = (out_of - out_of[:, 0, None]).max(axis=0)
        to_end, to_inside = inside_scores(self.table, layout).max(axis=0) - self.table[layout.outside, layout.outside]
        begin, single = into[: layout.n_labels + 1], into[layout.single]
        ended_single, ended = np.split(out_of[1:], 2)
        return np.concatenate((begin, single + ended_single, to_end + ended, to_inside))

    def in_both_directions(self) -> tuple[AnyFloats, AnyFloats]:
        """Return start scores and tables for reading forwards and backwards.

        *Shape:* (2, tags), (2, tags, tags)
        """
        swap = mirrored_tags(self.layout)
        start = np.stack([self.start, self.end[swap]])
        return start, np.stack([self.table, self.table.T[swap][:, swap]])


def same_type(table: AnyFloats, layout: TagLayout, source: slice) -> AnyFloats:
    """Return a view of the scores from `source`, B or I, to E and to I of the same type. *Shape:* (2, labels)"""
    entries = table[source, layout.continuers].reshape(layout.n_labels, 2, layout.n_labels)
    diagonals: AnyFloats = np.einsum("tbt->bt", entries)
    return diagonals


def inside_scores(table: AnyFloats, layout: TagLayout) -> AnyFloats:
    """Return the scores from B and from I to E and I of the same type. *Shape:* (tags, tags) to (2, 2, labels)"""
    return np.stack([same_type(table, layout, source) for source in (layout.begin, layout.inside)])


def weight_gradients(layout: TagLayout, start: AnyFloats, end: AnyFloats, table: AnyFloats) -> CRFArrays:
    """Return the gradients of a CRF's parameters, given those of its tables."""
    inside = inside_scores(table, layout).reshape(2, 2 * layout.n_labels)
    return start[layout.openers], end[layout.closers], table[layout.closers, layout.openers], inside
