"""Tests of means over seeds and of significance tests."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest

from research import comparing
from research.comparing import Summary, bootstrap_p, summarize, welch_p
from research.scores import Confusion
from spacy_tener.errors import UserError


@pytest.fixture
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "RESAMPLES", 1000)


def draw_counts(rng: np.random.Generator, *, seeds: int, docs: int, skill: float, spread: float = 0.0) -> np.ndarray:
    """Return random counts of a system on documents of 0 to 5 entities. Seeds differ in skill. *Shape:* (seeds,
    documents, 3)"""
    gold = np.random.default_rng(docs).integers(6, size=docs)
    found = [rng.binomial(gold, np.clip(skill + spread * rng.normal(), 0, 1)) for _ in range(seeds)]
    wrong = rng.binomial(2, 0.3, size=(seeds, docs))
    return np.stack([np.stack(found), wrong, gold - np.stack(found)], axis=-1)


def test_summary_has_mean_and_deviation() -> None:
    assert summarize([1.0, 2.0, 6.0]) == Summary(mean=3.0, sd=pytest.approx(math.sqrt(7)), n=3)
    assert summarize([5.0]) == Summary(mean=5.0, sd=None, n=1)


@pytest.mark.parametrize("seeds", [(1, 1), (2, 3)])
def test_the_bootstrap_is_that_of_a_loop(seeds: tuple[int, int]) -> None:
    """Compare with a simple loop that draws documents and seeds one by one."""
    rng = np.random.default_rng(0)
    systems = [
        draw_counts(rng, seeds=n, docs=12, skill=skill, spread=0.1) for n, skill in zip(seeds, (0.6, 0.5), strict=True)
    ]

    def f1(counts: np.ndarray) -> float:
        return Confusion(*counts.sum(axis=0).tolist()).score.f

    scored: list[list[list[float]]] = [[], []]
    for _ in range(2000):
        docs = rng.integers(12, size=12)
        for of_system, system in zip(scored, systems, strict=True):
            of_system.append([f1(counts[docs]) for counts in system])
    means: list[list[float]] = [[], []]
    for of_system, system, drawn in zip(scored, systems, means, strict=True):
        n = len(system)
        scale = 0.0
        if n > 1:
            variance = np.mean([np.var(scores, ddof=1) for scores in of_system])
            scale = math.sqrt(max(2 * np.var([f1(counts) for counts in system], ddof=1) - variance, 0) / variance)
        for scores in of_system:
            seed_mean = np.mean([scores[rng.integers(n)] for _ in range(max(n - 1, 1))])
            drawn.append(float(np.mean(scores) + scale * (seed_mean - np.mean(scores))))
    first, second = (np.mean([f1(counts) for counts in system]) for system in systems)
    farther = [abs(x - y - (first - second)) >= abs(first - second) for x, y in zip(*means, strict=True)]
    expected = float(np.mean(farther))
    assert 0.02 < expected < 0.98
    assert bootstrap_p(*systems, "f") == pytest.approx(expected, abs=4 * math.sqrt(expected / 2000))


@pytest.mark.parametrize(("seeds", "spread"), [(1, 0.0), (4, 0.0), (4, 0.03)])
@pytest.mark.usefixtures("few_resamples")
def test_without_a_difference_p_is_spread_evenly(seeds: int, spread: float) -> None:
    rng = np.random.default_rng(1)
    trials = [[draw_counts(rng, seeds=seeds, docs=80, skill=0.6, spread=spread) for _ in range(2)] for _ in range(200)]
    found = np.array([bootstrap_p(first, second, "f") for first, second in trials])
    assert (found <= 0.05).mean() < 0.1
    for level in (0.3, 0.5, 0.8):
        assert (found <= level).mean() == pytest.approx(level, abs=0.13)


@pytest.mark.usefixtures("few_resamples")
def test_a_plain_difference_is_seen_and_its_sign_is_of_no_matter() -> None:
    rng = np.random.default_rng(2)
    good, bad = (draw_counts(rng, seeds=3, docs=80, skill=skill, spread=0.02) for skill in (0.8, 0.5))
    assert bootstrap_p(good, bad, "f") == bootstrap_p(bad, good, "f") == 1 / 1001
    assert bootstrap_p(good, good, "f") == 1.0


def test_welchs_test_is_that_of_unequal_variances() -> None:
    # t = -2 / sqrt(1/3 + 4/3) with 2.94 degrees of freedom. With equal variances (4 degrees of freedom), p would be
    # 0.1963.
    first, second = [1.0, 2.0, 3.0], [2.0, 4.0, 6.0]
    assert welch_p(first, second) == pytest.approx(0.2209, abs=1e-4)
    assert welch_p(second, first) == welch_p(first, second)
    assert welch_p([1.0, 2.0], second) is not None, "two seeds have a deviation"


@pytest.mark.parametrize("values", [([1.0], [2.0, 3.0]), ([1.0, 1.0], [2.0, 2.0])])
def test_without_a_deviation_there_is_no_test(values: tuple[list[float], list[float]]) -> None:
    assert welch_p(*values) is None


def test_without_scipy_the_requirements_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    with pytest.raises(UserError, match=r"pip install -r research/requirements\.txt"):
        welch_p([1.0, 2.0], [3.0, 5.0])
