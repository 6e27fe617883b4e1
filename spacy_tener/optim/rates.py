"""Learning rates by the names of parameters: what all optimizers here have in common."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any, ClassVar

from thinc.api import Optimizer
from thinc.optimizers import FloatOrSeq


class RatedOptimizer(Optimizer):
    """An optimizer with a learning rate for each group of parameters.

    learn_rate: a rate, or a list or generator of rates, one for each step.
    rates: by what the learning rate is multiplied for parameters whose name matches a pattern (`*embed*`, `crf.*`). The
        first pattern that matches is taken, in the given order; without a match the rate is multiplied by 1.
    settings: those of Thinc's `Optimizer`.
    """

    __slots__ = ["rates"]

    rates: dict[str, float]
    registered: ClassVar[str]

    def __init__(self, learn_rate: FloatOrSeq, *, rates: dict[str, float] | None, **settings: Any) -> None:
        self.rates = dict(rates or {})
        for pattern, rate in self.rates.items():
            self._check(f"rates[{pattern!r}]", rate, rate >= 0.0, "at least 0")
        super().__init__(learn_rate, **settings)
        self._check("learn_rate", self.learn_rate, self.learn_rate >= 0.0, "at least 0")
        self._check("L2", self.L2, self.L2 >= 0.0, "at least 0")

    def factor_of(self, name: str) -> float:
        """By what the learning rate of the parameter of this name is multiplied."""
        return next((rate for pattern, rate in self.rates.items() if fnmatchcase(name, pattern)), 1.0)

    def rate_of(self, name: str) -> float:
        """The learning rate, as it is now, of the parameter of this name."""
        return float(self.learn_rate * self.factor_of(name))

    @classmethod
    def _check(cls, name: str, value: float, valid: bool, needed: str) -> None:
        """Refuse a setting that is not valid, by the name that the optimizer is registered under."""
        if not valid:
            raise ValueError(f"{cls.registered}: {name} must be {needed}, got {value}.")
