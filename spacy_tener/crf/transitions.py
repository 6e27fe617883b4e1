"""Transition scores of a CRF as one table over all tags.

Only the allowed transitions have parameters: `outside` from each closer to each opener, and `inside` from B and I to E
and I of the same label (see `spacy_tener.tagging`). With one label, the table `[from, to]` is

              B    O    S    E    I
        B     .    .    .    in   in
        O     out  out  out  .    .         out = outside, in = inside, . = forbidden, -inf
        S     out  out  out  .    .
        E     out  out  out  .    .
        I     .    .    .    in   in

With the table, each step of a recursion is a matrix product. The backward recursion is the forward recursion over
mirrored tags: read from right to left, an entity begins with its E and ends with its B.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ..processes import cached_property
from ..tagging import TagLayout
from ..types import AnyFloats, IntArray

# The parameters of a CRF, or their gradients: start, end, outside and inside.
CRFArrays = tuple[AnyFloats, AnyFloats, AnyFloats, AnyFloats]

# If |score| is at most this value, exp(score), its inverse, and products of two of them are normal float32 numbers.
MAX_EXPONENT = 40.0


@lru_cache(maxsize=64)
def mirrored_tags(layout: TagLayout) -> IntArray:
    """Return the tag that each tag becomes when the text is read from right to left: B and E are swapped."""
    tags = np.arange(layout.n_tags)
    tags[layout.begin], tags[layout.end] = tags[layout.end].copy(), tags[layout.begin].copy()
    return tags


@lru_cache(maxsize=64)
def parameter_indices(layout: TagLayout) -> IntArray:
    """Return the index of the parameter of each score in `start`, `end` and the transition table, concatenated.

    The indices refer to the parameters start, end, outside and inside, flattened and concatenated, followed by one
    value of -inf for everything that is forbidden.

    *Shape:* (2 * tags + tags * tags,)
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
    """Scores of a CRF over all tags, -inf for what is forbidden.

    start, end (AnyFloats): Scores of each tag as the first and as the last of a sequence. *Shape:* (tags,)
    table (AnyFloats): Transition scores, `[from, to]`. *Shape:* (tags, tags)
    can_exponentiate (bool): Whether all transition scores can be exponentiated in float32, see `MAX_EXPONENT`. Trained
        CRFs practically always can.
    """

    layout: TagLayout
    start: AnyFloats
    end: AnyFloats
    table: AnyFloats
    can_exponentiate: bool

    @classmethod
    def of(cls, start: AnyFloats, end: AnyFloats, outside: AnyFloats, inside: AnyFloats) -> Transitions:
        """Build the tables from the parameters of a CRF with `T` labels.

        *Shape:* (2T + 1,), (2T + 1,), (2T + 1, 2T + 1) and (2, 2T)
        """
        layout = TagLayout(inside.shape[1] // 2)
        parameters = np.concatenate([start, end, outside.ravel(), inside.ravel(), np.full(1, -np.inf, start.dtype)])
        scores = parameters[parameter_indices(layout)].reshape(-1, layout.n_tags)
        largest = max(np.abs(learned).max(initial=0.0) for learned in (outside, inside))
        return cls(layout, scores[0], scores[1], scores[2:], can_exponentiate=bool(largest < MAX_EXPONENT))

    @cached_property
    def entity_gains(self) -> AnyFloats:
        """Upper bounds of what an entity's transitions score above those of O tags, for each tag. *Shape:* (tags,)

        The bound of a tag includes the transition into it; the bounds of E and S, which end an entity, also include the
        transition out of it. Each bound is the maximum over all tags at the other end of the transition.
        """
        layout, between = self.layout, self.table[self.layout.closers, self.layout.openers]
        into = np.vstack((self.start[layout.openers], between))
        out_of = np.vstack((self.end[layout.closers], between.T))
        # Subtract the scores of O, which is the opener after all B, and the first closer.
        into = (into - into[:, layout.n_labels, None]).max(axis=0)
        out_of = (out_of - out_of[:, 0, None]).max(axis=0)
        to_end, to_inside = inside_scores(self.table, layout).max(axis=0) - self.table[layout.outside, layout.outside]
        begin, single = into[: layout.n_labels + 1], into[layout.single]
        ended_single, ended = np.split(out_of[1:], 2)
        return np.concatenate((begin, single + ended_single, to_end + ended, to_inside))

    def in_both_directions(self) -> tuple[AnyFloats, AnyFloats]:
        """Return start scores and tables for the text from left to right and, over mirrored tags, from right to left.

        *Shape:* (2, tags) and (2, tags, tags)
        """
        swap = mirrored_tags(self.layout)
        start = np.stack([self.start, self.end[swap]])
        return start, np.stack([self.table, self.table.T[swap][:, swap]])


def same_type(table: AnyFloats, layout: TagLayout, source: slice) -> AnyFloats:
    """Return a writable view of the scores from `source`, B or I, to E and I of the same label. *Shape:* (2, labels)"""
    entries = table[source, layout.continuers].reshape(layout.n_labels, 2, layout.n_labels)
    diagonals: AnyFloats = np.einsum("tbt->bt", entries)
    return diagonals


def inside_scores(table: AnyFloats, layout: TagLayout) -> AnyFloats:
    """Return the scores from B and I to E and I of the same label, `[from, to, label]`.

    *Shape:* (tags, tags) to (2, 2, labels)
    """
    return np.stack([same_type(table, layout, source) for source in (layout.begin, layout.inside)])


def weight_gradients(layout: TagLayout, start: AnyFloats, end: AnyFloats, table: AnyFloats) -> CRFArrays:
    """Return the gradients of the parameters, given the gradients of start, end and the transition table."""
    inside = inside_scores(table, layout).reshape(2, 2 * layout.n_labels)
    return start[layout.openers], end[layout.closers], table[layout.closers, layout.openers], inside
