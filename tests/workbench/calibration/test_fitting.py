"""Measures of calibration, and fitting it: on outcomes whose true probabilities are known."""

from dataclasses import dataclass

import numpy as np
import pytest

from spacy_tener.pipeline.decoding import Calibration, log_odds, sigmoid
from spacy_tener.workbench.calibration.fitting import as_cfg, cross_validated, fit, line, minimum, plain
from spacy_tener.workbench.calibration.measures import bins, measures

LABELS = ["A", "B"]


@dataclass
class Made:
    """Outcomes whose log-odds shrink with the temperature, as those of a CRF do."""

    odds: np.ndarray
    right: np.ndarray
    label: np.ndarray
    text: np.ndarray

    def probabilities(self, calibration):
        return calibration.calibrated(sigmoid(self.odds / calibration.temperature), self.label)


def made(count=4000, *, temperature=2.0, lines=((1.0, 0.0), (1.0, 0.0)), seed=0):
    """What is right is drawn with the probability at that temperature and on these lines."""
    rng = np.random.default_rng(seed)
    odds, label = rng.normal(1.5, 2.5, count) * temperature, rng.integers(0, 2, count)
    slope, intercept = np.array(lines).T
    truth = sigmoid(slope[label] * odds / temperature + intercept[label])
    return Made(odds, rng.random(count) < truth, label, np.arange(count) // 3)


def test_measures_of_known_probabilities():
    probability, right = np.array([0.2, 0.2, 0.9, 0.9]), np.array([False, True, True, True])
    first, second = bins(probability, right, 2)
    assert (first.probability, first.right, first.count) == (pytest.approx(0.2), 0.5, 2)
    assert (second.probability, second.right, second.count) == (pytest.approx(0.9), 1.0, 2)
    found = measures(probability, right)
    assert found.brier == pytest.approx((0.04 + 0.64 + 0.01 + 0.01) / 4)
    assert found.nll == pytest.approx(-np.log([0.8, 0.2, 0.9, 0.9]).mean())
    assert found.count == 4


def test_certain_and_wrong_costs_much_and_not_everything():
    assert 1.0 < measures(np.array([1.0, 1.0]), np.array([True, False])).nll < 100.0


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_the_temperature_is_found_and_the_error_goes(temperature):
    outcomes = made(temperature=temperature)
    calibration = fit(outcomes, LABELS)
    assert calibration.temperature == pytest.approx(temperature, rel=0.15)
    before, after = (measures(outcomes.probabilities(each), outcomes.right).ece for each in (plain(2), calibration))
    assert after < 0.03
    assert temperature == 1.0 or before > 2 * after


def test_a_label_that_differs_gets_a_line_and_the_others_none():
    outcomes = made(lines=((1.0, 0.0), (0.4, -1.0)))
    calibration = fit(outcomes, LABELS)
    assert "B" in as_cfg(calibration, LABELS)["labels"]
    held_out = made(lines=((1.0, 0.0), (0.4, -1.0)), seed=1)
    one = held_out.label == 1
    for chosen in (one, ~one):
        assert measures(held_out.probabilities(calibration)[chosen], held_out.right[chosen]).ece < 0.05


def test_without_a_difference_or_without_data_there_are_no_lines():
    for outcomes in (made(), made(60, lines=((1.0, 0.0), (0.4, -1.0)))):
        assert as_cfg(fit(outcomes, LABELS), LABELS)["labels"] == {}


def test_what_is_kept_in_the_cfg_is_the_same_calibration():
    calibration = Calibration(1.7, np.array([1.0, 0.5]), np.array([0.0, -1.0]))
    copy = Calibration.of({"labels": LABELS, "calibration": as_cfg(calibration, LABELS)})
    assert copy.temperature == 1.7
    np.testing.assert_array_equal([copy.slope, copy.intercept], [calibration.slope, calibration.intercept])


def test_cross_validation_shows_each_text_a_calibration_that_has_not_seen_it():
    """Where right and wrong are drawn by lot, the fitted temperature is high; one own text less changes it."""
    outcomes = made(300)
    found, fitted = cross_validated(outcomes, LABELS), outcomes.probabilities(fit(outcomes, LABELS))
    assert (found != fitted).any()
    out = outcomes.text % 5 == 2
    np.testing.assert_array_equal(found[out], outcomes.probabilities(fit(outcomes, LABELS, ~out))[out])


def test_a_line_rises_even_where_the_surer_ones_are_wrong():
    odds = np.linspace(-3.0, 3.0, 200)
    slope, _ = line(odds, odds < 0)
    assert slope > 0.0
    assert line(np.full(100, 20.0), np.ones(100, dtype=bool))[0] < 50.0


def test_golden_section_finds_the_bottom_of_a_valley():
    assert minimum(lambda x: (x - 1.3) ** 2, -5.0, 5.0, width=1e-4) == pytest.approx(1.3, abs=1e-3)


def test_calibrating_and_back():
    calibration = Calibration(1.0, np.array([0.5, 2.0]), np.array([-1.0, 0.3]))
    raw = calibration.uncalibrated(0.2)
    np.testing.assert_allclose(calibration.calibrated(raw, np.arange(2)), 0.2)
    assert calibration.calibrated(np.array([0.0, 1.0]), np.array([0, 1])).tolist() == [0.0, 1.0]
    assert log_odds(np.array([1.0 + 1e-12])).tolist() == [np.inf]
