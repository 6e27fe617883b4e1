"""Settings of GRN."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from pydantic import PositiveInt
from pydantic.dataclasses import dataclass

from ...validation import STRICT, OddInt, Probability, SettingError


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

    width: PositiveInt = 400
    branches: Sequence[OddInt] = (1, 3, 5)
    relation: Literal["gated"] | Callable[..., Any] | None = "gated"
    dropout: Probability = 0.5

    def __post_init__(self) -> None:
        if self.relation is None and not self.branches:
            raise SettingError("relation must be 'gated' where there are no branches; got None")
