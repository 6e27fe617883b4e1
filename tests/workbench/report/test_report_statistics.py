"""Means, deviations and the paired t-test, against closed forms, tables of the t distribution and hand-made sums."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spacy_tener.workbench.report.statistics import (
    PairedTest,
    Summary,
    incomplete_beta,
    paired_t_test,
    summarize,
    two_sided_p,
)

T = st.floats(0.0, 200.0)


def test_summary_is_the_mean_and_the_deviation_with_one_degree_of_freedom_less() -> None:
    assert summarize([2.0, 4.0, 9.0]) == Summary(mean=5.0, sd=math.sqrt(13.0), n=3)


def test_one_value_has_no_deviation() -> None:
    assert summarize([7.5]) == Summary(mean=7.5, sd=None, n=1)


# Two-sided critical values as every table of the distribution prints them.
@pytest.mark.parametrize(
    ("degrees", "t", "p"),
    [
        (1, 12.706, 0.05),
        (2, 4.303, 0.05),
        (2, 9.925, 0.01),
        (4, 2.776, 0.05),
        (9, 3.250, 0.01),
        (9, 4.781, 0.001),
        (30, 2.042, 0.05),
        (120, 1.980, 0.05),
    ],
)
def test_tail_has_the_values_of_printed_tables(degrees: int, t: float, p: float) -> None:
    assert two_sided_p(t, degrees) == pytest.approx(p, rel=2e-3)


def test_tail_agrees_with_a_reference_to_twelve_digits() -> None:
    assert two_sided_p(2.0, 10) == pytest.approx(0.07338803477074037, rel=1e-12)


@given(T)
def test_tail_is_the_closed_form_for_one_degree(t: float) -> None:
    assert two_sided_p(t, 1) == pytest.approx(1 - 2 / math.pi * math.atan(t), rel=1e-9, abs=1e-13)


@given(T)
def test_tail_is_the_closed_form_for_two_degrees(t: float) -> None:
    assert two_sided_p(t, 2) == pytest.approx(1 - t / math.sqrt(2 + t * t), rel=1e-9, abs=1e-12)


def test_tail_of_many_degrees_is_the_normal_distributions() -> None:
    assert two_sided_p(1.959963985, 10_000_000) == pytest.approx(0.05, rel=1e-5)


@given(T, st.integers(1, 200))
def test_tail_is_symmetric_and_a_probability(t: float, degrees: int) -> None:
    p = two_sided_p(t, degrees)
    assert 0.0 <= p <= 1.0
    assert two_sided_p(-t, degrees) == p


def test_very_small_tails_keep_their_digits() -> None:
    # For one degree and large t the tail is 2 / (pi t).
    assert two_sided_p(1e12, 1) == pytest.approx(2 / (math.pi * 1e12), rel=1e-9)


def test_incomplete_beta_ends_at_zero_and_one() -> None:
    assert [incomplete_beta(2.0, 3.0, x) for x in (0.0, 1.0)] == [0.0, 1.0]


@given(st.floats(0.01, 0.99))
def test_incomplete_beta_is_a_polynomial_for_whole_numbers(x: float) -> None:
    # I_x(2, 3) is the chance of at least two of four.
    expected = 6 * x**2 * (1 - x) ** 2 + 4 * x**3 * (1 - x) + x**4
    assert incomplete_beta(2.0, 3.0, x) == pytest.approx(expected, rel=1e-10)


def test_paired_test_of_a_hand_made_example() -> None:
    ours = {1: 52.0, 2: 54.0, 3: 56.0}
    baseline = {1: 50.0, 2: 53.0, 3: 53.0}
    # Differences 2, 1, 3: mean 2, deviation 1, t = 2 sqrt 3, and for two degrees p = 1 - t / sqrt(2 + t^2).
    result = paired_t_test(ours, baseline)
    assert result is not None
    assert (result.n, result.difference) == (3, 2.0)
    assert result.t == pytest.approx(2 * math.sqrt(3))
    assert result.p == pytest.approx(1 - math.sqrt(12 / 14))


def test_only_seeds_in_common_count() -> None:
    result = paired_t_test({1: 5.0, 2: 7.0, 9: 100.0}, {2: 6.0, 1: 3.0, 4: -100.0})
    assert result is not None
    assert (result.n, result.difference) == (2, 1.5)


def test_one_seed_in_common_has_a_difference_and_no_probability() -> None:
    assert paired_t_test({1: 5.0, 2: 7.0}, {2: 6.5, 3: 1.0}) == PairedTest(n=1, difference=0.5, t=None, p=None)


def test_without_common_seeds_there_is_no_test() -> None:
    assert paired_t_test({1: 5.0}, {2: 5.0}) is None


def test_equal_scores_are_no_difference() -> None:
    assert paired_t_test({1: 5.0, 2: 7.0}, {1: 5.0, 2: 7.0}) == PairedTest(n=2, difference=0.0, t=0.0, p=1.0)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_same_difference_every_time_is_the_limit(sign: float) -> None:
    result = paired_t_test({1: 5.0 + sign, 2: 7.0 + sign}, {1: 5.0, 2: 7.0})
    assert result == PairedTest(n=2, difference=sign, t=sign * math.inf, p=0.0)
