"""TENER's learning rate schedule: an endless iterator, from which Thinc's optimizers read one value a step."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

from thinc.api import registry

from ..validation import Count, Probability, SettingError, Weight, validated

_ENDLESS = 1000
"""Updates of a training whose end is not known, as far as the warm-up is concerned."""


class RateSchedule:
    """Learning rates, one for each update.

    rates (Iterator[float]): The rates in their order.
    """

    def __init__(self, rates: Iterator[float]) -> None:
        self.rate = 0.0
        """The last rate that was read."""
        self.steps = 0
        """The number of rates that were read. An optimizer reads the first when it is created."""
        self.updates: Counter[str] = Counter()
        """The number of updates of each component."""
        self._rates = rates

    def __iter__(self) -> RateSchedule:
        return self

    def __next__(self) -> float:
        self.steps += 1
        self.rate = next(self._rates)
        return self.rate


def warm_up(sgd: Any, component: str) -> None:
    """Raise the learning rate before an update, if the training loop does not step the schedule.

    `spacy train` calls `step_schedules()` after each update; loops in Python hardly ever do. For them the rate rises as
    in the schedule, but is never lowered, since the number of updates is unknown. A rate that was set by hand is kept.

    sgd (Optimizer): Anything else, such as a function that collects gradients, is not changed.
    """
    schedule = getattr(sgd, "schedules", {}).get("learn_rate")
    if not isinstance(schedule, RateSchedule):
        return
    schedule.updates[component] += 1
    if schedule.updates[component] > schedule.steps and sgd.learn_rate == schedule.rate:
        schedule.rate = sgd.learn_rate = max(sgd.learn_rate, next(schedule))


@registry.schedules("spacy_tener.triangular.v1")
@validated("spacy_tener.triangular.v1")
def triangular(max_rate: Weight, total_steps: Count | str, *, warmup: Probability = 0.01) -> RateSchedule:
    """Make TENER's schedule: up from 0 for the first part of the steps, then down to 0, both linearly.

    The first step already has a rate: `max_rate / (warmup * total_steps)`, or `max_rate` where warm-up is shorter than
    one step. From `total_steps` on the rate is 0.

    max_rate (Weight): The rate at the end of the warm-up.
    total_steps (Count | str): How many updates the training makes, as `${training.max_steps}`. Where spaCy reads the
        optimizer's section alone and leaves the variable as it is (`nlp.initialize()`, `nlp.resume_training()`), and
        for 0, no end is known: the rate goes up as for 1,000 updates and stays.
    warmup (Probability): The part of the steps that goes up.
    """
    endless = total_steps == 0 or (isinstance(total_steps, str) and total_steps.startswith("${"))
    steps = _ENDLESS if endless else total_steps
    if isinstance(steps, str):
        raise SettingError(f"total_steps must be a number of updates; got {steps!r}")
    rates = _triangular(max_rate, steps, warmup * steps)
    return RateSchedule(itertools.accumulate(rates, max) if endless else rates)


def _triangular(max_rate: float, total_steps: int, top: float) -> Iterator[float]:
    step = 0
    while True:
        step += 1
        falling = max(total_steps - step, 0) / (total_steps - top)
        # If the peak lies between two steps, neither side may exceed it.
        yield max_rate * min(step / top if step < top else 1.0, falling, 1.0)
