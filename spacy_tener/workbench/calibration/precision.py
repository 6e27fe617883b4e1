"""Thresholds that keep a wished precision, with a stated confidence."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...types import BoolArray, IntArray
from .measures import Probabilities

STEPS = 20
"""Thresholds that are tried, at most."""
OWN = 100
"""Entities that a label must have for a threshold of its own. The other labels have one together."""


@dataclass(frozen=True)
class Threshold:
    """A least probability for some labels. kept: how many of the `count` entities found have it; right: of these."""

    labels: list[str]
    value: float
    count: int
    kept: int
    right: int

    @property
    def is_kept(self) -> bool:
        return self.kept > 0


def thresholds(
    probability: Probabilities,
    label: IntArray,
    right: BoolArray,
    labels: Sequence[str],
    precision: float,
    confidence: float,
) -> list[Threshold]:
    """A threshold for each label that has enough entities, and one for all others."""
    counts = np.bincount(label, minlength=len(labels))
    groups = [[i] for i in range(len(labels)) if counts[i] >= OWN]
    groups.append([i for i in range(len(labels)) if counts[i] < OWN])
    found = []
    for group in groups:
        if group:
            own = np.isin(label, group)
            names = [labels[i] for i in group]
            found.append(_threshold(probability[own], right[own], names, precision, confidence))
    return found


def _threshold(
    probability: Probabilities, right: BoolArray, labels: list[str], precision: float, confidence: float
) -> Threshold:
    """The lowest of a sequence of thresholds above which precision is as wished, or 1, which leaves all out.

    The thresholds fall, from one above which a fifth of the entities lie. Of each it is tested,
    exactly by the binomial distribution, whether precision above it is lower than wished, and the first that fails
    ends the sequence: so the last one that passed does so with the confidence asked for, without dividing the risk
    among them (fixed-sequence testing, as in Learn then Test, Angelopoulos et al. 2021).
    """
    order = np.argsort(-probability, kind="stable")
    hits = np.cumsum(right[order])
    passed = Threshold(labels, 1.0, right.size, 0, 0)
    first = max(smallest(precision, confidence), right.size // 5)
    for size in range(first, right.size + 1, max(1, right.size // STEPS)):
        # Rounded down: a text is read a little differently alone and in a batch. Of equal probabilities all are kept.
        value = math.floor(float(probability[order[size - 1]]) * 1e4) / 1e4
        kept = int((probability >= value).sum())
        if chance(int(hits[kept - 1]), kept, precision) > 1.0 - confidence:
            break
        passed = Threshold(labels, value, right.size, kept, int(hits[kept - 1]))
    return passed


def smallest(precision: float, confidence: float) -> int:
    """How many entities it takes to be so confident of a precision, if one of them is wrong."""
    return next(count for count in itertools.count(2) if chance(count - 1, count, precision) <= 1.0 - confidence)


def chance(right: int, count: int, precision: float) -> float:
    """Of so many or more being right, if each is with probability `precision`."""
    log_right, log_wrong = math.log(precision), math.log1p(-precision)
    terms = [
        math.lgamma(count + 1)
        - math.lgamma(k + 1)
        - math.lgamma(count - k + 1)
        + k * log_right
        + (count - k) * log_wrong
        for k in range(right, count + 1)
    ]
    return min(1.0, sum(map(math.exp, terms)))
