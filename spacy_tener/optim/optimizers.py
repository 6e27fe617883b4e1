"""Optimizers with learning rate multipliers, and TENER's triangular learning rate schedule.

`Adam` is Thinc's Adam. `SGD` is the optimizer in the released code of TENER and FLAT. Both optimizers support parameter
groups with different learning rates. `TorchShim` and `updates_torch.py` call the optimizers.
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

from ..errors import UserError
from ..validation import Probability, SettingError, validated

# Number of updates for which the warm-up is computed if the length of the training run is unknown.
_DEFAULT_STEPS = 1000

# This module does not import `annotations` from `__future__`. Thinc validates configs with a class's annotations, which
# must not be strings.


class RatedOptimizer(Optimizer):
    """Base class for optimizers with different learning rates for parameter groups.

    learn_rate (FloatOrSeq): The learning rate, or a list or generator with a learning rate for each step.
    rates (dict[str, float] | None): Learning rate multipliers by pattern, such as `{'crf.*': 10.0}`. The first matching
        pattern is used for each parameter. The multiplier is 1 for parameters without a matching pattern.
    settings (Any): Arguments for Thinc's `Optimizer`.
    """

    __slots__ = ["rates"]

    rates: dict[str, float]

    def __init__(self, learn_rate: FloatOrSeq, *, rates: dict[str, float] | None, **settings: Any) -> None:
        self.rates = dict(rates or {})
        super().__init__(learn_rate, **settings)
        factors = {f"rates[{pattern!r}]": rate for pattern, rate in self.rates.items()}
        self._check_not_negative(learn_rate=self.learn_rate, L2=self.L2, grad_clip=self.grad_clip, **factors)
        for name, decay in {"beta1": self.b1, "beta2": self.b2}.items():
            if not 0.0 <= decay < 1.0:
                self._raise_error(f"{name} must be at least 0 and below 1; got {decay}")

    def _check_not_negative(self, **numbers: float) -> None:
        for name, number in numbers.items():
            if not number >= 0.0:
                self._raise_error(f"{name} must be at least 0; got {number}")

    def _raise_error(self, problem: str) -> NoReturn:
        raise UserError(f"spacy_tener.{type(self).__name__}.v1: {problem}", "Correct the setting.")

    def factor_of(self, name: str) -> float:
        """Return a parameter's learning rate multiplier.

        name (str): The parameter's name.
        """
        return next((rate for pattern, rate in self.rates.items() if fnmatchcase(name, pattern)), 1.0)

    def rate_of(self, name: str) -> float:
        """Return a parameter's current learning rate, including its multiplier.

        name (str): The parameter's name.
        """
        return float(self.learn_rate * self.factor_of(name))


@registry.optimizers("spacy_tener.Adam.v1")
class Adam(RatedOptimizer):
    """Thinc's `Adam.v1` with different learning rates for parameter groups.

    Registered as `spacy_tener.Adam.v1`. You can set a learning rate multiplier for each parameter group with `rates`.
    Its patterns are compared with the parameter names in the torch modules. Here are the patterns for some parameter
    groups:

    - `transformer.*`: parameters of `spacy_tener.TransformerEmbed.v1`
    - `radicals.*`: parameters of `spacy_tener.RadicalEmbed.v1`
    - `crf.*`: parameters of the CRF

    Names have no such prefix in torch modules that Thinc wraps, as in the component `transformer`.

    learn_rate (FloatOrSeq): The learning rate, or a list or generator with a learning rate for each step.
    beta1 (FloatOrSeq): Decay rate of the gradients' moving average.
    beta2 (FloatOrSeq): Decay rate of the squared gradients' moving average.
    eps (FloatOrSeq): Term that is added to the denominator for numerical stability.
    L2 (FloatOrSeq): Weight decay.
    L2_is_weight_decay (bool): Whether to decouple the weight decay from the gradient, as in AdamW. If false, the weight
        decay is added to the gradient.
    grad_clip (FloatOrSeq): Maximum L2 norm of a parameter's gradient. 0 for no clipping.
    use_averages (bool): Whether to maintain moving averages of all parameters except embedding tables. spaCy evaluates
        and saves the averages.
    rates (dict[str, float] | None): Learning rate multipliers by pattern, such as `{'transformer.*': 0.1}`. The first
        matching pattern is used for each parameter. The multiplier is 1 for parameters without a matching pattern.
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
        """Update a parameter.

        key (KeyT): The id of the Thinc node or shim, and the parameter's name.
        weights (FloatsXd): The parameter.
        gradient (FloatsXd): The gradient.
        lr_scale (float): Additional learning rate multiplier.
        RETURNS (tuple[FloatsXd, FloatsXd]): The updated parameter, and a gradient that is zero.
        """
        scale = lr_scale * self.factor_of(key[1])
        updated: tuple[FloatsXd, FloatsXd] = super().__call__(key, weights, gradient, lr_scale=scale)
        return updated


@registry.optimizers("spacy_tener.SGD.v1")
class SGD(RatedOptimizer):
    """Stochastic gradient descent with momentum, as in the released code of TENER and FLAT.

    Registered as `spacy_tener.SGD.v1`. The gradient is clipped. The update is then the same as in `torch.optim.SGD`:

        velocity = momentum * velocity + gradient
        weights -= learn_rate * velocity

    In contrast to Thinc's optimizers, moving averages of the parameters are not computed, which saves time.

    learn_rate (FloatOrSeq): The learning rate, or a list or generator with a learning rate for each step.
    momentum (float): Momentum, at least 0 and below 1.
    clip_value (float): Maximum absolute value in a gradient. 0 for no clipping.
    L2 (FloatOrSeq): Weight decay: `L2 * weights` is added to the clipped gradient. A number, list or generator.
    rates (dict[str, float] | None): Learning rate multipliers by pattern, such as `{'crf.*': 10.0}`. The first matching
        pattern is used for each parameter. The multiplier is 1 for parameters without a matching pattern.
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
        """Update a parameter.

        key (KeyT): The id of the Thinc node or shim, and the parameter's name.
        weights (FloatsXd): The parameter.
        gradient (FloatsXd): The gradient.
        lr_scale (float): Additional learning rate multiplier.
        RETURNS (tuple[FloatsXd, FloatsXd]): The updated parameter, and a gradient that is zero.
        """
        self._prepare(gradient, weights)
        step = self._step(key, gradient)
        step *= lr_scale * self.rate_of(key[1])
        weights -= step
        gradient.fill(0.0)
        return weights, gradient

    def update_rows(self, key: KeyT, rows: Floats2d, gradient: Floats2d) -> None:
        """Update the embedding rows that are used in a batch, in place.

        Momentum changes a row in every step after its last use, so each step would have to update the complete
        embedding table. To avoid this, all changes are applied at once: `learn_rate / (1 - momentum) * gradient`.

        key (KeyT): The shim's id and the parameter's name.
        rows (Floats2d): The embedding rows. *Shape:* (rows, width)
        gradient (Floats2d): The gradient, which is overwritten. *Shape:* (rows, width)
        """
        # A gradient changes a row by `learn_rate * gradient` in this step, and by `momentum` times the previous change
        # in each later step. The sum of the geometric series 1 + momentum + momentum ** 2 + ... is 1 / (1 - momentum).
        self._prepare(gradient, rows)
        gradient *= self.rate_of(key[1]) / (1.0 - self.momentum)
        rows -= gradient

    def _prepare(self, gradient: FloatsXd, weights: Any) -> None:
        """Clip a gradient and add the weight decay to the gradient, in place."""
        if self.clip_value:
            get_array_ops(gradient).xp.clip(gradient, -self.clip_value, self.clip_value, out=gradient)
        if self.L2:
            gradient += self.L2 * weights

    def _step(self, key: KeyT, gradient: Any) -> Any:
        """Update a parameter's velocity.

        Return a copy of the velocity. To save memory, the copy is written to `gradient`.
        """
        if self.momentum == 0.0:
            return gradient
        velocity = self._velocity(key, gradient)
        velocity *= self.momentum
        velocity += gradient
        gradient[...] = velocity
        return gradient

    def _velocity(self, key: KeyT, like: FloatsXd) -> Any:
        """Return a parameter's velocity.

        The velocity is initialized with zeros. It is reset if the parameter's shape changes, for example when a label
        is added. It is moved to the gradient's device if the model was moved.
        """
        ops = get_array_ops(like)
        if key not in self.mom1 or self.mom1[key].shape != like.shape:
            self.mom1[key] = ops.xp.zeros_like(like)
        velocity: Any = ops.asarray(self.mom1[key])
        self.mom1[key] = velocity
        return velocity


class RateSchedule:
    """An iterator over a learning rate schedule, which also stores the current position.

    The attribute `rate` is the current learning rate, and `steps` is the number of steps so far. `updates` contains the
    number of updates for each pipeline component.

    rates (Iterator[float]): The learning rate for each step.
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
    """Increase the learning rate during the warm-up if the training loop does not step the schedule.

    `spacy train` calls `step_schedules()` after each update. Many training loops in Python don't, and would always use
    the small learning rate at the start of the warm-up. For such training loops, this function steps the schedule
    before each update. The learning rate never decreases, since the length of the training run is unknown. A learning
    rate that the user has set is not changed.

    sgd (Any): The optimizer. Ignored if it has no `RateSchedule`.
    component (str): Name of the component that is updated.
    """
    # In a pipeline with several components, each step updates all components. So updates are counted separately for
    # each component.
    schedule = getattr(sgd, "schedules", {}).get("learn_rate")
    if not isinstance(schedule, RateSchedule):
        return
    schedule.updates[component] += 1
    # The optimizer steps the schedule when it is created. If a component has more updates than the schedule has steps,
    # the training loop does not step the schedule.
    if schedule.updates[component] > schedule.steps and sgd.learn_rate == schedule.rate:
        schedule.rate = sgd.learn_rate = max(sgd.learn_rate, next(schedule))


@registry.schedules("spacy_tener.triangular.v1")
@validated("spacy_tener.triangular.v1")
def triangular(
    max_rate: NonNegativeFloat, total_steps: NonNegativeInt | str, *, warmup: Probability = 0.01
) -> RateSchedule:
    """Create TENER's learning rate schedule, a linear warm-up followed by a linear decay to 0.

    Registered as `spacy_tener.triangular.v1`. In the first step, the learning rate is `max_rate / (warmup *
    total_steps)`. It is `max_rate` if the warm-up is shorter than one step. From `total_steps` on, the learning rate is
    0.

    max_rate (float): The learning rate at the end of the warm-up.
    total_steps (Union[int, str]): Number of updates in the training run, usually `${training.max_steps}`. Use 0 if the
        number is unknown. The learning rate then increases as for 1,000 updates and stays constant. The same happens in
        `nlp.initialize()` and `nlp.resume_training()`, where spaCy does not resolve the variable.
    warmup (float): Ratio of the warm-up to the training run, at least 0 and below 1.
    RETURNS (Iterator[float]): The learning rates.
    """
    is_endless = total_steps == 0 or (isinstance(total_steps, str) and total_steps.startswith("${"))
    steps = _DEFAULT_STEPS if is_endless else total_steps
    if isinstance(steps, str):
        raise SettingError(f"total_steps must be an integer or the variable ${{training.max_steps}}; got {steps!r}")
    rates = _triangular(max_rate, steps, warmup * steps)
    return RateSchedule(itertools.accumulate(rates, max) if is_endless else rates)


def _triangular(max_rate: float, total_steps: int, peak: float) -> Iterator[float]:
    step = 0
    while True:
        step += 1
        falling = max(total_steps - step, 0) / (total_steps - peak)
        # Increase linearly until `peak`, then decrease linearly. `peak` is usually not an integer.
        yield max_rate * min(step / peak if step < peak else 1.0, falling, 1.0)
