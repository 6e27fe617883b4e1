"""Thresholds that keep a wished precision as often as they promise."""

import numpy as np
import pytest

from spacy_tener.workbench.calibration.precision import chance, smallest, thresholds


def drawn(count, *, seed, shift=0.0):
    rng = np.random.default_rng(seed)
    probability = rng.beta(4, 1.5, count)
    return probability, rng.random(count) < np.clip(probability - shift, 0.0, 1.0)


def test_the_chance_is_that_of_the_binomial_distribution():
    assert chance(0, 5, 0.3) == pytest.approx(1.0)
    assert chance(5, 5, 0.3) == pytest.approx(0.3**5)
    assert chance(1, 2, 0.5) == pytest.approx(0.75)
    assert chance(20_000, 20_000, 0.9) == 0.0


def test_the_smallest_sample_may_have_one_error():
    count = smallest(0.9, 0.9)
    assert chance(count - 1, count, 0.9) <= 0.1 < chance(count - 2, count - 1, 0.9)


@pytest.mark.parametrize("shift", [0.0, 0.05], ids=["calibrated", "too sure"])
def test_precision_above_the_threshold_is_kept_as_often_as_promised(shift):
    """Of many samples, at most one in ten leads to a threshold above which precision is less than wished."""
    broken = promised = 0
    truth, right = drawn(200_000, seed=0, shift=shift)
    for seed in range(1, 201):
        probability, hits = drawn(400, seed=seed, shift=shift)
        (found,) = thresholds(probability, np.zeros(400, dtype=int), hits, ["A"], 0.8, 0.9)
        if found.is_kept:
            promised += 1
            broken += right[truth >= found.value].mean() < 0.8
    assert promised > 20
    assert broken <= 0.13 * 200


def test_labels_with_enough_have_their_own_and_the_others_one_together():
    rng = np.random.default_rng(0)
    label = np.repeat([0, 1, 2], [400, 60, 60])
    probability = rng.random(520)
    right = np.where(label == 0, rng.random(520) < 0.3, rng.random(520) < 0.99)
    first, others = thresholds(probability, label, right, ["A", "B", "C", "D"], 0.9, 0.9)
    assert (first.labels, others.labels) == (["A"], ["B", "C", "D"])
    assert (first.is_kept, first.value) == (False, 1.0)
    assert others.is_kept
    assert others.value < 0.2
    assert (others.count, others.kept, others.right) == (
        120,
        int((probability[label > 0] >= others.value).sum()),
        int(right[(label > 0) & (probability >= others.value)].sum()),
    )


def test_of_equal_probabilities_all_are_kept():
    (found,) = thresholds(np.full(300, 0.9), np.zeros(300, dtype=int), np.arange(300) % 50 > 0, ["A"], 0.9, 0.9)
    assert (found.value, found.kept, found.right) == (0.9, 300, 294)
