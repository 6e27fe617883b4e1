"""Candidates by the marginals of tags, against the probabilities of all spans."""

from __future__ import annotations

import crf_brute_force as brute
import numpy as np
import pytest
import torch
from test_crf_marginals import all_spans

from spacy_tener.crf.marginals import candidate_spans, span_marginals

LENGTHS = [9, 0, 1, 14, 2]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("minimum", [[0.3, 0.3, 0.3], [0.02, 0.02, 0.02], [0.001, 0.5, 0.05], [1e-9, 1e-9, 1e-9]])
def test_every_span_as_likely_as_the_minimum_of_its_type_is_a_candidate_once(masked, minimum):
    crf = brute.random_crf(3)
    emissions = brute.random_emissions(crf, LENGTHS)
    allowed = None
    if masked:
        allowed = torch.from_numpy(np.random.default_rng(2).random(tuple(emissions.shape)) < 0.5)
        allowed[:, crf.layout.outside] = True
    passes = brute.passes(crf, emissions, LENGTHS, allowed)
    every = all_spans(crf, LENGTHS)
    likely = span_marginals(passes, every) >= np.array(minimum)[every.label]
    wanted = {row for row, keep in zip(zip(*every, strict=True), likely, strict=True) if keep}
    found = list(zip(*candidate_spans(passes, np.array(minimum)), strict=True))
    assert len(set(found)) == len(found)
    assert wanted <= set(found)
    assert wanted


def test_few_spans_of_a_decided_text_are_candidates():
    crf = brute.random_crf(3)
    emissions = brute.random_emissions(crf, [2000], scale=12.0)
    candidates = candidate_spans(brute.passes(crf, emissions, [2000]), np.full(3, 0.01))
    assert 0 < candidates.label.size < 4000
