"""The hyperparameters of the GRN encoder.

The encoder's torch and NumPy implementations are both created from this config.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from pydantic import PositiveInt
from pydantic.dataclasses import dataclass

from ...validation import STRICT, OddInt, Probability, SettingError


@dataclass(frozen=True, kw_only=True, config=STRICT)
class GRNConfig:
    """Hyperparameters of a gated relation network.

    width (int): Output width d, which is also the number of convolution channels.
    branches (Sequence[int]): Convolution window sizes, in tokens. The sizes must be odd. Empty for no context layer.
    relation (Optional[Union[Literal["gated"], Callable]]): The relation layer: "gated" for the paper's layer, a
        layer class with the same interface as `grn_torch.Relation`, or None for no relation layer.
    dropout (float): Dropout rate between the context layer and the relation layer.
    """

    width: PositiveInt = 400
    branches: Sequence[OddInt] = (1, 3, 5)
    relation: Literal["gated"] | Callable[..., Any] | None = "gated"
    dropout: Probability = 0.5

    def __post_init__(self) -> None:
        if self.relation is None and not self.branches:
            raise SettingError("relation must be 'gated' if branches is empty; got None")
