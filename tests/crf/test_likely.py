"""Probable spans, against the probabilities of all spans."""

from __future__ import annotations

import crf_brute_force as brute
import numpy as np
import pytest
import torch
from test_crf_marginals import all_spans

from spacy_tener.crf.marginals import probable_spans, span_marginals

LENGTHS = [9, 0, 1, 14, 2]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("minimum", [0.3, 0.02, 1e-9])
def test_every_span_as_probable_as_the_minimum_is_found_once(masked, minimum):
    crf = brute.random_crf(3)
    emissions = brute.random_emissions(crf, LENGTHS)
    allowed = None
    if masked:
        allowed = torch.from_numpy(np.random.default_rng(2).random(tuple(emissions.shape)) < 0.5)
        allowed[:, crf.layout.outside] = True
    passes = brute.passes(crf, emissions, LENGTHS, allowed)
    every = all_spans(crf, LENGTHS)
    weights = span_marginals(passes, every)
    wanted = {row: p for row, p in zip(zip(*every, strict=True), weights, strict=True) if p >= minimum}
    spans, probability = probable_spans(passes, minimum)
    found = dict(zip(zip(*spans, strict=True), probability, strict=True))
    assert len(found) == len(probability)
    assert found == pytest.approx(wanted, rel=1e-9)
    assert wanted


@pytest.mark.parametrize("scale", [0.0, 1.0, 12.0])
def test_probable_spans_are_few_however_undecided_the_crf_is(scale):
    """Spans over one token exclude each other, so there are at most 1 / minimum of them."""
    crf = brute.random_crf(3)
    with torch.no_grad():
        for weight in crf.parameters():
            weight *= scale / 12.0
    emissions = brute.random_emissions(crf, [2000], scale=scale)
    spans, probability = probable_spans(brute.passes(crf, emissions, [2000]), 0.01)
    covered = np.zeros(2001)
    np.add.at(covered, spans.start, probability)
    np.add.at(covered, spans.end, -probability)
    assert covered.cumsum().max() <= 1.0 + 1e-9
    assert probability.min() >= 0.01
    assert probability.size > 0


def test_nothing_is_probable_in_texts_without_tokens():
    crf = brute.random_crf(2)
    spans, probability = probable_spans(brute.passes(crf, brute.random_emissions(crf, [0, 0]), [0, 0]), 0.1)
    assert spans.label.size == probability.size == 0
