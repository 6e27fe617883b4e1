"""From the CRF's own probabilities to calibrated ones: of entities given 0.8, eight in ten are right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...types import IntArray

Probabilities = NDArray[np.float64]

CALIBRATION = "calibration"
"""Key of a component's `cfg`."""


@dataclass(frozen=True)
class Calibration:
    """What all scores of the CRF are divided by, and for each entity type a line through the log-odds that result.

    Both lines and temperature rise, so that of two readings, or two entities of a type, the surer one stays that.

    *Shape* slope, intercept: [n_labels]
    """

    temperature: float
    slope: Probabilities
    intercept: Probabilities

    @classmethod
    def of(cls, cfg: Mapping[str, Any]) -> Calibration:
        """The calibration in a component's `cfg`; without one, probabilities stay the CRF's own."""
        stored = cfg.get(CALIBRATION)
        if not stored:
            return _uncalibrated(len(cfg["labels"]))
        lines = [stored.get("labels", {}).get(label, (1.0, 0.0)) for label in cfg["labels"]]
        slope, intercept = np.array(lines, dtype=np.float64).reshape(-1, 2).T
        return cls(float(stored.get("temperature", 1.0)), slope, intercept)

    def __post_init__(self) -> None:
        numbers = np.concatenate([[self.temperature], self.slope])
        if not (np.isfinite(numbers).all() and (numbers > 0).all() and np.isfinite(self.intercept).all()):
            raise ValueError(
                f"The calibration of tener_ner has the temperature {self.temperature} and the slopes "
                f"{self.slope.tolist()}: they must be numbers above 0. Run `spacy tener calibrate` again."
            )

    def calibrated(self, probabilities: Probabilities, label: IntArray) -> Probabilities:
        """Probabilities of entities at this temperature, put on the lines of their types. *Shape* [n], [n] to [n]"""
        return sigmoid(self.slope[label] * log_odds(probabilities) + self.intercept[label])

    def uncalibrated(self, probability: float) -> Probabilities:
        """What an entity of each type has, at this temperature, that gets this probability. *Shape* [n_labels]"""
        return sigmoid((log_odds(np.array(probability)) - self.intercept) / self.slope)


@lru_cache(maxsize=64)
def _uncalibrated(n_labels: int) -> Calibration:
    return Calibration(1.0, np.ones(n_labels), np.zeros(n_labels))


def log_odds(probabilities: Probabilities) -> Probabilities:
    """-inf for 0 and inf for 1, which stay what they are."""
    inside = np.clip(probabilities, 0.0, 1.0)
    with np.errstate(divide="ignore"):
        return np.log(inside) - np.log1p(-inside)


def sigmoid(scores: Probabilities) -> Probabilities:
    with np.errstate(over="ignore"):
        return 1.0 / (1.0 + np.exp(-scores))
