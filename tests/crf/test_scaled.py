"""Probabilities of spans by scaled sums, against the exact ones in log-space."""

from __future__ import annotations

import crf_brute_force as brute
import numpy as np
import pytest
import torch
from test_crf_marginals import all_spans

from spacy_tener.crf import scorer
from spacy_tener.crf.marginals import EntitySpans, span_marginals
from spacy_tener.layers.crf import CRF

LENGTHS = [9, 0, 1, 30, 2]


def arrays(*inputs):
    return [x.numpy() if isinstance(x, torch.Tensor) else x for x in inputs]


def masked_emissions(crf, lengths, *, scale=2.0):
    emissions = brute.random_emissions(crf, lengths, scale=scale).float()
    allowed = torch.from_numpy(np.random.default_rng(2).random(tuple(emissions.shape)) < 0.5)
    allowed[:, crf.layout.outside] = True
    return emissions, allowed


@pytest.mark.parametrize("n_labels", [1, 3])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("scale", [1.0, 8.0])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
def test_every_spans_probability_is_its_marginal(monkeypatch, n_labels, masked, scale, temperature):
    crf = brute.random_crf(n_labels, scale=scale).float()
    emissions, allowed = masked_emissions(crf, LENGTHS)
    allowed = allowed if masked else None
    spans = all_spans(crf, LENGTHS)
    exact = span_marginals(brute.passes(crf, emissions, LENGTHS, allowed, temperature=temperature), spans)
    monkeypatch.setattr(scorer, "span_marginals", None)
    found = crf.scorer.span_probabilities(*arrays(emissions, LENGTHS, spans, allowed), temperature=temperature)
    np.testing.assert_allclose(found, exact, atol=1e-6, rtol=1e-3)


@pytest.mark.parametrize("length", [100, 1000, 10_000])
@pytest.mark.parametrize("scale", [0.3, 3.0, 10.0])
def test_the_error_stays_below_one_in_ten_thousand_however_long_the_text(monkeypatch, length, scale):
    crf = brute.random_crf(4).float()
    emissions, allowed = masked_emissions(crf, [length], scale=scale)
    tags = brute.decode(crf, emissions, [length], allowed)
    starts, ends, labels = crf.layout.decode(tags)
    spans = EntitySpans(np.zeros_like(starts), starts, ends, labels)
    exact = brute.found_spans(crf, emissions.double(), [length], spans, allowed)
    monkeypatch.setattr(scorer, "span_marginals", None)
    found = crf.scorer.span_probabilities(*arrays(emissions, [length], spans, allowed))
    assert np.abs(found - exact.numpy()).max() < 1e-6
    assert starts.size > length / 20


@pytest.mark.parametrize("seed", [1, 52])
def test_scores_that_both_ways_lose_almost_alike_are_summed_in_log_space(seed):
    """Where the best path takes a tag far below the best of its token, sums forwards and backwards differ by little."""
    lengths = [3, 11]
    crf = brute.random_crf(2, seed=seed, scale=40.0).float()
    emissions = brute.random_emissions(crf, lengths, seed=seed, scale=200.0).float()
    spans = all_spans(crf, lengths)
    found = crf.scorer.span_probabilities(*arrays(emissions, lengths, spans))
    np.testing.assert_allclose(found, brute.found_spans(crf, emissions.double(), lengths, spans), atol=1e-4)


def test_scores_too_far_apart_for_the_scale_are_summed_in_log_space():
    """Over eight tokens a path falls behind by 1,600, more than float64 has room for, and is the best in the end."""
    crf = CRF(1)
    emissions = torch.zeros(10, crf.layout.n_tags)
    emissions[1:9, crf.layout.inside] = -200.0
    emissions[9, crf.layout.end] = 1605.0
    emissions[1:, crf.layout.begin] = -torch.inf
    spans = EntitySpans(*np.array([[0, 0, 10, 0]]).T)
    (found,) = crf.scorer.span_probabilities(*arrays(emissions, [10], spans))
    assert found == pytest.approx(brute.found_spans(crf, emissions, [10], spans).item(), rel=1e-6)
    assert 0.01 < found < 0.99
