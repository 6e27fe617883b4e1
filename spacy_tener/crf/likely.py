"""Every entity that the CRF gives some probability: a few candidates instead of all pairs of edges."""

from __future__ import annotations

import numpy as np

from ..batching.sequences import ranges
from ..types import AnyFloats, BoolArray, IntArray
from .forward import ForwardBackward
from .marginals import EntitySpans

SLACK = 1.0 - 1e-6
"""For rounding: a span as likely as asked must not be missed."""


def candidate_spans(passes: ForwardBackward, minimum: AnyFloats) -> EntitySpans:
    """Spans among which are all those whose probability is at least the minimum of their type.

    Every path that holds a span has B at its first token, I between and E at its last, so that none of these tags is
    less likely than the span. Few tags are as likely as that, so few spans are left.

    *Shape* minimum: [n_labels], each above 0
    """
    layout = passes.transitions.layout
    tags = passes.marginals()
    likely = [tags[:, block] >= minimum * SLACK for block in (layout.single, layout.begin, layout.inside, layout.end)]
    # Rows of labels end to end, so that a key is `label * N + token`: no entity's first token ends another one's row.
    single, begin, inside, end = (np.ascontiguousarray(block.T).reshape(-1) for block in likely)
    first, last = joined_pairs(begin, inside, end)
    ones = np.flatnonzero(single)
    label, start = np.divmod(np.concatenate([ones, first]), max(1, len(tags)))
    stop = np.concatenate([ones, last]) - label * len(tags) + 1
    sequence = passes.packing.sequence[start]
    offset = passes.packing.offsets[sequence]
    return EntitySpans(sequence, start - offset, stop - offset, label)


def joined_pairs(begin: BoolArray, inside: BoolArray, end: BoolArray) -> tuple[IntArray, IntArray]:
    """Every `begin` with every later `end` where all between are `inside`. *Shape* [M] each, to [n_pairs] twice"""
    begins, ends = np.flatnonzero(begin), np.flatnonzero(end)
    # An entity may end at the first place that is not inside, and no later.
    stops = np.append(np.flatnonzero(~inside), len(inside))
    stop = stops[np.searchsorted(stops, begins, side="right").clip(max=len(stops) - 1)]
    first, last = np.searchsorted(ends, begins, side="right"), np.searchsorted(ends, stop, side="right")
    counts = np.maximum(last - first, 0)
    return np.repeat(begins, counts), ends[ranges(first, counts)]
