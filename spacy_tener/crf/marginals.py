"""Probabilities of entities under a CRF, the probable entities, and the entropy of the distribution over paths.

Those computed from a `ForwardBackward` are exact. For a few entities of many sequences, `span_probabilities` is
quicker: it sums the exponentials themselves, in float64, rescaled every few steps. That is half the work of a step in
log-space, and float64 has room for scores that are hundreds apart. Where that is not enough, the sums forwards and
backwards differ, and the caller falls back to log-space (`forward.py`). Both directions run side by side, with a row
for each tag as in `decode.py`; read backwards, an entity begins with its E (`mirror`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..batching.sequences import Packing, ranges
from ..tagging import TagLayout
from ..types import AnyFloats, IntArray
from .forward import ForwardBackward, zero_neg_inf
from .transitions import Transitions, inside_scores, mirror


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
    """Raise if a span does not lie in its sequence or has an unknown label."""
    lengths = passes.packing.lengths
    known = (spans.sequence >= 0) & (spans.sequence < lengths.size)
    known &= (spans.label >= 0) & (spans.label < passes.transitions.layout.n_labels)
    within = (spans.start >= 0) & (spans.start < spans.end)
    within &= spans.end <= lengths[np.where(known, spans.sequence, 0)] if lengths.size else False
    wrong = np.flatnonzero(~(known & within))
    if wrong.size:
        values = tuple(int(column[wrong[0]]) for column in spans)
        raise ValueError(
            f"span {wrong[0]} (sequence, start, end, label) = {values} does not lie in its sequence, "
            "or its label is not that of an entity type"
        )


def running_sums(values: AnyFloats) -> AnyFloats:
    """Return prefix sums: `sums[j] - sums[i]` is the sum of rows i to j - 1. *Shape* [N, ...] to [N + 1, ...]"""
    return np.concatenate([np.zeros_like(values[:1]), values.cumsum(axis=0)])


def span_marginals(passes: ForwardBackward, spans: EntitySpans) -> AnyFloats:
    """Return the probability of each span as one entity: paths up to B, the fixed path from B to E, paths from E on.

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
        scores = np.where(first == last, single, multi_token(passes, total, first, last, label))
    return np.exp(scores)


def multi_token(
    passes: ForwardBackward, total: AnyFloats, first: IntArray, last: IntArray, label: IntArray
) -> AnyFloats:
    """Return the log-probability of entities of two or more tokens: forward + span + backward - log Z.

    *Shape* [n_spans]
    """
    assert passes.beta is not None
    layout = passes.transitions.layout
    begin, end = layout.begin.start + label, layout.end.start + label
    # alpha and beta are relative to different shifts: subtract those between the two ends of the span.
    shifts = running_sums(passes.shifts())
    around = passes.alpha[first, begin] + passes.beta[last, end]
    outer: AnyFloats = around - total[last, 0] - (shifts[last] - shifts[first])
    return outer + clamped(passes, first, last, label)


def clamped(passes: ForwardBackward, first: IntArray, last: IntArray, label: IntArray) -> AnyFloats:
    """Return the score of each span's transitions from B to E and of the emissions of I between. *Shape* [n_spans]"""
    layout, table = passes.transitions.layout, passes.transitions.table
    begin, end, inside = (block.start + label for block in (layout.begin, layout.end, layout.inside))
    inner = passes.emissions[:, layout.inside]
    forbidden = inner == -np.inf
    sums, barriers = running_sums(np.where(forbidden, 0.0, inner)), running_sums(forbidden.astype(np.float64))
    stop = np.maximum(last, first + 1)
    emitted = sums[stop, label] - sums[first + 1, label]
    emitted[barriers[stop, label] > barriers[first + 1, label]] = -np.inf
    count = stop - first - 1
    through = table[begin, inside] + (count - 1) * table[inside, inside] + table[inside, end]
    scores: AnyFloats = emitted + np.where(count == 0, table[begin, end], through)
    return scores


def probable_spans(passes: ForwardBackward, minimum: float) -> tuple[EntitySpans, AnyFloats]:
    """Return all spans, in no order, that are entities with at least this probability, and their probabilities.

    An entity is followed from its B on, as long as the probability that it began there and still goes on is at least
    the minimum. The distribution over paths is a Markov chain, so each step multiplies by the conditional probability
    of I or E after B or I. On any path at most one entity covers a token, so at most `1 / minimum` are followed at a
    time, however flat the distribution is.
    """
    layout, later, table = passes.transitions.layout, passes.packing.later, passes.transitions.table
    paths, total = passes.through()
    tags = np.exp(paths - total)
    source, target = passes.moves(total)
    # P(inside or end at a token | begin or inside at the token before), of the same type. 0 at the first tokens, and in
    # a row behind the last one. *Shape* [2, 2, N + 1, n_labels]
    chances = np.zeros((2, 2, len(tags) + 1, layout.n_labels))
    with np.errstate(divide="ignore", invalid="ignore"):
        for before, own in zip((layout.begin, layout.inside), chances, strict=True):
            for tag, rows in zip((layout.inside, layout.end), own, strict=True):
                moves = np.exp(source[:, before] + table[before, tag].diagonal() + target[:, tag])
                rows[later] = np.nan_to_num(moves / tags[later - 1, before])
    first, label = np.nonzero(tags[:, layout.single] >= minimum)
    found = [(first, first + 1, label, tags[first, layout.single.start + label])]
    first, label = np.nonzero(tags[:, layout.begin] >= minimum)
    last, goes_on, (inside, end) = first, tags[first, layout.begin.start + label], chances[0]
    while first.size:
        last = last + 1
        probability, goes_on = goes_on * end[last, label], goes_on * inside[last, label]
        found.append(tuple(column[probability >= minimum] for column in (first, last + 1, label, probability)))
        first, last, label, goes_on = (column[goes_on >= minimum] for column in (first, last, label, goes_on))
        inside, end = chances[1]
    first, stop, label, probability = (np.concatenate(columns) for columns in zip(*found, strict=True))
    sequence = passes.packing.sequence[first]
    offset = passes.packing.offsets[sequence]
    return EntitySpans(sequence, first - offset, stop - offset, label), probability


def entropy(passes: ForwardBackward) -> AnyFloats:
    """Return the entropy of each sequence's distribution over paths, in nats: log Z minus the expected score.

    *Shape* [n_sequences], in float64
    """
    return np.maximum(passes.log_partition() - expected_score(passes), 0.0)


def expected_score(passes: ForwardBackward) -> AnyFloats:
    """Return the expected score of a path of each sequence. *Shape* [n_sequences], in float64"""
    packing, transitions = passes.packing, passes.transitions
    paths, total = passes.through()
    tags = np.exp(paths - total)
    first, last = packing.first, packing.last
    steps = (tags * finite(passes.emissions)).sum(axis=1, dtype=np.float64)
    steps[first] += (tags[first] * finite(transitions.start)).sum(axis=1)
    steps[last] += (tags[last] * finite(transitions.end)).sum(axis=1)
    steps[packing.later] += expected_moves(passes, total)
    return packing.sums(steps)


def expected_moves(passes: ForwardBackward, total: AnyFloats) -> AnyFloats:
    """Return the expected score of the transition into each `later` token. *Shape* [n_later]"""
    table = passes.transitions.table
    source, target = passes.moves(total)
    if passes.transitions.moderate:
        means: AnyFloats = (np.exp(source) @ (np.exp(table) * finite(table)) * np.exp(target)).sum(axis=1)
        return means
    scores = np.zeros(len(source), source.dtype)
    for tag, row in zip(source.T, table, strict=True):
        scores += (np.exp(tag[:, None] + row + target) * finite(row)).sum(axis=1)
    return scores


def finite(scores: AnyFloats) -> AnyFloats:
    """Return scores with 0 for -inf: forbidden paths have probability 0 and add nothing to an expectation."""
    return zero_neg_inf(scores.copy())


Sums = NDArray[np.float64]

SPREAD = 100.0
"""Where the emissions of a token are further apart, log-space is used, even though float64 could hold each."""
SCALED_EVERY = 4
"""Steps between rescalings. Exponentiated emissions are at most 1, and transitions rarely above e^10."""


@dataclass(frozen=True)
class ScaledSums:
    """Scaled forward and backward sums over all paths up to each tag, with its own emission.

    emissions: relative to the largest of their token. *Shape* [N, K]
    sums: forwards; and backwards, over mirrored tags; packed. *Shape* [2, K, N]
    scales: logarithm of the factor divided out up to each group of steps. *Shape* [2, n_groups, n_filled]
    """

    transitions: Transitions
    packing: Packing
    emissions: Sums
    sums: Sums
    scales: Sums

    @classmethod
    def of(cls, emissions: AnyFloats, transitions: Transitions, packing: Packing) -> ScaledSums:
        """Sum over the paths of emissions. *Shape* [N, K], flat rows; -inf forbids a tag"""
        relative = (emissions - emissions.max(1, keepdims=True)).astype(np.float64)
        swap, weights = mirror(transitions.layout), np.exp(relative)
        sums = np.empty((2, *weights.T.shape))
        sums[0], sums[1] = weights[packing.forward].T, weights[packing.backward].T[swap]
        return cls(transitions, packing, relative, sums, scaled_recursion(sums, transitions, packing))

    def places(self, sequence: IntArray, step: IntArray) -> tuple[IntArray, tuple[IntArray, IntArray]]:
        """Return the indices of a step of each sequence in `sums` (packed row) and `scales` (group and column)."""
        column = np.empty(self.packing.n_sequences, np.int64)
        column[self.packing.order] = np.arange(self.packing.order.size)
        begins = np.array([begin for begin, _ in self.packing.steps])
        return begins[step] + column[sequence], (step // SCALED_EVERY, column[sequence])

    def log_partitions(self, sequence: IntArray) -> Sums:
        """Return log Z of each sequence, summed forwards and summed backwards. *Shape* [n] to [2, n]"""
        row, (group, column) = self.places(sequence, self.packing.lengths[sequence] - 1)
        start, swap = self.transitions.both_ways()[0].astype(np.float64), mirror(self.transitions.layout)
        last = self.sums[:, :, row] * np.exp(start[::-1, swap, None])
        sums: Sums = np.log(last.sum(1)) + self.scales[:, group, column]
        return sums

    def log_probabilities(self, spans: EntitySpans) -> tuple[Sums, bool]:
        """Return the log-probability of each span as one entity; and True if log Z agrees in both directions.

        *Shape* [n_spans]
        """
        layout = self.transitions.layout
        single = spans.end - spans.start == 1
        first, scale_first = self.places(spans.sequence, spans.start)
        last, scale_last = self.places(spans.sequence, self.packing.lengths[spans.sequence] - spans.end)
        tag = spans.label + np.where(single, layout.single.start, layout.begin.start)
        ahead = np.log(self.sums[0, tag, first]) + self.scales[0][scale_first]
        behind = np.log(self.sums[1, tag, last]) + self.scales[1][scale_last]
        row = self.packing.offsets[spans.sequence] + spans.start
        between = np.where(single, -self.emissions[row, tag], self._between(spans, row))
        total, backwards = self.log_partitions(spans.sequence)
        reliable = bool((np.abs(total - backwards) < 1e-9 * (1.0 + np.abs(total))).all())
        forbidden = np.isneginf(ahead) | np.isneginf(behind)
        return np.where(forbidden, -np.inf, ahead + between + behind - total), reliable

    def _between(self, spans: EntitySpans, row: IntArray) -> Sums:
        """Return the score between the first and last token of each span of two or more tokens. *Shape* [n_spans]"""
        layout, table = self.transitions.layout, self.transitions.table
        begin, end, inside = (block.start + spans.label for block in (layout.begin, layout.end, layout.inside))
        count = np.maximum(spans.end - spans.start - 2, 0)
        owner = np.repeat(np.arange(count.size), count)
        emitted = np.bincount(owner, self.emissions[ranges(row + 1, count), inside[owner]], minlength=count.size)
        through = table[begin, inside] + (count - 1) * table[inside, inside] + table[inside, end]
        scores: Sums = emitted + np.where(count == 0, table[begin, end], through)
        return scores


def scaled_recursion(sums: Sums, transitions: Transitions, packing: Packing) -> Sums:
    """Overwrite packed, exponentiated emissions with scaled sums over paths, and return the scales."""
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
    """Write the sums over paths to each tag of the next token, without its emissions. *Shape* [2, K, n]"""
    np.matmul(outside, previous[:, layout.closers], out=reached[:, layout.openers])
    continued = reached[:, layout.continuers].reshape(2, 2, layout.n_labels, -1)
    np.multiply(previous[:, None, layout.begin], inside[:, 0], out=continued)
    continued += previous[:, None, layout.inside] * inside[:, 1]


def span_probabilities(
    emissions: AnyFloats, transitions: Transitions, packing: Packing, spans: EntitySpans
) -> Sums | None:
    """Return the probability of each span as one entity; None where scores are too far apart for scaled sums.

    *Shape* [N, K] to [n_spans]
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        sums = ScaledSums.of(emissions, transitions, packing)
        # Both directions may lose the same path at a token where it is far below the others.
        far = np.count_nonzero(sums.emissions > -SPREAD) < np.count_nonzero(sums.emissions > -np.inf)
        if far:
            return None
        found, reliable = sums.log_probabilities(spans)
        return np.exp(found) if reliable else None
