"""Test the k best paths of the CRF against the sorted list of all paths."""

from __future__ import annotations

import crf_brute_force as brute
import pytest
import torch

from spacy_tener.crf.crf_torch import CRF

LENGTHS = brute.LENGTHS


@pytest.mark.parametrize("n_labels", [0, 1, 2, 3])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("k", [1, 2, 7, 500])
def test_k_best_paths_equal_sorted_brute_force(n_labels, masked, k):
    crf = brute.random_crf(n_labels)
    emissions = brute.random_emissions(crf, LENGTHS)
    allowed = brute.random_mask(crf, LENGTHS) if masked else None
    best_paths = brute.k_best(crf, emissions, LENGTHS, k, allowed)
    assert len(best_paths) == len(LENGTHS)
    for found, (paths, scores) in zip(
        best_paths, brute.paths_and_scores(crf, emissions, LENGTHS, allowed), strict=True
    ):
        order = scores.argsort(descending=True)[:k]
        assert [tags.tolist() for _, tags in found] == paths[order.numpy()].tolist()
        assert [score for score, _ in found] == pytest.approx(scores[order].tolist())


@pytest.mark.parametrize("k", [1, 5, 40])
def test_k_best_breaks_ties_by_lowest_tag_from_the_end(k):
    crf = CRF(2)
    (best_paths,) = brute.k_best(crf, torch.zeros(3, crf.layout.n_tags), [3], k)
    paths = sorted(brute.all_paths(crf.layout, 3).tolist(), key=lambda path: path[::-1])
    assert [tags.tolist() for _, tags in best_paths] == paths[:k]


def test_k_best_with_ties_is_independent_of_batch():
    crf = CRF(2)
    lengths = [3, 5, 3, 1]
    emissions = brute.random_emissions(crf, lengths).round().float()
    together = brute.k_best(crf, emissions, lengths, 6)
    for best_paths, part, length in zip(together, emissions.split(lengths), lengths, strict=True):
        (alone,) = brute.k_best(crf, part, [length], 6)
        assert [tags.tolist() for _, tags in best_paths] == [tags.tolist() for _, tags in alone]


def test_empty_sequence_has_one_empty_path():
    (best_paths,) = brute.k_best(CRF(2), torch.zeros(0, 9), [0], 3)
    ((score, tags),) = best_paths
    assert score == 0.0
    assert tags.shape == (0,)


def test_sequence_without_allowed_path_has_no_k_best_paths():
    crf = CRF(1)
    emissions = torch.zeros(3, crf.layout.n_tags)
    allowed = torch.ones(emissions.shape, dtype=torch.bool)
    allowed[1] = False
    impossible, found = brute.k_best(crf, emissions, [2, 1], 3, allowed)
    assert impossible == []
    assert len(found) == 2


def test_k_below_one_raises_error():
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        brute.k_best(CRF(1), torch.zeros(1, 5), [1], 0)
