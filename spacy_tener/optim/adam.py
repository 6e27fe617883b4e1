"""Adam as Thinc has it, with a learning rate for each group of parameters."""

from __future__ import annotations

from thinc.api import registry
from thinc.optimizers import FloatOrSeq, KeyT
from thinc.types import FloatsXd

from .rates import RatedOptimizer


@registry.optimizers("spacy_tener.Adam.v1")
def Adam(  # noqa: N802 - the name that it is known by, as in Thinc
    learn_rate: FloatOrSeq = 1e-3,
    *,
    beta1: FloatOrSeq = 0.9,
    beta2: FloatOrSeq = 0.999,
    eps: FloatOrSeq = 1e-8,
    L2: FloatOrSeq = 0.0,
    L2_is_weight_decay: bool = True,
    grad_clip: FloatOrSeq = 1.0,
    use_averages: bool = True,
    use_radam: bool = False,
    rates: dict[str, float] | None = None,
) -> RatedAdam:
    """Make a `RatedAdam`; see there for the settings."""
    return RatedAdam(
        learn_rate,
        beta1=beta1,
        beta2=beta2,
        eps=eps,
        L2=L2,
        L2_is_weight_decay=L2_is_weight_decay,
        grad_clip=grad_clip,
        use_averages=use_averages,
        use_radam=use_radam,
        rates=rates,
    )


class RatedAdam(RatedOptimizer):
    """Thinc's `Adam.v1`, or its `RAdam.v1`, with `rates` by the names of parameters as `spacy_tener.SGD.v1` has them.

    Parameters are known by the names that their torch modules give them: `transformer.*` are those of
    `spacy_tener.TransformerEmbed.v1`, `components.*` those of `spacy_tener.ComponentEmbed.v1`, `crf.*` the CRF's. A
    module in Thinc's own wrapper, as that of the component `transformer`, has names without any prefix.

    learn_rate: a rate, or a list or generator of rates, one for each step.
    beta1, beta2, eps: how much of the gradient's mean, and of its square's, stays from one step to the next; and what
        is added to the root of the latter.
    L2: weight decay; with `L2_is_weight_decay` as in AdamW, taken from the weights at the parameter's own rate,
        otherwise added to the gradient.
    grad_clip: the longest gradient of a parameter; 0 for no limit.
    use_averages: keep an average of every parameter but rows of embedding tables, for spaCy to evaluate and save.
    use_radam: rectify the first steps, as RAdam does.
    rates: by what the learning rate is multiplied for parameters whose name matches a pattern. The first pattern that
        matches is taken, in the given order; without a match the rate is multiplied by 1.
    """

    __slots__: list[str] = []
    registered = "spacy_tener.Adam.v1"

    def __call__(
        self, key: KeyT, weights: FloatsXd, gradient: FloatsXd, *, lr_scale: float = 1.0
    ) -> tuple[FloatsXd, FloatsXd]:
        """One step for a whole parameter. Returns the weights, and the gradient set to zero.

        key: the node's id and the parameter's name.
        """
        # Not as Thinc's `lr_scale`, which its RAdam does not read.
        usual = self.learn_rate
        self.learn_rate = lr_scale * self.rate_of(key[1])
        try:
            updated: tuple[FloatsXd, FloatsXd] = super().__call__(key, weights, gradient)
        finally:
            self.learn_rate = usual
        return updated
