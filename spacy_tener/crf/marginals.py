"""How sure the CRF is of an entity: the probability of all paths that hold it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..types import AnyFloats, IntArray
from .forward import ForwardBackward


class EntitySpans(NamedTuple):
    """Entities of several sequences, one per position of four parallel arrays."""

    sequence: IntArray
    start: IntArray
    """First token, counted within the sequence."""
    end: IntArray
    """One past the last token."""
    label: IntArray
    """Index of the entity type."""


def check_spans(spans: EntitySpans, passes: ForwardBackward) -> None:
    lengths = passes.packing.lengths
    known = (spans.sequence >= 0) & (spans.sequence < lengths.size)
    known &= (spans.label >= 0) & (spans.label < passes.transitions.layout.n_labels)
    within = (spans.start >= 0) & (spans.start < spans.end)
    within &= spans.end <= lengths[np.where(known, spans.sequence, 0)] if lengths.size else False
    wrong = np.flatnonzero(~(known & within))
    if wrong.size:
        values = tuple(int(column[wrong[0]]) for column in spans)
        raise ValueError(f"span {wrong[0]} (sequence, start, end, label) = {values} does not lie in its sequence")


def running_sums(values: AnyFloats) -> AnyFloats:
    """Sums of all rows before each: a difference of two is the sum between. *Shape* [N, ...] to [N + 1, ...]"""
    return np.concatenate([np.zeros_like(values[:1]), values.cumsum(axis=0)])


def span_marginals(passes: ForwardBackward, spans: EntitySpans) -> AnyFloats:
    """Probability of each span as one entity: what leads up to B, the clamped path from B to E, what follows E.

    *Shape* [n_spans]
    """
    spans = EntitySpans(*(np.asarray(column, dtype=np.int64) for column in spans))
    if not spans.label.size:
        return np.zeros(0, passes.alpha.dtype)
    check_spans(spans, passes)
    offsets = passes.packing.offsets[spans.sequence]
    first, last, label = spans.start + offsets, spans.end + offsets - 1, spans.label
    layout = passes.transitions.layout
    paths, total = passes.through()
    single = paths[first, layout.single.start + label] - total[first, 0]
    with np.errstate(invalid="ignore"):
        scores = np.where(first == last, single, longer(passes, total, first, last, label))
    probabilities: AnyFloats = np.exp(scores)
    return probabilities


def longer(passes: ForwardBackward, total: AnyFloats, first: IntArray, last: IntArray, label: IntArray) -> AnyFloats:
    """Log-probability of entities of two tokens and more: forward + span + backward - log Z. *Shape* [n_spans]"""
    assert passes.beta is not None
    layout = passes.transitions.layout
    begin, end = layout.begin.start + label, layout.end.start + label
    # The passes' scores are relative to shifts, and those between the two ends of the span must be made good.
    shifts = running_sums(passes.shifts())
    outer = passes.alpha[first, begin] + passes.beta[last, end] - total[last, 0] - (shifts[last] - shifts[first])
    scores: AnyFloats = outer + clamped(passes, first, last, label)
    return scores


def clamped(passes: ForwardBackward, first: IntArray, last: IntArray, label: IntArray) -> AnyFloats:
    """Transitions from B to E of each span and the emissions of the I between. *Shape* [n_spans]"""
    layout, table = passes.transitions.layout, passes.transitions.table
    begin, end, inside = (block.start + label for block in (layout.begin, layout.end, layout.inside))
    inner = passes.emissions[:, layout.inside]
    barred = inner == -np.inf
    sums, barriers = running_sums(np.where(barred, 0.0, inner)), running_sums(barred.astype(np.float64))
    stop = np.maximum(last, first + 1)
    emitted = sums[stop, label] - sums[first + 1, label]
    emitted[barriers[stop, label] > barriers[first + 1, label]] = -np.inf
    count = stop - first - 1
    through = table[begin, inside] + (count - 1) * table[inside, inside] + table[inside, end]
    scores: AnyFloats = emitted + np.where(count == 0, table[begin, end], through)
    return scores
