"""Optimizers with learning rates by parameter groups, Thinc's Adam and the SGD of the papers' code, and the schedule of
their rates: an is_endless iterator, from which Thinc's optimizers read one value a step."""

import itertools
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, NoReturn

from pydantic import NonNegativeFloat, NonNegativeInt
from thinc.api import Optimizer, registry
from thinc.backends import get_array_ops
from thinc.optimizers import FloatOrSeq, KeyT
from thinc.types import Floats2d, FloatsXd

from ..errors import RemedyError
from ..validation import Probability, SettingError, validated

_DEFAULT_STEPS = 1000
"""Updates of a training whose end is not known, as far as the warm-up is concerned."""

# Annotations are no strings here: config files are checked by those of a class as they stand.


class RatedOptimizer(Optimizer):
    """Base of optimizers with a learning rate for each group of parameters.

    learn_rate (FloatOrSeq): A rate, or a list or generator of rates, one for each step.
    rates (dict[str, float] | None): Factors of the learning rate for parameters whose name matches a pattern
        (`*embed*`, `crf.*`). The first pattern that matches is taken, in the given order; without a match the rate is
        multiplied by 1.
    settings (Any): Settings of Thinc's `Optimizer`.
    """

    __slots__ = ["rates"]

    rates: dict[str, float]

    def __init__(self, learn_rate: FloatOrSeq, *, rates: dict[str, float] | None, **settings: Any) -> None:
        self.rates = dict(rates or {})
        super().__init__(learn_rate, **settings)
        factors = {f"rates[{pattern!r}]": rate for pattern, rate in self.rates.items()}
        self._check_not_negative(learn_rate=self.learn_rate, L2=self.L2, **factors)

    def _check_not_negative(self, **numbers: float) -> None:
        for name, number in numbers.items():
            if not number >= 0.0:
                self._raise_error(f"{name} must be at least 0; got {number}")

    def _raise_error(self, problem: str) -> NoReturn:
        raise RemedyError(f"spacy_tener.{type(self).__name__}.v1: {problem}", "Correct the config.")

    def factor_of(self, name: str) -> float:
        """Return the factor of the learning rate for the parameter of this name."""
        return next((rate for pattern, rate in self.rates.items() if fnmatchcase(name, pattern)), 1.0)

    def rate_of(self, name: str) -> float:
        """Return the current learning rate of the parameter of this name."""
        return float(self.learn_rate * self.factor_of(name))


@registry.optimizers("spacy_tener.Adam.v1")
class Adam(RatedOptimizer):
    """Thinc's `Adam.v1` with `rates` by the names of parameters.

    Parameters are known by the names that their torch modules give them: `transformer.*` are those of
    `spacy_tener.TransformerEmbed.v1`, `radicals.*` those of `spacy_tener.RadicalEmbed.v1`, `crf.*` the CRF's. A
    module in Thinc's own wrapper, as that of the component `transformer`, has names without any prefix.

    learn_rate (FloatOrSeq): A rate, or a list or generator of rates, one for each step.
    beta1 (FloatOrSeq): Share of the mean of gradients that stays from one step to the next.
    beta2 (FloatOrSeq): Share of the mean of their squares that stays.
    eps (FloatOrSeq): Added to the root of the mean of squares.
    L2 (FloatOrSeq): Weight decay.
    L2_is_weight_decay (bool): Take weight decay from the weights at the parameter's own rate, as AdamW does; otherwise
        add it to the gradient.
    grad_clip (FloatOrSeq): The longest gradient of a parameter; 0 for no limit.
    use_averages (bool): Keep an average of every parameter but rows of embedding tables, for spaCy to evaluate and
        save.
    rates (dict[str, float] | None): Factors of the learning rate for parameters whose name matches a pattern. The first
        pattern that matches is taken, in the given order; without a match the rate is multiplied by 1.
    """

    __slots__: list[str] = []

    def __init__(
        self,
        learn_rate: FloatOrSeq = 1e-3,
        *,
        beta1: FloatOrSeq = 0.9,
        beta2: FloatOrSeq = 0.999,
        eps: FloatOrSeq = 1e-8,
        L2: FloatOrSeq = 0.0,
        L2_is_weight_decay: bool = True,
        grad_clip: FloatOrSeq = 1.0,
        use_averages: bool = True,
        rates: dict[str, float] | None = None,
    ) -> None:
        super().__init__(
            learn_rate,
            beta1=beta1,
            beta2=beta2,
            eps=eps,
            L2=L2,
            L2_is_weight_decay=L2_is_weight_decay,
            grad_clip=grad_clip,
            use_averages=use_averages,
            rates=rates,
        )

    def __call__(
        self, key: KeyT, weights: FloatsXd, gradient: FloatsXd, *, lr_scale: float = 1.0
    ) -> tuple[FloatsXd, FloatsXd]:
        """Make one step for a whole parameter. Return the weights, and the gradient set to zero.

        key (KeyT): The node's id and the parameter's name.
        """
        scale = lr_scale * self.factor_of(key[1])
        updated: tuple[FloatsXd, FloatsXd] = super().__call__(key, weights, gradient, lr_scale=scale)
        return updated


@registry.optimizers("spacy_tener.SGD.v1")
class SGD(RatedOptimizer):
    """Gradient descent with momentum.

    A step is `torch.optim.SGD`'s, after clipping: `velocity = momentum * velocity + gradient`,
    `weights -= learn_rate * velocity`. Weights are changed in place and gradients are used up. Parameter averages,
    which cost a copy of every weight at each step, are off.

    learn_rate (FloatOrSeq): A rate, or a list or generator of rates, one for each step.
    momentum (float): Share of the velocity that stays from one step to the next; at least 0 and below 1.
    clip_value (float): Bound of each number of a gradient, up and down; 0 for no clipping.
    L2 (FloatOrSeq): Weight decay, added to the clipped gradient as `L2 * weights`; a number, list or generator.
    rates (dict[str, float] | None): Factors of the learning rate for parameters whose name matches a pattern
        (`*embed*`, `crf.*`). The first pattern that matches is taken, in the given order; without a match the rate is
        multiplied by 1.
    """

    __slots__ = ["clip_value", "momentum"]

    momentum: float
    clip_value: float

    def __init__(
        self,
        learn_rate: FloatOrSeq = 1e-3,
        *,
        momentum: float = 0.9,
        clip_value: float = 5.0,
        L2: FloatOrSeq = 0.0,
        rates: dict[str, float] | None = None,
    ) -> None:
        super().__init__(learn_rate, rates=rates, L2=L2, beta1=0.0, beta2=0.0, grad_clip=0.0, use_averages=False)
        self._check_not_negative(momentum=momentum, clip_value=clip_value)
        if momentum >= 1.0:
            self._raise_error(f"momentum must be below 1; got {momentum}")
        self.momentum = momentum
        self.clip_value = clip_value

    def __call__(
        self, key: KeyT, weights: FloatsXd, gradient: FloatsXd, *, lr_scale: float = 1.0
    ) -> tuple[FloatsXd, FloatsXd]:
        """Make one step for a whole parameter. Return the weights, and the gradient set to zero.

        key (KeyT): The node's id and the parameter's name.
        """
        self._prepare(gradient, weights)
        step = self._step(key, gradient)
        step *= lr_scale * self.rate_of(key[1])
        weights -= step
        gradient.fill(0.0)
        return weights, gradient

    def update_rows(self, key: KeyT, rows: Floats2d, gradient: Floats2d) -> None:
        """Make one step for rows gathered from a table, at a cost independent of the table's height.

        With momentum, rows would keep moving for many steps after they were last used. Instead a row makes at once the
        whole step that momentum would add up to, `learn_rate / (1 - momentum) * gradient`.

        key (KeyT): The node's id and the parameter's name.
        rows (Floats2d): The rows, which are changed in place. *Shape:* (rows, width)
        gradient (Floats2d): Their gradient, which is used up. *Shape:* (rows, width)
        """
        self._prepare(gradient, rows)
        gradient *= self.rate_of(key[1]) / (1.0 - self.momentum)
        rows -= gradient

    def _prepare(self, gradient: FloatsXd, weights: Any) -> None:
        """Clip, then add weight decay, in place."""
        if self.clip_value:
            get_array_ops(gradient).xp.clip(gradient, -self.clip_value, self.clip_value, out=gradient)
        if self.L2:
            gradient += self.L2 * weights

    def _step(self, key: KeyT, gradient: Any) -> Any:
        """Return the step of the weights before it is multiplied by the rate, in an array that may be overwritten."""
        if self.momentum == 0.0:
            return gradient
        velocity = self._velocity(key, gradient)
        velocity *= self.momentum
        velocity += gradient
        gradient[...] = velocity
        return gradient

    def _velocity(self, key: KeyT, like: FloatsXd) -> Any:
        """Return a parameter's velocity, on the device of its gradient, since a model may move between devices.

        It is reset to zeros when a parameter's shape changes, as when a label is added.
        """
        ops = get_array_ops(like)
        if key not in self.mom1 or self.mom1[key].shape != like.shape:
            self.mom1[key] = ops.xp.zeros_like(like)
        velocity: Any = ops.asarray(self.mom1[key])
        self.mom1[key] = velocity
        return velocity


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

    def __iter__(self) -> "RateSchedule":
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
def triangular(
    max_rate: NonNegativeFloat, total_steps: NonNegativeInt | str, *, warmup: Probability = 0.01
) -> RateSchedule:
    """Make TENER's schedule: up from 0 for the first part of the steps, then down to 0, both linearly.

    The first step already has a rate: `max_rate / (warmup * total_steps)`, or `max_rate` where warm-up is shorter than
    one step. From `total_steps` on the rate is 0.

    max_rate (float): The rate at the end of the warm-up.
    total_steps (Union[int, str]): Number of updates in the training run, as `${training.max_steps}`. If it is 0, or a
        variable that spaCy has not filled in because it reads the optimizer's section alone (`nlp.initialize()`,
        `nlp.resume_training()`), the end is unknown: the rate rises as for 1,000 updates and stays there.
    warmup (float): Fraction of the steps in which the rate rises.
    """
    is_endless = total_steps == 0 or (isinstance(total_steps, str) and total_steps.startswith("${"))
    steps = _DEFAULT_STEPS if is_endless else total_steps
    if isinstance(steps, str):
        raise SettingError(f"total_steps must be a number of updates; got {steps!r}")
    rates = _triangular(max_rate, steps, warmup * steps)
    return RateSchedule(itertools.accumulate(rates, max) if is_endless else rates)


def _triangular(max_rate: float, total_steps: int, peak: float) -> Iterator[float]:
    step = 0
    while True:
        step += 1
        falling = max(total_steps - step, 0) / (total_steps - peak)
        # If the peak lies between two steps, neither side may exceed it.
        yield max_rate * min(step / peak if step < peak else 1.0, falling, 1.0)
