"""Stochastic gradient descent as the papers' code uses it: momentum, element-wise clipping, a rate per group."""

from __future__ import annotations

from typing import Any

from thinc.api import Ops, registry
from thinc.backends import get_array_ops
from thinc.optimizers import FloatOrSeq, KeyT
from thinc.types import Floats2d, FloatsXd

from .rates import RatedOptimizer


@registry.optimizers("spacy_tener.SGD.v1")
def SGD(  # noqa: N802 - the name that it is known by, as in Thinc
    learn_rate: FloatOrSeq = 1e-3,
    *,
    momentum: float = 0.9,
    nesterov: bool = False,
    clip_value: float = 5.0,
    L2: FloatOrSeq = 0.0,
    rates: dict[str, float] | None = None,
) -> MomentumSGD:
    """Make a `MomentumSGD`; see there for the settings."""
    return MomentumSGD(learn_rate, momentum=momentum, nesterov=nesterov, clip_value=clip_value, L2=L2, rates=rates)


class MomentumSGD(RatedOptimizer):
    """Gradient descent with momentum, for Thinc's and spaCy's training loops.

    A step is `torch.optim.SGD`'s, after clipping: `velocity = momentum * velocity + gradient`,
    `weights -= learn_rate * velocity`. Weights are changed in place and gradients are used up. Parameter averages,
    which cost a copy of every weight at each step, are off.

    learn_rate: a rate, or a list or generator of rates, one for each step.
    momentum: how much of the velocity stays from one step to the next; at least 0 and below 1.
    nesterov: look ahead by one step of momentum.
    clip_value: each number of a gradient is brought into ± this; 0 for no clipping.
    L2: weight decay, added to the clipped gradient as `L2 * weights`; a number, list or generator.
    rates: by what the learning rate is multiplied for parameters whose name matches a pattern (`*embed*`, `crf.*`). The
        first pattern that matches is taken, in the given order; without a match the rate is multiplied by 1.
    """

    __slots__ = ["clip_value", "momentum", "nesterov"]
    registered = "spacy_tener.SGD.v1"

    momentum: float
    nesterov: bool
    clip_value: float

    def __init__(
        self,
        learn_rate: FloatOrSeq,
        *,
        momentum: float = 0.9,
        nesterov: bool = False,
        clip_value: float = 5.0,
        L2: FloatOrSeq = 0.0,
        rates: dict[str, float] | None = None,
    ) -> None:
        self._check("momentum", momentum, 0.0 <= momentum < 1.0, "at least 0 and below 1")
        self._check("nesterov", nesterov, not nesterov or momentum > 0.0, "false where momentum is 0")
        self._check("clip_value", clip_value, clip_value >= 0.0, "at least 0 (0 switches clipping off)")
        super().__init__(learn_rate, rates=rates, L2=L2, beta1=0.0, beta2=0.0, grad_clip=0.0, use_averages=False)
        self.momentum = momentum
        self.nesterov = nesterov
        self.clip_value = clip_value

    def __call__(
        self, key: KeyT, weights: FloatsXd, gradient: FloatsXd, *, lr_scale: float = 1.0
    ) -> tuple[FloatsXd, FloatsXd]:
        """One step for a whole parameter. Returns the weights, and the gradient set to zero.

        key: the node's id and the parameter's name.
        """
        self._prepare(gradient, weights)
        step = self._step(key, gradient)
        step *= lr_scale * self.rate_of(key[1])
        weights -= step
        gradient.fill(0.0)
        return weights, gradient

    def update_rows(self, key: KeyT, rows: Floats2d, gradient: Floats2d) -> None:
        """One step for some rows of a table, taken out of it: its cost does not know the table's height.

        Velocity would go on moving rows for many steps after they were last used, so there is none here: a row goes at
        once as far as momentum would carry it in the end, `learn_rate / (1 - momentum) * gradient`.

        key: the node's id and the parameter's name.
        rows: changed in place. *Shape: [n, width]*
        gradient: theirs; used up. *Shape: [n, width]*
        """
        self._prepare(gradient, rows)
        gradient *= self.rate_of(key[1]) / (1.0 - self.momentum)
        rows -= gradient

    def _prepare(self, gradient: FloatsXd, weights: Any) -> None:
        """Clip, then add weight decay, in place."""
        if self.clip_value:
            _ops(gradient).xp.clip(gradient, -self.clip_value, self.clip_value, out=gradient)
        if self.L2:
            gradient += self.L2 * weights

    def _step(self, key: KeyT, gradient: Any) -> Any:
        """What the weights move by, but for the rate; it may be written to."""
        if self.momentum == 0.0:
            return gradient
        velocity = self._velocity(key, gradient)
        velocity *= self.momentum
        velocity += gradient
        if self.nesterov:
            gradient += self.momentum * velocity
        else:
            gradient[...] = velocity
        return gradient

    def _velocity(self, key: KeyT, like: FloatsXd) -> Any:
        """A parameter's velocity, where its gradient lives: a model may move between devices during its training.

        It starts anew where a parameter has got another shape, as when a label was added.
        """
        ops = _ops(like)
        if key not in self.mom1 or self.mom1[key].shape != like.shape:
            self.mom1[key] = ops.xp.zeros_like(like)
        velocity: Any = ops.asarray(self.mom1[key])
        self.mom1[key] = velocity
        return velocity


def _ops(array: FloatsXd) -> Ops:
    ops: Ops = get_array_ops(array)
    return ops
