"""Marginal entity probabilities under a CRF, and the entropy of its distribution over tag sequences.

An entity's probability is the total probability of all paths (tag sequences) that contain it. An entity with label X on
the tokens i to j has the tags B-X, I-X, .., I-X, E-X. Since these tags are fixed, its probability is a product of three
factors: the paths before the entity, the entity itself, and the paths after it (constrained forward-backward algorithm,
Culotta and McCallum 2004).

    P(i, j, X) = exp(alpha[i, B-X] + inner(i, j, X) + beta[j, E-X] - log Z)

Here, alpha and beta are the forward and backward scores (see `crf.forward`). `inner` adds up the transition scores from
i to j and the emission scores from i + 1 to j - 1.

Used by `pipeline.batch_decoding`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..processes import one_thread
from ..types import AnyFloats, IntArray
from .forward import ForwardBackward, zero_neg_inf


class EntitySpans(NamedTuple):
    """Entities in a batch of sequences, as parallel arrays with one element per entity.

    sequence (IntArray): Index of the sequence that contains the entity.
    start (IntArray): Index of the entity's first token in the sequence.
    end (IntArray): Index after the entity's last token in the sequence.
    label (IntArray): Index of the entity's label.
    """

    sequence: IntArray
    start: IntArray
    end: IntArray
    label: IntArray


def check_spans(spans: EntitySpans, forward_backward: ForwardBackward) -> None:
    """Raise a ValueError if a span exceeds its sequence or has an invalid label index."""
    lengths = forward_backward.packing.lengths
    exists = (spans.sequence >= 0) & (spans.sequence < lengths.size)
    exists &= (spans.label >= 0) & (spans.label < forward_backward.transitions.layout.n_labels)
    within = (spans.start >= 0) & (spans.start < spans.end)
    within &= spans.end <= lengths[np.where(exists, spans.sequence, 0)] if lengths.size else False
    wrong = np.flatnonzero(~(exists & within))
    if wrong.size:
        values = tuple(int(column[wrong[0]]) for column in spans)
        raise ValueError(
            f"span {wrong[0]} (sequence, start, end, label) = {values} is outside of its sequence, "
            "or its label is not the index of an entity type"
        )


def running_sums(values: AnyFloats) -> AnyFloats:
    """Return the prefix sums along the first axis, starting with 0.

    The sum of `values[i:j]` is `sums[j] - sums[i]`.

    values (AnyFloats): The values. *Shape:* (tokens, ...)
    RETURNS (AnyFloats): The prefix sums. *Shape:* (tokens + 1, ...)
    """
    return np.concatenate([np.zeros_like(values[:1]), values.cumsum(axis=0)])


def span_marginals(forward_backward: ForwardBackward, spans: EntitySpans) -> AnyFloats:
    """Return the probability that each span is an entity with its label. *Shape:* (spans,)

    Raises a ValueError if a span is invalid.
    """
    spans = EntitySpans(*(np.asarray(column, dtype=np.int64) for column in spans))
    if not spans.label.size:
        return np.zeros(0, forward_backward.alpha.dtype)
    check_spans(spans, forward_backward)
    offsets = forward_backward.packing.offsets[spans.sequence]
    first, last, label = spans.start + offsets, spans.end + offsets - 1, spans.label
    layout = forward_backward.transitions.layout
    log_scores, normalizer = forward_backward.unnormalized_log_marginals()
    single = log_scores[first, layout.single.start + label] - normalizer[first, 0]
    # `longer` is meaningless for entities with one token, whose values are ignored.
    with np.errstate(invalid="ignore"):
        longer = log_probability_of_longer(forward_backward, normalizer, first, last, label)
    return np.exp(np.where(first == last, single, longer))


def log_probability_of_longer(
    forward_backward: ForwardBackward, normalizer: AnyFloats, first: IntArray, last: IntArray, label: IntArray
) -> AnyFloats:
    """Return the log-probability of entities with two or more tokens. *Shape:* (spans,)

    The function evaluates the equation in the module docstring. Entities with one token are allowed, but their values
    are meaningless, and the caller must ignore them.

    forward_backward (ForwardBackward): The forward and backward scores.
    normalizer (AnyFloats): The normalizer returned by `unnormalized_log_marginals`. *Shape:* (tokens, 1)
    first, last (IntArray): Indices of each entity's first and last token in the batch. *Shape:* (spans,)
    label (IntArray): Label index of each entity. *Shape:* (spans,)
    """
    layout = forward_backward.transitions.layout
    begin, end = layout.begin.start + label, layout.end.start + label
    # alpha at `first` omits the shifts before `first`, and `normalizer` at `last` omits the shifts before `last` (see
    # `crf.forward`). The difference, which is the sum of the shifts from `first` to `last - 1`, must be subtracted.
    shifts = running_sums(forward_backward.shifts())
    around = forward_backward.alpha[first, begin] + forward_backward.beta[last, end]
    outer: AnyFloats = around - normalizer[last, 0] - (shifts[last] - shifts[first])
    return outer + fixed_path_scores(forward_backward, first, last, label)


def fixed_path_scores(forward_backward: ForwardBackward, first: IntArray, last: IntArray, label: IntArray) -> AnyFloats:
    """Return the term `inner` of the equation in the module docstring, for entities with two or more tokens.

    For entities with one token, the values are meaningless.

    `inner` contains the transition scores within the entity, and the emission scores of I at all tokens except the
    first and the last.

    first, last (IntArray): Indices of each entity's first and last token in the batch. *Shape:* (spans,)
    label (IntArray): Label index of each entity. *Shape:* (spans,)
    RETURNS (AnyFloats): The scores. *Shape:* (spans,)
    """
    layout, table = forward_backward.transitions.layout, forward_backward.transitions.table
    begin, end, inside = (block.start + label for block in (layout.begin, layout.end, layout.inside))
    inner = forward_backward.emissions[:, layout.inside]
    # Prefix sums cannot contain -inf, because -inf minus -inf is NaN. The forbidden tags are counted in separate
    # prefix sums.
    forbidden = inner == -np.inf
    sums, n_forbidden = running_sums(np.where(forbidden, 0.0, inner)), running_sums(forbidden.astype(np.float64))
    stop = np.maximum(last, first + 1)
    emitted = sums[stop, label] - sums[first + 1, label]
    emitted[n_forbidden[stop, label] > n_forbidden[first + 1, label]] = -np.inf
    count = stop - first - 1
    through = table[begin, inside] + (count - 1) * table[inside, inside] + table[inside, end]
    scores: AnyFloats = emitted + np.where(count == 0, table[begin, end], through)
    return scores


def outside_marginals(
    forward_backward: ForwardBackward, sequence: IntArray, start: IntArray, end: IntArray
) -> AnyFloats:
    """For each span, return the probability that all its tokens are O.

    sequence (IntArray): Index of the sequence that contains each span. *Shape:* (spans,)
    start, end (IntArray): Index of the first token, and index after the last token, in the sequence. *Shape:* (spans,)
    RETURNS (AnyFloats): The probabilities. *Shape:* (spans,)
    """
    outside, shifts = forward_backward.transitions.layout.outside, running_sums(forward_backward.shifts())
    first = np.asarray(start, dtype=np.int64) + forward_backward.packing.offsets[sequence]
    last = np.asarray(end, dtype=np.int64) + forward_backward.packing.offsets[sequence] - 1
    emissions = forward_backward.emissions[:, outside].astype(np.float64)
    forbidden = emissions == -np.inf
    sums, n_forbidden = running_sums(np.where(forbidden, 0.0, emissions)), running_sums(forbidden.astype(np.int64))
    _, normalizer = forward_backward.unnormalized_log_marginals()
    # alpha and beta include the emissions of the first and the last token. The prefix sums add the emissions between
    # them. If the span has one token, alpha and beta both include its emission, and the difference of the prefix sums
    # subtracts it once.
    with np.errstate(invalid="ignore"):
        scores = forward_backward.alpha[first, outside] + forward_backward.beta[last, outside] - normalizer[last, 0]
        scores += sums[last] - sums[first + 1] - (shifts[last] - shifts[first])
        scores += (last - first) * forward_backward.transitions.table[outside, outside]
        probabilities: AnyFloats = np.where(n_forbidden[last + 1] > n_forbidden[first], 0.0, np.exp(scores))
    return probabilities


def probable_spans(forward_backward: ForwardBackward, minimum: float) -> tuple[EntitySpans, AnyFloats]:
    """Return all entities whose probability is at least `minimum`, in arbitrary order.

    Given a CRF, the tags form a Markov chain. The search starts with P(B) at each token. At each following token, the
    probability is multiplied by the conditional probability of I or E given the previous tag. A candidate is discarded
    when P(B I .. I) falls below the minimum, because extending an entity cannot raise its probability:

        token       北     京     市
        B           0.9                      P(B)
        E                  0.3               P(北京)   = 0.9 * P(E | B) = 0.9 * 0.33
        I                  0.6               P(B I)    = 0.9 * P(I | B) = 0.9 * 0.67
        E                         0.6        P(北京市) = 0.6 * P(E | I) = 0.6 * 1.0

    Entities in a tag sequence cannot overlap. Therefore at most `1 / minimum` candidates cover the same token.

    forward_backward (ForwardBackward): The forward and backward scores.
    minimum (float): The probability threshold.
    RETURNS (tuple[EntitySpans, AnyFloats]): The entities and their probabilities.
    """
    layout, later, table = (
        forward_backward.transitions.layout,
        forward_backward.packing.later,
        forward_backward.transitions.table,
    )
    log_scores, normalizer = forward_backward.unnormalized_log_marginals()
    tags = np.exp(log_scores - normalizer)
    source, target = forward_backward.transition_log_marginals(normalizer)
    # Conditional probability `[previous tag, tag, token, label]`. The previous tag is B or I, and the tag is I or E.
    # The probability is 0 at a sequence's first token. An additional column of zeros after the last token ends the
    # search there. *Shape:* (2, 2, tokens + 1, labels)
    conditional = np.zeros((2, 2, len(tags) + 1, layout.n_labels))
    with np.errstate(divide="ignore", invalid="ignore"):
        for from_block, from_previous in zip((layout.begin, layout.inside), conditional, strict=True):
            for to_block, rows in zip((layout.inside, layout.end), from_previous, strict=True):
                joint = np.exp(source[:, from_block] + table[from_block, to_block].diagonal() + target[:, to_block])
                rows[later] = np.nan_to_num(joint / tags[later - 1, from_block])

    first, label = np.nonzero(tags[:, layout.single] >= minimum)
    found = [(first, first + 1, label, tags[first, layout.single.start + label])]
    first, label = np.nonzero(tags[:, layout.begin] >= minimum)
    # `prefix_probability` is P(B I .. I) for the tokens from `first` to `last`.
    last, prefix_probability = first, tags[first, layout.begin.start + label]
    to_inside, to_end = conditional[0]
    while first.size:
        last = last + 1
        probability = prefix_probability * to_end[last, label]
        prefix_probability = prefix_probability * to_inside[last, label]
        found.append(tuple(column[probability >= minimum] for column in (first, last + 1, label, probability)))
        is_candidate = prefix_probability >= minimum
        candidates = (first, last, label, prefix_probability)
        first, last, label, prefix_probability = (column[is_candidate] for column in candidates)
        to_inside, to_end = conditional[1]
    first, stop, label, probability = (np.concatenate(columns) for columns in zip(*found, strict=True))
    sequence = forward_backward.packing.sequence[first]
    offset = forward_backward.packing.offsets[sequence]
    return EntitySpans(sequence, first - offset, stop - offset, label), probability


def entropy(forward_backward: ForwardBackward) -> AnyFloats:
    """Return the entropy of the distribution over tag sequences, in nats, for each sequence.

    Since log P(y) = score(y) - log Z, the entropy -E[log P(y)] is log Z - E[score(y)].

    RETURNS (AnyFloats): The entropies in float64. *Shape:* (sequences,)
    """
    # The entropy is non-negative, but rounding errors can make the difference negative.
    return np.maximum(forward_backward.log_partition() - expected_score(forward_backward), 0.0)


def expected_score(forward_backward: ForwardBackward) -> AnyFloats:
    """Return the expected score E[score(y)] of a random tag sequence y, for each sequence.

    By linearity of expectation, it is the sum of all emission and transition scores weighted by their marginal
    probabilities.

    RETURNS (AnyFloats): The expected scores in float64. *Shape:* (sequences,)
    """
    packing, transitions = forward_backward.packing, forward_backward.transitions
    log_scores, normalizer = forward_backward.unnormalized_log_marginals()
    tags = np.exp(log_scores - normalizer)
    first, last = packing.first, packing.last
    steps = (tags * replace_neg_inf(forward_backward.emissions)).sum(axis=1, dtype=np.float64)
    steps[first] += (tags[first] * replace_neg_inf(transitions.start)).sum(axis=1)
    steps[last] += (tags[last] * replace_neg_inf(transitions.end)).sum(axis=1)
    steps[packing.later] += expected_transition_scores(forward_backward, normalizer)
    return packing.sums(steps)


@one_thread
def expected_transition_scores(forward_backward: ForwardBackward, normalizer: AnyFloats) -> AnyFloats:
    """Return the expected transition score between each token and the previous token.

    Each sequence's first token is excluded, since it has no previous token.

    normalizer (AnyFloats): The normalizer returned by `unnormalized_log_marginals`. *Shape:* (tokens, 1)
    RETURNS (AnyFloats): The expected scores. *Shape:* (later tokens,)
    """
    table = forward_backward.transitions.table
    source, target = forward_backward.transition_log_marginals(normalizer)
    if forward_backward.transitions.can_exponentiate:
        means: AnyFloats = (np.exp(source) @ (np.exp(table) * replace_neg_inf(table)) * np.exp(target)).sum(axis=1)
        return means
    scores = np.zeros(len(source), source.dtype)
    for tag, row in zip(source.T, table, strict=True):
        scores += (np.exp(tag[:, None] + row + target) * replace_neg_inf(row)).sum(axis=1)
    return scores


def replace_neg_inf(scores: AnyFloats) -> AnyFloats:
    """Return a copy of the scores with -inf replaced by 0.

    Forbidden tags have probability 0 and do not contribute to an expectation, but 0 * -inf would be NaN.
    """
    return zero_neg_inf(scores.copy())
