"""The k best paths, against the sorted list of all paths."""

from __future__ import annotations

import crf_brute_force as brute
import pytest
import torch

from spacy_tener.crf.crf_torch import CRF

LENGTHS = brute.LENGTHS


@pytest.mark.parametrize("n_labels", [0, 1, 2, 3])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("k", [1, 2, 7, 500])
def test_k_best_are_the_first_of_all_paths_sorted_by_score(n_labels, masked, k):
    crf = brute.random_crf(n_labels)
    emissions = brute.random_emissions(crf, LENGTHS)
    allowed = brute.random_mask(crf, LENGTHS) if masked else None
    readings = brute.k_best(crf, emissions, LENGTHS, k, allowed)
    assert len(readings) == len(LENGTHS)
    for found, (paths, scores) in zip(readings, brute.paths_and_scores(crf, emissions, LENGTHS, allowed), strict=True):
        order = scores.argsort(descending=True)[:k]
        assert [tags.tolist() for _, tags in found] == paths[order.numpy()].tolist()
        assert [score for score, _ in found] == pytest.approx(scores[order].tolist())


@pytest.mark.parametrize("k", [1, 5, 40])
def test_ties_are_broken_towards_the_lower_tag_at_the_last_difference(k):
    crf = CRF(2)
    (readings,) = brute.k_best(crf, torch.zeros(3, crf.layout.n_tags), [3], k)
    paths = sorted(brute.all_paths(crf.layout, 3).tolist(), key=lambda path: path[::-1])
    assert [tags.tolist() for _, tags in readings] == paths[:k]


def test_a_sequence_reads_the_same_alone_and_in_a_batch_even_among_ties():
    crf = CRF(2)
    lengths = [3, 5, 3, 1]
    emissions = brute.random_emissions(crf, lengths).round().float()
    together = brute.k_best(crf, emissions, lengths, 6)
    for readings, part, length in zip(together, emissions.split(lengths), lengths, strict=True):
        (alone,) = brute.k_best(crf, part, [length], 6)
        assert [tags.tolist() for _, tags in readings] == [tags.tolist() for _, tags in alone]


def test_a_sequence_of_no_tokens_has_its_one_empty_path():
    (readings,) = brute.k_best(CRF(2), torch.zeros(0, 9), [0], 3)
    ((score, tags),) = readings
    assert score == 0.0
    assert tags.shape == (0,)


def test_a_sequence_with_no_allowed_path_has_no_reading():
    crf = CRF(1)
    emissions = torch.zeros(3, crf.layout.n_tags)
    allowed = torch.ones(emissions.shape, dtype=torch.bool)
    allowed[1] = False
    none, found = brute.k_best(crf, emissions, [2, 1], 3, allowed)
    assert none == []
    assert len(found) == 2


def test_a_k_below_one_is_refused():
    with pytest.raises(ValueError, match="k of 1 or more, got 0"):
        brute.k_best(CRF(1), torch.zeros(1, 5), [1], 0)
