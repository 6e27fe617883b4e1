"""Calibration errors: how far probabilities are from the shares that are right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...pipeline.decoding import Probabilities
from ...types import BoolArray

BINS = 10
_HAIR = 1e-9

Series = Mapping[str, tuple[Probabilities, BoolArray]]
"""Name in the legend -> probabilities of entities, and the mask of right ones."""


@dataclass(frozen=True)
class Bin:
    """Predictions of similar probability: their mean probability, the share that is right, and their number."""

    probability: float
    right: float
    count: int


@dataclass(frozen=True)
class Errors:
    """Errors of probabilities.

    ece: Expected calibration error: the mean distance of probability and accuracy, over bins of equal size.
    brier: Mean squared error.
    nll: Mean negative log-likelihood, in nats.
    """

    ece: float
    brier: float
    nll: float
    count: int


def bins(probability: Probabilities, right: BoolArray, n_bins: int = BINS) -> list[Bin]:
    """Divide predictions into bins of equal size, the least probable first."""
    order = np.argsort(probability, kind="stable")
    parts = [part for part in np.array_split(order, n_bins) if part.size]
    return [Bin(float(probability[part].mean()), float(right[part].mean()), part.size) for part in parts]


def errors(probability: Probabilities, right: BoolArray) -> Errors:
    """Measure the errors of the probabilities of at least one prediction."""
    ece = sum(part.count * abs(part.probability - part.right) for part in bins(probability, right)) / right.size
    brier = float(np.square(probability - right).mean())
    return Errors(ece, brier, float(losses(probability, right).mean()), right.size)


def losses(probability: Probabilities, right: BoolArray) -> Probabilities:
    """Return negative log-likelihoods, which stay finite for errors with a probability of 1. *Shape* [n]"""
    inside = np.clip(probability, _HAIR, 1.0 - _HAIR)
    loss: Probabilities = -np.log(np.where(right, inside, 1.0 - inside))
    return loss
