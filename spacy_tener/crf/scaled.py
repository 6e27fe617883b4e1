"""Probabilities of a few entities of many sequences, quickly: sums over all paths in numpy.

What is summed are the exponentials themselves, in float64, and their scale is taken out every few steps: that is half
the work of a step in log-space, and float64 leaves room for scores that are hundreds apart. Should that not be enough,
the sums forwards and backwards differ, and log-space is there for it (`forward.py`). Forwards and backwards go side by
side, tag by row as in `decode.py`; read backwards, an entity begins with its E (`mirror`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..batching.packing import Packing
from ..batching.sequences import ranges
from ..tagging import TagLayout
from ..types import AnyFloats, IntArray
from .marginals import EntitySpans
from .transitions import Transitions, inside_scores, mirror

Sums = NDArray[np.float64]

SCALED_EVERY = 4
"""Steps. Emissions are at most 1, and transitions rarely above e^10."""


@dataclass(frozen=True)
class ScaledSums:
    """The sums over all paths up to each tag, with its own emission, forwards and backwards, and their scales.

    emissions: relative to the largest of their token. *Shape* [N, K]
    sums: tags as they are, and mirrored, packed. *Shape* [2, K, N]
    scales: logarithms of what was taken out up to each group of steps. *Shape* [2, n_groups, n_filled]
    """

    transitions: Transitions
    packing: Packing
    emissions: Sums
    sums: Sums
    scales: Sums

    @classmethod
    def of(cls, emissions: AnyFloats, transitions: Transitions, packing: Packing) -> ScaledSums:
        """*Shape* [N, K], flat rows; -inf bars a tag"""
        relative = (emissions - emissions.max(1, keepdims=True)).astype(np.float64)
        swap, weights = mirror(transitions.layout), np.exp(relative)
        sums = np.empty((2, *weights.T.shape))
        sums[0], sums[1] = weights[packing.forward].T, weights[packing.backward].T[swap]
        return cls(transitions, packing, relative, sums, add_up(sums, transitions, packing))

    def places(self, sequence: IntArray, step: IntArray) -> tuple[IntArray, tuple[IntArray, IntArray]]:
        """Where the sums of a step of a sequence are, and their scale: packed row; group of steps and column."""
        column = np.empty(self.packing.n_sequences, np.int64)
        column[self.packing.order] = np.arange(self.packing.order.size)
        begins = np.array([begin for begin, _ in self.packing.steps])
        return begins[step] + column[sequence], (step // SCALED_EVERY, column[sequence])

    def log_partitions(self, sequence: IntArray) -> Sums:
        """Of each sequence, as summed forwards and as summed backwards. *Shape* [n] to [2, n]"""
        row, (group, column) = self.places(sequence, self.packing.lengths[sequence] - 1)
        start, swap = self.transitions.both_ways()[0].astype(np.float64), mirror(self.transitions.layout)
        last = self.sums[:, :, row] * np.exp(start[::-1, swap, None])
        sums: Sums = np.log(last.sum(1)) + self.scales[:, group, column]
        return sums

    def log_probabilities(self, spans: EntitySpans) -> tuple[Sums, bool]:
        """Of each span as one entity, and whether these are to be relied on. *Shape* [n_spans]"""
        layout = self.transitions.layout
        single = spans.end - spans.start == 1
        first, scale_first = self.places(spans.sequence, spans.start)
        last, scale_last = self.places(spans.sequence, self.packing.lengths[spans.sequence] - spans.end)
        tag = spans.label + np.where(single, layout.single.start, layout.begin.start)
        ahead = np.log(self.sums[0, tag, first]) + self.scales[0][scale_first]
        behind = np.log(self.sums[1, tag, last]) + self.scales[1][scale_last]
        row = self.packing.offsets[spans.sequence] + spans.start
        between = np.where(single, -self.emissions[row, tag], self._between(spans, row))
        total, other_way = self.log_partitions(spans.sequence)
        reliable = bool((np.abs(total - other_way) < 1e-6 * (1.0 + np.abs(total))).all())
        barred = np.isneginf(ahead) | np.isneginf(behind)
        return np.where(barred, -np.inf, ahead + between + behind - total), reliable

    def _between(self, spans: EntitySpans, row: IntArray) -> Sums:
        """The scores between the first and the last token of each span of two tokens and more. *Shape* [n_spans]"""
        layout, table = self.transitions.layout, self.transitions.table
        begin, end, inside = (block.start + spans.label for block in (layout.begin, layout.end, layout.inside))
        count = np.maximum(spans.end - spans.start - 2, 0)
        owner = np.repeat(np.arange(count.size), count)
        emitted = np.bincount(owner, self.emissions[ranges(row + 1, count), inside[owner]], minlength=count.size)
        through = table[begin, inside] + (count - 1) * table[inside, inside] + table[inside, end]
        scores: Sums = emitted + np.where(count == 0, table[begin, end], through)
        return scores


def add_up(sums: Sums, transitions: Transitions, packing: Packing) -> Sums:
    """Make sums of packed emissions, in place. Returns the scales taken out of them."""
    start, table = transitions.both_ways()
    layout, widest = transitions.layout, packing.sizes[0]
    moves = np.exp(table, dtype=np.float64)
    outside = np.ascontiguousarray(moves[:, layout.closers, layout.openers].swapaxes(1, 2))
    inside: Sums = np.stack([inside_scores(way, layout) for way in moves]).astype(np.float64, copy=False)[..., None]
    scales = np.zeros((2, 1 + (len(packing.steps) - 1) // SCALED_EVERY, widest))
    previous = sums[:, :, :widest]
    previous *= np.exp(start, dtype=np.float64)[..., None]
    space = np.empty(2 * layout.n_tags * widest)
    reached = space.reshape(2, layout.n_tags, widest)
    for step, (begin, end) in enumerate(packing.steps[1:], 1):
        if end - begin != reached.shape[-1]:
            width = end - begin
            reached = space[: 2 * layout.n_tags * width].reshape(2, layout.n_tags, width)
        previous = previous[:, :, : end - begin]
        advance(previous, outside, inside, reached, layout)
        if not step % SCALED_EVERY:
            largest = reached.max(1)
            group = step // SCALED_EVERY
            scales[:, group] = scales[:, group - 1]
            scales[:, group, : end - begin] += np.log(largest)
            reached /= largest[:, None]
        previous = sums[:, :, begin:end]
        previous *= reached
    return scales


def advance(previous: Sums, outside: Sums, inside: Sums, reached: Sums, layout: TagLayout) -> None:
    """From the sums at one token to those at the next, without its emissions. *Shape* [2, K, n]"""
    np.matmul(outside, previous[:, layout.closers], out=reached[:, layout.openers])
    continued = reached[:, layout.continuers].reshape(2, 2, layout.n_labels, -1)
    np.multiply(previous[:, None, layout.begin], inside[:, 0], out=continued)
    continued += previous[:, None, layout.inside] * inside[:, 1]


def span_probabilities(
    emissions: AnyFloats, transitions: Transitions, packing: Packing, spans: EntitySpans
) -> Sums | None:
    """Probability of each span as one entity; None where scores are too far apart. *Shape* [N, K] to [n_spans]"""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        found, reliable = ScaledSums.of(emissions, transitions, packing).log_probabilities(spans)
        return np.exp(found) if reliable else None
