"""Settings of encoders of convolutions: the gated relation network and the ID-CNN."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .settings import Probability, Settings, Size, check

RelationKind = Literal["gated", "mean", "attention"]

# Exponents end here, so that `u v` stays a float32: e^80 = 5.5e34. That changes a sum `a + b` only where one of the two
# is beyond 40; and the gate even then only where the other is beyond -20 on the opposite side: otherwise the gate is 0
# or 1 to within e^-20, before and after. Context features are between -1 and 1, so at 400 channels and the weights that
# training starts with, no half can pass 35 and a typical one is below 2.
EXPONENT_LIMIT = 40.0


@dataclass(frozen=True, kw_only=True)
class GRNConfig(Settings):
    """Sizes and choices of a gated relation network. The defaults are the paper's.

    width: Width d of the context features and of the output.
    branches: Windows of the context layer's convolutions, odd numbers of tokens: each convolution's output goes through
        tanh, and the largest is taken in each channel. `[3]` is the paper's "branch 3". `[]` leaves the context layer
        out: the relation layer reads the input itself, which the paper has as wide as the output; input of another
        width is brought to `width` by a linear layer.
    relation: How tokens are related: "gated" has one gate for each pair of tokens and each channel (eq. 6); "mean"
        takes the mean of what the gates are made of (eq. 5, the paper's DFN); "attention" has one gate for each pair
        (eq. 7, its GAttN); None leaves the relation layer out.
    dropout: On what the context layer gives, before the relation layer.
    """

    width: Size = 400
    branches: Sequence[int] = (1, 3, 5)
    relation: RelationKind | None = "gated"
    dropout: Probability = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        odd = all(size >= 1 and size % 2 == 1 for size in self.branches)
        check("branches", self.branches, odd, "odd numbers of tokens")
        left, needed = self.relation is not None or bool(self.branches), "one of 'gated', 'mean' and 'attention'"
        check("relation", self.relation, left, f"{needed} where there are no branches")


@dataclass(frozen=True, kw_only=True)
class IDCNNConfig(Settings):
    """Sizes and choices of an ID-CNN. The defaults are the released code's, which iterates over whole documents.

    width: Width of every convolution's output.
    window: Tokens that a convolution sees; an odd number, at least 3.
    dilations: For each convolution of the block, the distance between the tokens that it sees.
    iterations: How often the block is applied, each time with the same weights.
    dropout: Dropout before each application of the block.
    """

    width: Size = 300
    window: int = 3
    dilations: Sequence[int] = (1, 2, 1)
    iterations: Size = 3
    dropout: Probability = 0.15

    def __post_init__(self) -> None:
        super().__post_init__()
        # A window of one token would see no neighbour at any distance.
        odd = self.window >= 3 and self.window % 2 == 1
        check("window", self.window, odd, "an odd number of tokens, at least 3")
        positive = bool(self.dilations) and min(self.dilations) >= 1
        check("dilations", self.dilations, positive, "numbers of at least 1")

    @property
    def reach(self) -> int:
        """How many tokens to each side take part in a token's output."""
        return self.window // 2 * (1 + self.iterations * sum(self.dilations))
