"""Test probabilities of tags and entities, probable spans and entropy by enumerating all paths."""

from __future__ import annotations

import math

import crf_brute_force as brute
import numpy as np
import pytest
import torch
from torch.testing import assert_close

from spacy_tener.crf.crf_torch import CRF
from spacy_tener.crf.marginals import EntitySpans, entropy, outside_marginals, probable_spans, span_marginals

LENGTHS = brute.LENGTHS


def all_spans(crf, lengths):
    rows = [
        (sequence, start, end, label)
        for sequence, length in enumerate(lengths)
        for start in range(length)
        for end in range(start + 1, length + 1)
        for label in range(crf.layout.n_labels)
    ]
    return EntitySpans(*np.array(rows, dtype=np.int64).reshape(-1, 4).T)


def span_probabilities(crf, emissions, lengths, spans, allowed=None):
    paths_and_scores = brute.paths_and_scores(crf, emissions, lengths, allowed)
    entities = [
        [set(zip(*(c.tolist() for c in crf.layout.decode(path)), strict=True)) for path in p]
        for p, _ in paths_and_scores
    ]
    probabilities = []
    for sequence, *span in zip(*(column.tolist() for column in spans), strict=True):
        contains = torch.tensor([tuple(span) in found for found in entities[sequence]], dtype=torch.float64)
        probabilities.append(paths_and_scores[sequence][1].softmax(0) @ contains)
    return torch.stack(probabilities).detach()


@pytest.mark.parametrize("n_labels", [0, 1, 2, 3])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("scale", [1.0, 60.0], ids=["moderate", "extreme transitions"])
def test_token_marginals_equal_brute_force(n_labels, masked, scale):
    crf = brute.random_crf(n_labels, scale=scale)
    emissions = brute.random_emissions(crf, LENGTHS)
    allowed = brute.random_mask(crf, LENGTHS) if masked else None
    with torch.no_grad():
        expected = brute.token_marginals(crf, emissions, LENGTHS, allowed)
    assert_close(brute.computed_marginals(crf, emissions, LENGTHS, allowed), expected)


@pytest.mark.parametrize("scale", [1.0, 100.0, 1e4])
def test_token_marginals_sum_to_one(scale):
    crf = brute.random_crf(3).float()
    lengths = [300, 1, 0, 40]
    emissions = brute.random_emissions(crf, lengths, scale=scale).float()
    marginals = brute.computed_marginals(crf, emissions, lengths)
    assert marginals.dtype == torch.float32
    assert_close(marginals.sum(1), torch.ones(341))
    assert ((marginals >= 0) & (marginals <= 1)).all()


@pytest.mark.parametrize("n_labels", [1, 2, 3])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("scale", [1.0, 60.0], ids=["moderate", "extreme transitions"])
def test_span_marginals_equal_brute_force(n_labels, masked, scale):
    crf = brute.random_crf(n_labels, scale=scale)
    emissions = brute.random_emissions(crf, LENGTHS)
    allowed = brute.random_mask(crf, LENGTHS) if masked else None
    spans = all_spans(crf, LENGTHS)
    found = brute.computed_span_marginals(crf, emissions, LENGTHS, spans, allowed)
    assert_close(found, span_probabilities(crf, emissions, LENGTHS, spans, allowed))


@pytest.mark.parametrize("n_labels", [0, 1, 2])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("scale", [1.0, 60.0], ids=["moderate", "extreme transitions"])
def test_outside_marginals_equal_brute_force(n_labels, masked, scale):
    crf = brute.random_crf(n_labels, scale=scale)
    emissions = brute.random_emissions(crf, LENGTHS)
    allowed = brute.random_mask(crf, LENGTHS) if masked else None
    sequence, start, end, _ = all_spans(CRF(1), LENGTHS)
    paths_and_scores = brute.paths_and_scores(crf, emissions, LENGTHS, allowed)
    expected = [
        paths_and_scores[i][1].softmax(0)
        @ torch.tensor((paths_and_scores[i][0][:, a:b] == crf.layout.outside).all(1)).double()
        for i, a, b in zip(sequence, start, end, strict=True)
    ]
    found = outside_marginals(brute.forward_backward(crf, emissions, LENGTHS, allowed), sequence, start, end)
    assert_close(torch.from_numpy(found), torch.stack(expected).detach())


def test_span_marginals_are_exact_in_long_text():
    """The probability of a span does not depend on the number of certain O tags before it."""
    crf = CRF(1)
    lengths = [4, 4000]
    short = brute.random_emissions(crf, [4]).float()
    before = torch.zeros(3996, crf.layout.n_tags)
    before[:, crf.layout.outside] = 100.0
    spans = EntitySpans(*np.array([[0, 1, 3, 0], [1, 3997, 3999, 0]]).T)
    single, after = brute.computed_span_marginals(crf, torch.cat([short, before, short]), lengths, spans).tolist()
    assert single == pytest.approx(after, rel=1e-5)
    assert single > 1e-4


def test_span_marginals_without_spans_are_empty():
    spans = EntitySpans(*np.empty((4, 0), dtype=np.int64))
    assert brute.computed_span_marginals(CRF(1), torch.zeros(2, 5), [2], spans).shape == (0,)


@pytest.mark.parametrize("lengths", [[], [0, 0]])
def test_marginals_of_empty_sequences_are_empty(lengths):
    crf = CRF(1)
    assert brute.computed_marginals(crf, torch.zeros(0, 5), lengths).shape == (0, 5)
    with pytest.raises(ValueError, match="span 0"):
        brute.computed_span_marginals(crf, torch.zeros(0, 5), lengths, EntitySpans(*np.array([[0, 0, 1, 0]]).T))


@pytest.mark.parametrize(
    "span",
    [(2, 0, 1, 0), (-1, 0, 1, 0), (0, -1, 1, 0), (0, 1, 1, 0), (0, 0, 3, 0), (0, 0, 1, 1), (0, 0, 1, -1)],
    ids=["sequence", "negative sequence", "start", "empty", "end", "label", "negative label"],
)
def test_error_names_invalid_span(span):
    spans = EntitySpans(*np.array([(1, 0, 1, 0), span]).T)
    values = ", ".join(str(value) for value in span)
    with pytest.raises(ValueError, match=rf"span 1 .*\({values}\)"):
        brute.computed_span_marginals(CRF(1), torch.zeros(5, 5), [2, 3], spans)


def test_error_names_span_with_invalid_sequence_index():
    with pytest.raises(ValueError, match=r"span 0 .*\(1, 0, 1, 0\)"):
        brute.computed_span_marginals(CRF(1), torch.zeros(5, 5), [5], EntitySpans(*np.array([(1, 0, 1, 0)]).T))


def test_span_marginal_is_exact_if_last_emission_dominates():
    """Before the last token, the score of the path is lower by 1,600, beyond the range of float64 exponentials."""
    crf = CRF(1)
    emissions = torch.zeros(10, crf.layout.n_tags)
    emissions[1:9, crf.layout.inside] = -200.0
    emissions[9, crf.layout.end] = 1605.0
    emissions[1:, crf.layout.begin] = -torch.inf
    (found,) = brute.computed_span_marginals(crf, emissions, [10], EntitySpans(*np.array([[0, 0, 10, 0]]).T))
    # Other paths have O or an entity of one token at each position, or start with an entity of two tokens.
    assert found.item() == pytest.approx(math.exp(5) / (math.exp(5) + 2**10 + 2**8), rel=1e-6)


LONGER_LENGTHS = [9, 0, 1, 14, 2]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("minimum", [0.3, 0.02, 1e-9])
def test_probable_spans_equal_brute_force_above_minimum(masked, minimum):
    crf = brute.random_crf(3)
    emissions = brute.random_emissions(crf, LONGER_LENGTHS)
    allowed = None
    if masked:
        allowed = torch.from_numpy(np.random.default_rng(2).random(tuple(emissions.shape)) < 0.5)
        allowed[:, crf.layout.outside] = True
    forward_backward = brute.forward_backward(crf, emissions, LONGER_LENGTHS, allowed)
    candidates = all_spans(crf, LONGER_LENGTHS)
    weights = span_marginals(forward_backward, candidates)
    expected = {row: p for row, p in zip(zip(*candidates, strict=True), weights, strict=True) if p >= minimum}
    spans, probability = probable_spans(forward_backward, minimum)
    found = dict(zip(zip(*spans, strict=True), probability, strict=True))
    assert len(found) == len(probability)
    assert found == pytest.approx(expected, rel=1e-9)
    assert expected


@pytest.mark.parametrize("scale", [0.0, 1.0, 12.0])
def test_number_of_probable_spans_is_bounded(scale):
    """Spans that contain the same token exclude each other, so at most 1 / minimum of them are probable."""
    crf = brute.random_crf(3)
    with torch.no_grad():
        for weight in crf.parameters():
            weight *= scale / 12.0
    emissions = brute.random_emissions(crf, [2000], scale=scale)
    spans, probability = probable_spans(brute.forward_backward(crf, emissions, [2000]), 0.01)
    covered = np.zeros(2001)
    np.add.at(covered, spans.start, probability)
    np.add.at(covered, spans.end, -probability)
    assert covered.cumsum().max() <= 1.0 + 1e-9
    assert probability.min() >= 0.01
    assert probability.size > 0


def test_empty_sequences_have_no_probable_spans():
    crf = brute.random_crf(2)
    spans, probability = probable_spans(brute.forward_backward(crf, brute.random_emissions(crf, [0, 0]), [0, 0]), 0.1)
    assert spans.label.size == probability.size == 0


def entropy_of_all_paths(crf, emissions, lengths, allowed=None, temperature=1.0):
    found = [
        (scores / temperature).log_softmax(0) for _, scores in brute.paths_and_scores(crf, emissions, lengths, allowed)
    ]
    return torch.stack([-(weights.exp() * weights).sum() for weights in found]).detach()


@pytest.mark.parametrize("n_labels", [0, 1, 3])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("scale", [1.0, 60.0], ids=["moderate", "extreme transitions"])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 40.0])
def test_entropy_equals_brute_force(n_labels, masked, scale, temperature):
    crf = brute.random_crf(n_labels, scale=scale)
    emissions = brute.random_emissions(crf, LENGTHS)
    allowed = brute.random_mask(crf, LENGTHS) if masked else None
    found = entropy(brute.forward_backward(crf, emissions, LENGTHS, allowed, temperature=temperature))
    assert_close(
        torch.from_numpy(found),
        entropy_of_all_paths(crf, emissions, LENGTHS, allowed, temperature),
        atol=1e-9,
        rtol=1e-7,
    )


def test_entropy_of_independent_parts_is_additive():
    """Without transition scores, parts of a text are independent if they are separated by a certain O tag."""
    crf = CRF(2).double()
    part = brute.random_emissions(crf, [6])
    part[-1] = -torch.inf
    part[-1, crf.layout.outside] = 0.0
    single, long = entropy(brute.forward_backward(crf, torch.cat([part, part.repeat(1000, 1)]), [6, 6000])).tolist()
    assert single > 1.0
    assert long == pytest.approx(1000 * single, rel=1e-9)
