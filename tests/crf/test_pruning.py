"""Test pruning: tokens that are certainly outside of entities have the tag O on the best path."""

import crf_brute_force as brute
import numpy as np
import pytest

from spacy_tener.crf.pruning import certainly_outside
from spacy_tener.sequences import Packing

LENGTHS = [4, 0, 1, 3, 4, 2, 4]


def find_outside(crf, emissions, lengths, allowed=None):
    if allowed is not None:
        emissions = emissions.masked_fill(~allowed, -float("inf"))
    transitions = brute.predictor_of(crf).transitions
    return certainly_outside(
        np.ascontiguousarray(emissions.numpy().T), transitions, Packing.of(lengths, len(emissions))
    )


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_pruned_tokens_are_outside_on_best_path(seed, masked):
    crf = brute.random_crf(2, seed=seed)
    emissions = brute.random_emissions(crf, LENGTHS, seed=seed, scale=3.0)
    emissions[:, crf.layout.outside] += 4.0 + seed % 4
    allowed = brute.random_mask(crf, LENGTHS, seed=seed) if masked else None
    best = [paths[int(scores.argmax())] for paths, scores in brute.paths_and_scores(crf, emissions, LENGTHS, allowed)]
    is_pruned = find_outside(crf, emissions, LENGTHS, allowed)
    assert (np.concatenate(best)[is_pruned] == crf.layout.outside).all()
    assert brute.decode(crf, emissions, LENGTHS, allowed).tolist() == np.concatenate(best).tolist()
    if not masked:
        assert is_pruned.any()


def test_most_tokens_of_long_text_are_pruned():
    crf = brute.random_crf(3)
    lengths = [500, 30, 0, 2000]
    emissions = brute.random_emissions(crf, lengths, scale=0.5)
    emissions[:, crf.layout.outside] += 8.0
    entity = crf.layout.encode(np.array([100]), np.array([104]), np.array([1]), 500)[100:104]
    emissions[np.arange(100, 104), entity] += 16.0
    is_pruned = find_outside(crf, emissions, lengths)
    assert not is_pruned[100:104].any()
    assert is_pruned.sum() > 2500


@pytest.mark.parametrize("scale", [1e5, 1e30, float("inf"), float("nan")])
def test_tokens_with_extreme_scores_are_not_pruned(scale):
    crf = brute.random_crf(2)
    emissions = brute.random_emissions(crf, [50, 50]) * scale
    emissions[:, crf.layout.outside] = 0.0
    assert not find_outside(crf, emissions, [50, 50]).any()
