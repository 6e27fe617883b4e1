"""Entropy of the distribution over paths, against every path one by one."""

from __future__ import annotations

import crf_brute_force as brute
import pytest
import torch
from torch.testing import assert_close

from spacy_tener.crf.marginals import entropy
from spacy_tener.layers.crf import CRF

LENGTHS = brute.LENGTHS


def expected(crf, emissions, lengths, allowed=None, temperature=1.0):
    found = [(scores / temperature).log_softmax(0) for _, scores in brute.each(crf, emissions, lengths, allowed)]
    return torch.stack([-(weights.exp() * weights).sum() for weights in found]).detach()


@pytest.mark.parametrize("n_labels", [0, 1, 3])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("scale", [1.0, 60.0], ids=["moderate", "extreme transitions"])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 40.0])
def test_entropy_equals_brute_force(n_labels, masked, scale, temperature):
    crf = brute.random_crf(n_labels, scale=scale)
    emissions = brute.random_emissions(crf, LENGTHS)
    allowed = brute.random_mask(crf, LENGTHS) if masked else None
    found = entropy(brute.passes(crf, emissions, LENGTHS, allowed, temperature=temperature))
    assert_close(torch.from_numpy(found), expected(crf, emissions, LENGTHS, allowed, temperature), atol=1e-9, rtol=1e-7)


def test_entropy_of_a_long_text_is_the_sum_of_its_independent_parts():
    """Transitions of zero leave the halves of a text independent where an O stands between them for certain."""
    crf = CRF(2).double()
    part = brute.random_emissions(crf, [6])
    part[-1] = -torch.inf
    part[-1, crf.layout.outside] = 0.0
    alone, long = entropy(brute.passes(crf, torch.cat([part, part.repeat(1000, 1)]), [6, 6000])).tolist()
    assert alone > 1.0
    assert long == pytest.approx(1000 * alone, rel=1e-9)
