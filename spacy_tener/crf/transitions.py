"""Transition scores of a linear-chain CRF with BIOES tags.

A CRF has parameters for the allowed transitions only, in two arrays:

- `outside`: scores from the tags that can precede a new entity (the closers O, S, E) to the tags that can follow an
  entity (the openers B, O, S).
- `inside`: scores from B and I to E and I with the same label.

`Transitions` expands the parameters to a transition matrix `[from, to]`, so that each time step of the forward
algorithm is a matrix product. With one label, the matrix is:

              B    O    S    E    I
        B     .    .    .    in   in
        O     out  out  out  .    .         out = outside, in = inside, . = forbidden (-inf)
        S     out  out  out  .    .
        E     out  out  out  .    .
        I     .    .    .    in   in

The tag order is defined in `spacy_tener.tagging`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ..processes import cached_property
from ..tagging import TagLayout
from ..types import AnyFloats, IntArray

# The parameters of a CRF (start, end, outside and inside), or their gradients.
CRFArrays = tuple[AnyFloats, AnyFloats, AnyFloats, AnyFloats]

# Maximum absolute value of scores that are exponentiated. With this limit, exp(a + b) and exp(-a - b) neither overflow
# nor underflow in float32, for two scores a and b.
MAX_EXPONENT = 40.0


@lru_cache(maxsize=64)
def mirrored_tags(layout: TagLayout) -> IntArray:
    """Return a permutation of the tag ids that swaps each label's B and E.

    If a text is processed from right to left, an entity begins with E and ends with B. With the swapped tags, the
    backward algorithm is the forward algorithm on the reversed text.

    RETURNS (IntArray): The new tag id for each tag id. *Shape:* (tags,)
    """
    tags = np.arange(layout.n_tags)
    tags[layout.begin], tags[layout.end] = tags[layout.end].copy(), tags[layout.begin].copy()
    return tags


@lru_cache(maxsize=64)
def parameter_indices(layout: TagLayout) -> IntArray:
    """Return indices that gather the start scores, the end scores and the transition matrix from the CRF's parameters.

    The indices refer to a flat array that concatenates the parameters start, end, outside and inside, followed by a
    single -inf, which is the score of all forbidden tags and transitions.

    RETURNS (IntArray): Indices for the start scores, the end scores and the flattened transition matrix.
        *Shape:* (2 * tags + tags * tags,)
    """
    sizes = layout.n_open, layout.n_open, layout.n_open**2, 4 * layout.n_labels
    start, end, outside, inside = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    scores = np.full((2 + layout.n_tags, layout.n_tags), sum(sizes))
    scores[0, layout.openers], scores[1, layout.closers] = start, end
    scores[2:][layout.closers, layout.openers] = outside.reshape(layout.n_open, layout.n_open)
    for source, parameters in zip((layout.begin, layout.inside), inside.reshape(2, 2, layout.n_labels), strict=True):
        same_label_transitions(scores[2:], layout, source)[:] = parameters
    return scores.ravel()


@dataclass(frozen=True)
class Transitions:
    """The start, end and transition scores of a CRF for all tags, with -inf for forbidden tags and transitions.

    layout (TagLayout): The tag ids.
    start, end (AnyFloats): Scores of each tag at the first and at the last token in a sequence. *Shape:* (tags,)
    table (AnyFloats): Transition matrix `[from, to]`. *Shape:* (tags, tags)
    can_exponentiate (bool): Whether all allowed transition scores have an absolute value below `MAX_EXPONENT`, which
        prevents overflow and underflow in exp. This is true for practically all trained CRFs.
    """

    layout: TagLayout
    start: AnyFloats
    end: AnyFloats
    table: AnyFloats
    can_exponentiate: bool

    @classmethod
    def of(cls, start: AnyFloats, end: AnyFloats, outside: AnyFloats, inside: AnyFloats) -> Transitions:
        """Create the transition scores from the parameters of a CRF with `T` labels.

        start, end (AnyFloats): Scores of the first and the last tag. *Shape:* (2T + 1,) each
        outside (AnyFloats): Transition scores between entities. *Shape:* (2T + 1, 2T + 1)
        inside (AnyFloats): Transition scores within entities. *Shape:* (2, 2T)
        RETURNS (Transitions): The scores for all tags.
        """
        layout = TagLayout(inside.shape[1] // 2)
        parameters = np.concatenate([start, end, outside.ravel(), inside.ravel(), np.full(1, -np.inf, start.dtype)])
        scores = parameters[parameter_indices(layout)].reshape(-1, layout.n_tags)
        largest = max(np.abs(learned).max(initial=0.0) for learned in (outside, inside))
        return cls(layout, scores[0], scores[1], scores[2:], can_exponentiate=bool(largest < MAX_EXPONENT))

    @cached_property
    def entity_gains(self) -> AnyFloats:
        """Upper bounds on an entity's transition scores relative to those of O, for each tag. *Shape:* (tags,)

        A tag's bound is the largest difference between the score for a transition into the tag and the score for the
        corresponding transition into O. For the last tag of an entity (E or S), the difference for the next transition
        is added. `crf.pruning` uses the bounds to find tokens that cannot be in an entity.
        """
        layout, between = self.layout, self.table[self.layout.closers, self.layout.openers]
        into = np.vstack((self.start[layout.openers], between))
        out_of = np.vstack((self.end[layout.closers], between.T))
        # Subtract the scores of O, which is at index `n_labels` among the openers and at index 0 among the closers.
        into = (into - into[:, layout.n_labels, None]).max(axis=0)
        out_of = (out_of - out_of[:, 0, None]).max(axis=0)
        to_end, to_inside = inside_scores(self.table, layout).max(axis=0) - self.table[layout.outside, layout.outside]
        begin, single = into[: layout.n_labels + 1], into[layout.single]
        ended_single, ended = np.split(out_of[1:], 2)
        return np.concatenate((begin, single + ended_single, to_end + ended, to_inside))

    def in_both_directions(self) -> tuple[AnyFloats, AnyFloats]:
        """Return the start scores and the transition matrix for both text directions.

        In the second direction, from right to left, the matrix is transposed and B and E are swapped (see
        `mirrored_tags`).

        RETURNS (tuple[AnyFloats, AnyFloats]): Start scores, *Shape:* (2, tags), and transition matrices,
            *Shape:* (2, tags, tags).
        """
        swap = mirrored_tags(self.layout)
        start = np.stack([self.start, self.end[swap]])
        return start, np.stack([self.table, self.table.T[swap][:, swap]])


def same_label_transitions(table: AnyFloats, layout: TagLayout, source: slice) -> AnyFloats:
    """Return a writable view of the transition scores from B or I to E and I with the same label. *Shape:* (2, labels)

    table (AnyFloats): Transition matrix. *Shape:* (tags, tags)
    layout (TagLayout): The tag ids.
    source (slice): The ids of the previous tags, either `layout.begin` or `layout.inside`.
    """
    entries = table[source, layout.continuers].reshape(layout.n_labels, 2, layout.n_labels)
    # Equal labels are on the diagonals of the blocks for E and I. This einsum returns a view without copying.
    diagonals: AnyFloats = np.einsum("tbt->bt", entries)
    return diagonals


def inside_scores(table: AnyFloats, layout: TagLayout) -> AnyFloats:
    """Return the transition scores from B and I to E and I with the same label.

    table (AnyFloats): Transition matrix. *Shape:* (tags, tags)
    layout (TagLayout): The tag ids.
    RETURNS (AnyFloats): Scores `[from, to, label]`. *Shape:* (2, 2, labels)
    """
    return np.stack([same_label_transitions(table, layout, source) for source in (layout.begin, layout.inside)])


def weight_gradients(layout: TagLayout, start: AnyFloats, end: AnyFloats, table: AnyFloats) -> CRFArrays:
    """Return the gradients of the CRF's parameters.

    layout (TagLayout): The tag ids.
    start, end (AnyFloats): Gradients of all start and end scores. *Shape:* (tags,)
    table (AnyFloats): Gradient of the transition matrix. *Shape:* (tags, tags)
    RETURNS (CRFArrays): Gradients of start, end, outside and inside.
    """
    inside = inside_scores(table, layout).reshape(2, 2 * layout.n_labels)
    return start[layout.openers], end[layout.closers], table[layout.closers, layout.openers], inside
