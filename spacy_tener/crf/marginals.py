"""Probabilities of entities under a CRF, the probable entities, and the entropy of the distribution over paths."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..processes import one_thread
from ..types import AnyFloats, IntArray
from .forward import ForwardBackward, zero_neg_inf


class EntitySpans(NamedTuple):
    """Entities of several sequences, one per position of four parallel arrays."""

    sequence: IntArray
    start: IntArray
    """First token, counted within the sequence."""
    end: IntArray
    """One past the last token."""
    label: IntArray
    """Index of the entity type."""


def check_spans(spans: EntitySpans, forward_backward: ForwardBackward) -> None:
    """Raise if a span does not lie in its sequence or has an unknown label."""
    lengths = forward_backward.packing.lengths
    exists = (spans.sequence >= 0) & (spans.sequence < lengths.size)
    exists &= (spans.label >= 0) & (spans.label < forward_backward.transitions.layout.n_labels)
    within = (spans.start >= 0) & (spans.start < spans.end)
    within &= spans.end <= lengths[np.where(exists, spans.sequence, 0)] if lengths.size else False
    wrong = np.flatnonzero(~(exists & within))
    if wrong.size:
        values = tuple(int(column[wrong[0]]) for column in spans)
        raise ValueError(
            f"span {wrong[0]} (sequence, start, end, label) = {values} does not lie in its sequence, "
            "or its label is not that of an entity type"
        )


def running_sums(values: AnyFloats) -> AnyFloats:
    """Return prefix sums: `sums[j] - sums[i]` is the sum of rows i to j - 1.

    *Shape:* (units, ...) to (units + 1, ...)
    """
    return np.concatenate([np.zeros_like(values[:1]), values.cumsum(axis=0)])


def span_marginals(forward_backward: ForwardBackward, spans: EntitySpans) -> AnyFloats:
    """Return the probability of each span as one entity: paths up to B, the fixed path from B to E, paths from E on.

    *Shape:* (n_spans,)
    """
    spans = EntitySpans(*(np.asarray(column, dtype=np.int64) for column in spans))
    if not spans.label.size:
        return np.zeros(0, forward_backward.alpha.dtype)
    check_spans(spans, forward_backward)
    offsets = forward_backward.packing.offsets[spans.sequence]
    first, last, label = spans.start + offsets, spans.end + offsets - 1, spans.label
    layout = forward_backward.transitions.layout
    paths, total = forward_backward.unnormalized_log_marginals()
    single = paths[first, layout.single.start + label] - total[first, 0]
    with np.errstate(invalid="ignore"):
        scores = np.where(first == last, single, log_probability_of_longer(forward_backward, total, first, last, label))
    return np.exp(scores)


def log_probability_of_longer(
    forward_backward: ForwardBackward, total: AnyFloats, first: IntArray, last: IntArray, label: IntArray
) -> AnyFloats:
    """Return the log-probability of entities of two or more tokens: forward + span + backward - log Z.

    *Shape:* (n_spans,)
    """
    layout = forward_backward.transitions.layout
    begin, end = layout.begin.start + label, layout.end.start + label
    # alpha and beta are relative to different shifts: subtract those between the two ends of the span.
    shifts = running_sums(forward_backward.shifts())
    around = forward_backward.alpha[first, begin] + forward_backward.beta[last, end]
    outer: AnyFloats = around - total[last, 0] - (shifts[last] - shifts[first])
    return outer + fixed_path_scores(forward_backward, first, last, label)


def fixed_path_scores(forward_backward: ForwardBackward, first: IntArray, last: IntArray, label: IntArray) -> AnyFloats:
    """Return the score of each span's transitions from B to E and of the emissions of I between. *Shape:* (n_spans,)"""
    layout, table = forward_backward.transitions.layout, forward_backward.transitions.table
    begin, end, inside = (block.start + label for block in (layout.begin, layout.end, layout.inside))
    inner = forward_backward.emissions[:, layout.inside]
    forbidden = inner == -np.inf
    sums, barriers = running_sums(np.where(forbidden, 0.0, inner)), running_sums(forbidden.astype(np.float64))
    stop = np.maximum(last, first + 1)
    emitted = sums[stop, label] - sums[first + 1, label]
    emitted[barriers[stop, label] > barriers[first + 1, label]] = -np.inf
    count = stop - first - 1
    through = table[begin, inside] + (count - 1) * table[inside, inside] + table[inside, end]
    scores: AnyFloats = emitted + np.where(count == 0, table[begin, end], through)
    return scores


def outside_marginals(
    forward_backward: ForwardBackward, sequence: IntArray, start: IntArray, end: IntArray
) -> AnyFloats:
    """Return the probability that all tokens of a span are outside of entities.

    *Shape:* all (n_spans,)
    """
    outside, shifts = forward_backward.transitions.layout.outside, running_sums(forward_backward.shifts())
    first = np.asarray(start, dtype=np.int64) + forward_backward.packing.offsets[sequence]
    last = np.asarray(end, dtype=np.int64) + forward_backward.packing.offsets[sequence] - 1
    emissions = forward_backward.emissions[:, outside].astype(np.float64)
    forbidden = emissions == -np.inf
    sums, barriers = running_sums(np.where(forbidden, 0.0, emissions)), running_sums(forbidden.astype(np.int64))
    _, total = forward_backward.unnormalized_log_marginals()
    # alpha and beta both have the emission of a single token: the difference of sums is then minus this.
    with np.errstate(invalid="ignore"):
        scores = forward_backward.alpha[first, outside] + forward_backward.beta[last, outside] - total[last, 0]
        scores += sums[last] - sums[first + 1] - (shifts[last] - shifts[first])
        scores += (last - first) * forward_backward.transitions.table[outside, outside]
        probabilities: AnyFloats = np.where(barriers[last + 1] > barriers[first], 0.0, np.exp(scores))
    return probabilities


def probable_spans(forward_backward: ForwardBackward, minimum: float) -> tuple[EntitySpans, AnyFloats]:
    """Return all spans, in no order, that are entities with at least this probability, and their probabilities.

    An entity is followed from its B on, as long as the probability that it began there and still goes on is at least
    the minimum. The distribution over paths is a Markov chain, so each step multiplies by the conditional probability
    of I or E after B or I. On any path at most one entity covers a token, so at most `1 / minimum` are followed at a
    time, however flat the distribution is.
    """
    layout, later, table = (
        forward_backward.transitions.layout,
        forward_backward.packing.later,
        forward_backward.transitions.table,
    )
    paths, total = forward_backward.unnormalized_log_marginals()
    tags = np.exp(paths - total)
    source, target = forward_backward.transition_log_marginals(total)
    # P(inside or end at a token | begin or inside at the token before), of the same type. 0 at the first tokens, and in
    # a row behind the last one. *Shape:* (2, 2, units + 1, labels)
    chances = np.zeros((2, 2, len(tags) + 1, layout.n_labels))
    with np.errstate(divide="ignore", invalid="ignore"):
        for before, of_source in zip((layout.begin, layout.inside), chances, strict=True):
            for tag, rows in zip((layout.inside, layout.end), of_source, strict=True):
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
    sequence = forward_backward.packing.sequence[first]
    offset = forward_backward.packing.offsets[sequence]
    return EntitySpans(sequence, first - offset, stop - offset, label), probability


def entropy(forward_backward: ForwardBackward) -> AnyFloats:
    """Return the entropy of each sequence's distribution over paths, in nats: log Z minus the expected score.

    *Shape:* (sequences,), in float64
    """
    return np.maximum(forward_backward.log_partition() - expected_score(forward_backward), 0.0)


def expected_score(forward_backward: ForwardBackward) -> AnyFloats:
    """Return the expected score of a path of each sequence. *Shape:* (sequences,), in float64"""
    packing, transitions = forward_backward.packing, forward_backward.transitions
    paths, total = forward_backward.unnormalized_log_marginals()
    tags = np.exp(paths - total)
    first, last = packing.first, packing.last
    steps = (tags * replace_neg_inf(forward_backward.emissions)).sum(axis=1, dtype=np.float64)
    steps[first] += (tags[first] * replace_neg_inf(transitions.start)).sum(axis=1)
    steps[last] += (tags[last] * replace_neg_inf(transitions.end)).sum(axis=1)
    steps[packing.later] += expected_transition_scores(forward_backward, total)
    return packing.sums(steps)


@one_thread
def expected_transition_scores(forward_backward: ForwardBackward, total: AnyFloats) -> AnyFloats:
    """Return the expected score of the transition into each `later` token. *Shape:* (n_later,)"""
    table = forward_backward.transitions.table
    source, target = forward_backward.transition_log_marginals(total)
    if forward_backward.transitions.can_exponentiate:
        means: AnyFloats = (np.exp(source) @ (np.exp(table) * replace_neg_inf(table)) * np.exp(target)).sum(axis=1)
        return means
    scores = np.zeros(len(source), source.dtype)
    for tag, row in zip(source.T, table, strict=True):
        scores += (np.exp(tag[:, None] + row + target) * replace_neg_inf(row)).sum(axis=1)
    return scores


def replace_neg_inf(scores: AnyFloats) -> AnyFloats:
    """Return scores with 0 for -inf: forbidden paths have probability 0 and add nothing to an expectation."""
    return zero_neg_inf(scores.copy())
