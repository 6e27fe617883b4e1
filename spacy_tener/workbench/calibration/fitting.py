"""Fitting a calibration to what came true: one temperature, and a line for each label that has enough to fit it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...pipeline.decoding import Calibration, log_odds, sigmoid
from ...types import BoolArray
from .measures import Probabilities, log_loss, losses
from .outcomes import Outcomes

FOLDS = 5
ENOUGH = 30
"""So many of a label must be right, and as many wrong, for a line of its own."""
_COLDEST, _HOTTEST = 0.1, 20.0
_RIDGE = 1.0


def fit(outcomes: Outcomes, labels: Sequence[str], chosen: BoolArray | None = None) -> Calibration:
    """The temperature by which what was found is likeliest to be as right and wrong as it is, and lines for labels.

    The temperature is that of the CRF as a whole, so it holds for readings as well. It is fitted to the entities found,
    not to the readings annotated: these are what probabilities are asked of, and a reading is improbable as a whole as
    soon as one of its entities is annotated by mistake.

    A label gets a line, fitted by logistic regression on its log-odds at that temperature, where at least `ENOUGH` of
    its entities are right and wrong, and if by cross-validation it makes them likelier.
    """
    chosen = np.ones(outcomes.right.size, dtype=bool) if chosen is None else chosen
    right = outcomes.right[chosen]

    def loss(log_temperature: float) -> float:
        found = outcomes.probabilities(plain(len(labels), math.exp(log_temperature)))
        return log_loss(found[chosen], right)

    temperature = math.exp(minimum(loss, math.log(_COLDEST), math.log(_HOTTEST)))
    calibration = plain(len(labels), temperature)
    found, slope, intercept = (
        outcomes.probabilities(calibration),
        calibration.slope.copy(),
        calibration.intercept.copy(),
    )
    for label in range(len(labels)):
        own = chosen & (outcomes.label == label)
        if min(int(outcomes.right[own].sum()), int((~outcomes.right[own]).sum())) >= ENOUGH:
            odds = log_odds(np.clip(found[own], 1e-9, 1.0 - 1e-9))
            if helps(odds, outcomes.right[own], outcomes.text[own] % FOLDS):
                slope[label], intercept[label] = line(odds, outcomes.right[own])
    return Calibration(temperature, slope, intercept)


def plain(n_labels: int, temperature: float = 1.0) -> Calibration:
    """A calibration without lines."""
    return Calibration(temperature, np.ones(n_labels), np.zeros(n_labels))


def minimum(function: Callable[[float], float], low: float, high: float, *, width: float = 0.01) -> float:
    """Where a function of one valley is smallest, by golden section."""
    share = (math.sqrt(5.0) - 1.0) / 2.0
    left, right = high - share * (high - low), low + share * (high - low)
    at_left, at_right = function(left), function(right)
    while high - low > width:
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - share * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + share * (high - low)
            at_right = function(right)
    return (low + high) / 2.0


def line(odds: Probabilities, right: BoolArray) -> tuple[float, float]:
    """Slope and intercept of a logistic regression (Platt 1999), held near the line that changes nothing."""
    weights = np.array([1.0, 0.0])
    inputs = np.stack([odds, np.ones_like(odds)], axis=1)
    for _ in range(100):
        found = sigmoid(inputs @ weights)
        gradient = inputs.T @ (found - right) + _RIDGE * (weights - [1.0, 0.0])
        curvature = (inputs * (found * (1.0 - found))[:, None]).T @ inputs + _RIDGE * np.eye(2)
        step = np.linalg.solve(curvature, gradient)
        # Newton's step may be too long where all is decided.
        weights = weights - step / max(1.0, float(np.abs(step).max()))
        if np.abs(step).max() < 1e-8:
            break
    return max(float(weights[0]), 1e-3), float(weights[1])


def helps(odds: Probabilities, right: BoolArray, fold: Probabilities) -> bool:
    """Whether lines make what they were not fitted to likelier, by more than the standard error of the difference."""
    lined = sigmoid(odds)
    before = losses(lined, right)
    for each in range(FOLDS):
        out = fold == each
        slope, intercept = line(odds[~out], right[~out])
        lined[out] = sigmoid(slope * odds[out] + intercept)
    gain = before - losses(lined, right)
    return bool(gain.mean() > gain.std() / math.sqrt(gain.size))


def cross_validated(outcomes: Outcomes, labels: Sequence[str]) -> Probabilities:
    """The probability of each entity by a calibration fitted without its text and those of its fold. *Shape* [n]"""
    found = np.zeros(outcomes.right.size)
    for fold in range(FOLDS):
        out = outcomes.text % FOLDS == fold
        if out.any():
            found[out] = outcomes.probabilities(fit(outcomes, labels, ~out))[out]
    return found


def as_cfg(calibration: Calibration, labels: Sequence[str]) -> dict[str, Any]:
    """As a component's `cfg` has it: lines that change nothing are left out."""
    lines = {
        label: [float(slope), float(intercept)]
        for label, slope, intercept in zip(labels, calibration.slope, calibration.intercept, strict=True)
        if (slope, intercept) != (1.0, 0.0)
    }
    return {"temperature": calibration.temperature, "labels": lines}
