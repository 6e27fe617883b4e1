"""How sure the CRF is of an entity: the probability of all paths that hold it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...types import IntArray
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


def running_sums(values: Tensor) -> Tensor:
    """Sums of all rows before each: a difference of two is the sum between. *Shape* [N, ...] to [N + 1, ...]"""
    return torch.cat([torch.zeros_like(values[:1]), values.cumsum(0)])


def span_marginals(passes: ForwardBackward, spans: EntitySpans) -> Tensor:
    """Probability of each span as one entity: what leads up to B, the clamped path from B to E, what follows E.

    *Shape* [n_spans]
    """
    spans = EntitySpans(*(np.asarray(column, dtype=np.int64) for column in spans))
    if not spans.label.size:
        return passes.alpha.new_zeros(0)
    check_spans(spans, passes)
    offsets = passes.packing.offsets[spans.sequence]
    first, last, label = (
        torch.from_numpy(column) for column in (spans.start + offsets, spans.end + offsets - 1, spans.label)
    )
    layout = passes.transitions.layout
    paths, total = passes.through()
    single = paths[first, layout.single.start + label] - total[first, 0]
    return torch.where(first == last, single, longer(passes, total, first, last, label)).exp()


def longer(passes: ForwardBackward, total: Tensor, first: Tensor, last: Tensor, label: Tensor) -> Tensor:
    """Log-probability of entities of two tokens and more: forward + span + backward - log Z. *Shape* [n_spans]"""
    assert passes.beta is not None
    layout = passes.transitions.layout
    begin, end = layout.begin.start + label, layout.end.start + label
    # The passes' scores are relative to shifts, and those between the two ends of the span must be made good.
    shifts = running_sums(passes.shifts())
    outer = passes.alpha[first, begin] + passes.beta[last, end] - total[last, 0] - (shifts[last] - shifts[first])
    return outer + clamped(passes, first, last, label)


def clamped(passes: ForwardBackward, first: Tensor, last: Tensor, label: Tensor) -> Tensor:
    """Transitions from B to E of each span and the emissions of the I between. *Shape* [n_spans]"""
    layout, table = passes.transitions.layout, passes.transitions.table
    begin, end, inside = (block.start + label for block in (layout.begin, layout.end, layout.inside))
    inner = passes.emissions[:, layout.inside]
    barred = inner == -torch.inf
    sums, barriers = running_sums(inner.masked_fill(barred, 0.0)), running_sums(barred.long())
    stop = torch.maximum(last, first + 1)
    emitted = sums[stop, label] - sums[first + 1, label]
    emitted = emitted.masked_fill(barriers[stop, label] > barriers[first + 1, label], -torch.inf)
    count = stop - first - 1
    through = table[begin, inside] + (count - 1) * table[inside, inside] + table[inside, end]
    return emitted + torch.where(count == 0, table[begin, end], through)
