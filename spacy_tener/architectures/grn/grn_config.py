"""The config of GRN's encoder, which its torch module and its NumPy predictor share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from pydantic import PositiveInt
from pydantic.dataclasses import dataclass

from ...validation import STRICT, OddInt, Probability, SettingError


@dataclass(frozen=True, kw_only=True, config=STRICT)
class GRNConfig:
    """Sizes and options of a gated relation network.

    width (int): Width d of the context features and of the output.
    branches (Sequence[int]): Window sizes of the convolutions of the context layer, in tokens. Each must be odd. Empty
        for no context layer.
    relation (Optional[Union[Literal["gated"], Callable]]): The relation layer: "gated" for the paper's, a class like
        `Relation` of `grn_torch` for another one, or None for no relation layer.
    dropout (float): Dropout rate between the context layer and the relation layer.
    """

    width: PositiveInt = 400
    branches: Sequence[OddInt] = (1, 3, 5)
    relation: Literal["gated"] | Callable[..., Any] | None = "gated"
    dropout: Probability = 0.5

    def __post_init__(self) -> None:
        if self.relation is None and not self.branches:
            raise SettingError("relation must be 'gated' where there are no branches; got None")
