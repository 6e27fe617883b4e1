"""A linear layer in an encoder's place, where two parts of a model differ in width."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from .linear import Linear


class Projection(nn.Module):
    """`x W^T + b` for each token, whatever sequence it is in."""

    def __init__(self, *, width_in: int, width_out: int) -> None:
        super().__init__()
        self.linear = Linear(width_in, width_out)

    def forward(self, tokens: Tensor, lengths: Sequence[int]) -> Tensor:
        """*Shape* [N, width_in] -> [N, width_out]"""
        projected: Tensor = self.linear(tokens)
        return projected
