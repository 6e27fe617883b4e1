"""Optimizers with learning rates for groups of parameters, and the triangular learning rate schedule of TENER.

`Adam` is Thinc's Adam. `SGD` is the optimizer of the papers' released code. Both take `rates`, factors of the learning
rate for parameters whose names match a pattern. `TorchShim` and `updates_torch.py` call the optimizers.
"""

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

# Number of updates from which the length of the warm-up is computed if the length of the training run is not known.
_DEFAULT_STEPS = 1000

# This module does not import `annotations` from `__future__`: Thinc validates configs by the annotations of a class,
# which must not be strings.


class RatedOptimizer(Optimizer):
    """Base class of optimizers with learning rates for groups of parameters.

    learn_rate (FloatOrSeq): The learning rate, or a list or generator with a learning rate for each step.
    rates (dict[str, float] | None): Factors of the learning rate for parameters whose names match a pattern, such as
        `*embed*` or `crf.*`. The first matching pattern is used. The factor of parameters without a match is 1.
    settings (Any): Arguments of Thinc's `Optimizer`.
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
        """Return the factor of the learning rate for a parameter.

        name (str): The name of the parameter.
        """
        return next((rate for pattern, rate in self.rates.items() if fnmatchcase(name, pattern)), 1.0)

    def rate_of(self, name: str) -> float:
        """Return the current learning rate for a parameter, including its factor.

        name (str): The name of the parameter.
        """
        return float(self.learn_rate * self.factor_of(name))


@registry.optimizers("spacy_tener.Adam.v1")
class Adam(RatedOptimizer):
    """Thinc's `Adam.v1` with different learning rates for groups of parameters.

    Registered as `spacy_tener.Adam.v1`. The names of parameters are the names in the torch modules: `transformer.*` are
    parameters of `spacy_tener.TransformerEmbed.v1`, `radicals.*` of `spacy_tener.RadicalEmbed.v1`, and `crf.*` of the
    CRF. Parameters of torch modules in Thinc's own wrapper, such as the component `transformer`, have names without a
    prefix.

    learn_rate (FloatOrSeq): The learning rate, or a list or generator with a learning rate for each step.
    beta1 (FloatOrSeq): Decay rate of the moving average of the gradients.
    beta2 (FloatOrSeq): Decay rate of the moving average of the squared gradients.
    eps (FloatOrSeq): Number that is added to the denominator for numerical stability.
    L2 (FloatOrSeq): Weight decay.
    L2_is_weight_decay (bool): Subtract the weight decay from the weights, as AdamW does. If false, add it to the
        gradient.
    grad_clip (FloatOrSeq): Maximum L2 norm of a parameter's gradient. 0 for no clipping.
    use_averages (bool): Maintain moving averages of all parameters except embedding tables. spaCy evaluates and saves
        the averages.
    rates (dict[str, float] | None): Factors of the learning rate for parameters whose names match a pattern, such as
        `transformer.*`. The first matching pattern is used. The factor of parameters without a match is 1.
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
        """Update a parameter. Return the weights, and a gradient of zeros, as Thinc requires.

        key (KeyT): The id of the node and the name of the parameter.
        """
        scale = lr_scale * self.factor_of(key[1])
        updated: tuple[FloatsXd, FloatsXd] = super().__call__(key, weights, gradient, lr_scale=scale)
        return updated


@registry.optimizers("spacy_tener.SGD.v1")
class SGD(RatedOptimizer):
    """Stochastic gradient descent with momentum, as in the papers' released code.

    Registered as `spacy_tener.SGD.v1`. After clipping, a step is the same as in `torch.optim.SGD`:

        velocity = momentum * velocity + gradient
        weights -= learn_rate * velocity

    The weights are updated in place. Moving averages of the parameters, which Thinc's optimizers compute by default,
    are off, since they take time in each step.

    learn_rate (FloatOrSeq): The learning rate, or a list or generator with a learning rate for each step.
    momentum (float): Factor of the velocity in each step. At least 0 and below 1.
    clip_value (float): Maximum absolute value of the elements of a gradient. 0 for no clipping.
    L2 (FloatOrSeq): Weight decay, which adds `L2 * weights` to the clipped gradient. A number, list or generator.
    rates (dict[str, float] | None): Factors of the learning rate for parameters whose names match a pattern, such as
        `*embed*` or `crf.*`. The first matching pattern is used. The factor of parameters without a match is 1.
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
        """Update a parameter. Return the weights, and a gradient of zeros, as Thinc requires.

        key (KeyT): The id of the node and the name of the parameter.
        """
        self._prepare(gradient, weights)
        step = self._step(key, gradient)
        step *= lr_scale * self.rate_of(key[1])
        weights -= step
        gradient.fill(0.0)
        return weights, gradient

    def update_rows(self, key: KeyT, rows: Floats2d, gradient: Floats2d) -> None:
        """Update embedding rows that are used in a batch. The time does not depend on the size of the table.

        Momentum would change a row in many steps after its last use, and thus require an update of the complete table.
        So the row is updated at once by the sum of these changes, `learn_rate / (1 - momentum) * gradient`.

        key (KeyT): The id of the node and the name of the parameter.
        rows (Floats2d): The embedding rows, which are updated in place. *Shape:* (rows, width)
        gradient (Floats2d): The gradient, which is overwritten. *Shape:* (rows, width)
        """
        # The sum of the geometric series 1 + momentum + momentum ** 2 + ... is 1 / (1 - momentum).
        self._prepare(gradient, rows)
        gradient *= self.rate_of(key[1]) / (1.0 - self.momentum)
        rows -= gradient

    def _prepare(self, gradient: FloatsXd, weights: Any) -> None:
        """Clip a gradient and add weight decay, in place."""
        if self.clip_value:
            get_array_ops(gradient).xp.clip(gradient, -self.clip_value, self.clip_value, out=gradient)
        if self.L2:
            gradient += self.L2 * weights

    def _step(self, key: KeyT, gradient: Any) -> Any:
        """Return the update without the learning rate. The array can be overwritten."""
        if self.momentum == 0.0:
            return gradient
        velocity = self._velocity(key, gradient)
        velocity *= self.momentum
        velocity += gradient
        gradient[...] = velocity
        return gradient

    def _velocity(self, key: KeyT, like: FloatsXd) -> Any:
        """Return the velocity of a parameter.

        The velocity is reset to zeros if the shape of the parameter changes, for example when a label is added. It is
        moved to the device of the gradient, since a model can move between devices.
        """
        ops = get_array_ops(like)
        if key not in self.mom1 or self.mom1[key].shape != like.shape:
            self.mom1[key] = ops.xp.zeros_like(like)
        velocity: Any = ops.asarray(self.mom1[key])
        self.mom1[key] = velocity
        return velocity


class RateSchedule:
    """An iterator over the learning rates of all updates.

    The attribute `rate` is the last rate, and `steps` the number of rates that were consumed. An optimizer consumes the
    first rate when it is created. `updates` counts the updates of each component.

    rates (Iterator[float]): The rates in their order.
    """

    def __init__(self, rates: Iterator[float]) -> None:
        self.rate = 0.0
        self.steps = 0
        self.updates: Counter[str] = Counter()
        self._rates = rates

    def __iter__(self) -> "RateSchedule":
        return self

    def __next__(self) -> float:
        self.steps += 1
        self.rate = next(self._rates)
        return self.rate


def warm_up(sgd: Any, component: str) -> None:
    """Increase the learning rate before an update if the training loop does not step the schedule.

    `spacy train` calls `step_schedules()` after each update. Most training loops in Python do not, and would use the
    small first learning rate of the warm-up forever. For these loops, the learning rate increases as in the schedule.
    It never decreases, since the number of updates is unknown. A learning rate that the user sets is not changed.

    sgd (Any): The optimizer. Other objects, such as a function that collects gradients, are ignored.
    component (str): The name of the component that is updated.
    """
    # A pipeline with several components makes several updates per step, which are counted for each component.
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
    """Create the learning rate schedule of TENER: a linear increase, followed by a linear decrease to 0.

    Registered as `spacy_tener.triangular.v1`. The learning rate of the first step is `max_rate / (warmup *
    total_steps)`, or `max_rate` if the warm-up is shorter than one step. From `total_steps` on, the learning rate is 0.

    max_rate (float): The learning rate at the end of the warm-up.
    total_steps (Union[int, str]): Number of updates in the training run, usually `${training.max_steps}`. The number is
        unknown if it is 0, or if spaCy does not resolve the variable, as in `nlp.initialize()` and
        `nlp.resume_training()`. The learning rate then increases as for 1,000 updates and stays constant.
    warmup (float): Fraction of the steps in which the learning rate increases.
    RETURNS (Iterator[float]): The learning rates.
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
        # `peak` is usually not an integer. The minimum ensures that the steps next to it do not exceed `max_rate`.
        yield max_rate * min(step / peak if step < peak else 1.0, falling, 1.0)
