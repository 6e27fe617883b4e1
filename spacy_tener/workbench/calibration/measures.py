"""How far probabilities differ from what came true."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...types import BoolArray

Probabilities = NDArray[np.float64]

BINS = 10
_HAIR = 1e-9


@dataclass(frozen=True)
class Bin:
    """Predictions of like probability: their mean probability, the share that is right, and how many there are."""

    probability: float
    right: float
    count: int


@dataclass(frozen=True)
class Measures:
    """ece: expected calibration error, the mean distance of probability and share that is right over bins of equal
    size. brier: mean squared error. nll: mean negative log-likelihood, in nats."""

    ece: float
    brier: float
    nll: float
    count: int


def bins(probability: Probabilities, right: BoolArray, n_bins: int = BINS) -> list[Bin]:
    """Bins of as many predictions each, from the least probable on."""
    order = np.argsort(probability, kind="stable")
    parts = [part for part in np.array_split(order, n_bins) if part.size]
    return [Bin(float(probability[part].mean()), float(right[part].mean()), part.size) for part in parts]


def measures(probability: Probabilities, right: BoolArray) -> Measures:
    parts = bins(probability, right)
    ece = sum(part.count * abs(part.probability - part.right) for part in parts) / max(1, right.size)
    brier = float(np.square(probability - right).mean())
    return Measures(ece, brier, log_loss(probability, right), right.size)


def log_loss(probability: Probabilities, right: BoolArray) -> float:
    return float(losses(probability, right).mean())


def losses(probability: Probabilities, right: BoolArray) -> Probabilities:
    """Negative log-likelihoods. What is wrong at a probability of one costs much, but not everything. *Shape* [n]"""
    inside = np.clip(probability, _HAIR, 1.0 - _HAIR)
    loss: Probabilities = -np.log(np.where(right, inside, 1.0 - inside))
    return loss
