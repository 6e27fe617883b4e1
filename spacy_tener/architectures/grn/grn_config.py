"""Settings of GRN."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from pydantic.dataclasses import dataclass

from ...validation import STRICT, OddSize, Probability, SettingError, Size

EXPONENT_LIMIT = 40.0
"""Exponents are clipped to this, positive and negative, so that `u v` fits into float32: e^80 = 5.5e34.

That changes a sum `a + b` only where one of the two is beyond 40. Even then it changes the gate only where the other is
beyond 20 with the opposite sign: otherwise the gate is 0 or 1 to within e^-20, clipped or not. Context features are
between -1 and 1. So with 400 channels and initial weights neither can be above 35, and most are below 2.
"""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class GRNConfig:
    """Sizes and choices of a gated relation network.

    width (int): Width d of the context features and of the output.
    branches (Sequence[int]): Windows of the context layer's convolutions, odd numbers of tokens, followed by tanh and
        the maximum over the convolutions in each channel. `[3]` is the paper's "branch 3". `[]` leaves the context
        layer out: the relation layer reads the input, through a linear layer if it is not `width` wide, as the paper's
        is.
    relation (Optional[Union[Literal["gated"], Callable]]): Relation layer, with a gate for each pair of tokens and each
        channel (eq. 6); None leaves it out. A registered function may give another one: a class as `Relation`.
    dropout (float): On the context layer's output, before the relation layer.
    """

    width: Size = 400
    branches: Sequence[OddSize] = (1, 3, 5)
    relation: Literal["gated"] | Callable[..., Any] | None = "gated"
    dropout: Probability = 0.5

    def __post_init__(self) -> None:
        if self.relation is None and not self.branches:
            raise SettingError("relation must be 'gated' where there are no branches; got None")
