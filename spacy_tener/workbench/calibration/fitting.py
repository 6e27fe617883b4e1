"""Fitting of the temperature, and of thresholds that keep a precision."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import RemedyError, install
from ...pipeline.decoding import Probabilities
from ...types import BoolArray, IntArray
from .outcomes import Outcomes
from .reliability import losses

FOLDS = 5
_COLDEST, _HOTTEST = 0.1, 20.0

STEPS = 20
"""Most thresholds that are tried for a group of labels."""
OWN = 100
"""Least number of entities for a label to get its own threshold. Other labels share one."""


def _scipy() -> Any:
    try:
        import scipy.optimize
        import scipy.stats
    except ImportError as error:
        raise RemedyError("Calibrating needs scipy", install("scipy")) from error
    return scipy


def fit_temperature(outcomes: Outcomes, chosen: BoolArray | None = None) -> float:
    """Return the maximum-likelihood temperature for which found entities are right and wrong (Guo et al. 2017).

    The temperature divides all scores of the CRF, so that probabilities still come from one distribution over tag
    sequences. It is fitted to single entities, not to whole sequences: one annotation error makes those improbable.

    chosen: Mask of the entities to fit to; None for all. *Shape* [n]
    """
    right, rows = outcomes.right, slice(None) if chosen is None else chosen

    def loss(log_temperature: float) -> float:
        return float(losses(outcomes.probabilities(math.exp(log_temperature))[rows], right[rows]).mean())

    bounds = math.log(_COLDEST), math.log(_HOTTEST)
    return math.exp(
        _scipy().optimize.minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 0.005}).x
    )


def cross_validated(outcomes: Outcomes) -> Probabilities:
    """Return the probability of each entity at a temperature fitted to the other folds of texts.

    *Shape* [n]
    """
    texts, rank = np.unique(outcomes.text, return_inverse=True)
    if len(texts) < 2:
        raise RemedyError(
            "Cross-validation needs more than one text with entities", "Annotate more texts, or give others by --test."
        )
    found = np.zeros(outcomes.right.size)
    for fold in range(FOLDS):
        out = rank % FOLDS == fold
        found[out] = outcomes.probabilities(fit_temperature(outcomes, ~out))[out]
    return found


@dataclass(frozen=True)
class Threshold:
    """A threshold of the probability for some labels.

    value: The threshold, or None if none keeps the precision.
    count: Number of entities found. kept: Of these, at or above the threshold. right: Of these, right.
    """

    labels: list[str]
    value: float | None
    count: int
    kept: int = 0
    right: int = 0


def fit_thresholds(
    probability: Probabilities,
    label: IntArray,
    right: BoolArray,
    labels: Sequence[str],
    precision: float,
    confidence: float,
) -> list[Threshold]:
    """Return a threshold for each label that has enough entities, and one for all others together."""
    counts = np.bincount(label, minlength=len(labels))
    groups = [[i] for i in range(len(labels)) if counts[i] >= OWN]
    groups.append([i for i in range(len(labels)) if counts[i] < OWN])
    found = []
    for group in groups:
        if group:
            own = np.isin(label, group)
            names = [labels[i] for i in group]
            found.append(_fit_threshold(probability[own], right[own], names, precision, confidence))
    return found


def _fit_threshold(
    probability: Probabilities, right: BoolArray, labels: list[str], precision: float, confidence: float
) -> Threshold:
    """Return the lowest threshold that keeps the precision, by fixed-sequence testing.

    Candidates fall, from the threshold that keeps a fifth of the entities. An exact binomial test at each rejects the
    null hypothesis that the precision is lower than required; the first that fails to reject ends the sequence. So the
    last one that passed holds with the required confidence, without a correction for multiple tests (Learn then Test,
    Angelopoulos et al. 2021).
    """
    binom = _scipy().stats.binom
    order = np.argsort(-probability, kind="stable")
    hits = np.cumsum(right[order])
    passed = Threshold(labels, None, right.size)
    first = max(smallest_sample(precision, confidence), right.size // 5)
    for size in range(first, right.size + 1, max(1, right.size // STEPS)):
        # Rounded down, since probabilities differ a little between batches. Entities of equal probability are all kept.
        value = math.floor(float(probability[order[size - 1]]) * 1e4) / 1e4
        kept = int((probability >= value).sum())
        if binom.sf(hits[kept - 1] - 1, kept, precision) > 1.0 - confidence:
            break
        passed = Threshold(labels, value, right.size, kept, int(hits[kept - 1]))
    return passed


def smallest_sample(precision: float, confidence: float) -> int:
    """Return the least number of entities which, with one wrong, proves a precision with this confidence."""
    binom = _scipy().stats.binom
    return next(n for n in itertools.count(2) if binom.sf(n - 2, n, precision) <= 1.0 - confidence)
