"""The gated relation network (Chen et al., 2019): local context by convolutions, then relations between all tokens."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from ...batching.sequences import Lengths
from ...settings import GRNConfig
from ..dropout import Dropout
from ..linear import Linear
from ..ragged import Ragged
from .convolution import Convolution, ConvolutionWindows
from .gated_relation import RELATIONS


class ContextLayer(nn.Module):
    """Convolutions of several windows, tanh after each, and the strongest signal in each channel (eq. 3)."""

    def __init__(self, *, input_width: int, width: int, branches: Sequence[int]) -> None:
        super().__init__()
        self.branches = nn.ModuleList(Convolution(input_width, width, size=size) for size in branches)
        for branch in self.branches:
            kaiming_uniform_start(cast(Convolution, branch).product)

    def forward(self, x: Tensor, ragged: Ragged) -> Tensor:
        """x: *Shape: [N, input_width]*. Returns *Shape: [N, d]*"""
        branches = [
            branch(x, ConvolutionWindows.of(ragged, cast(Convolution, branch).size)) for branch in self.branches
        ]
        # tanh rises everywhere: the largest of several is that of the largest.
        return torch.tanh(_largest(branches))


def kaiming_uniform_start(layer: Linear) -> None:
    """Kaiming-uniform weights, zero bias."""
    nn.init.kaiming_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)


def _largest(branches: Sequence[Tensor]) -> Tensor:
    if len(branches) == 1:
        return branches[0]
    largest: Tensor = _Largest.apply(*branches)  # type: ignore[no-untyped-call]
    return largest


class _Largest(torch.autograd.Function):
    """The largest of several numbers. It gets the gradient; equals share it.

    The gradient of `torch.maximum` takes many times as long on a CPU, where selecting by a condition is not vectorised.
    """

    @staticmethod
    def forward(ctx: Any, *branches: Tensor) -> Tensor:
        largest = functools.reduce(torch.maximum, branches)
        ctx.save_for_backward(largest, *branches)
        return largest

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        largest, *branches = ctx.saved_tensors
        chosen = [torch.eq(branch, largest, out=torch.empty_like(branch)) for branch in branches]
        share = gradients[0] / functools.reduce(torch.add, chosen)
        return tuple(part.mul_(share) for part in chosen)


class GRNEncoder(nn.Module):
    """The context layer, dropout, and the relation layer, over the sequences of a flat batch.

    Without a context layer the relation layer reads the input itself; where that is not as wide as the model, a linear
    layer brings it there.
    """

    def __init__(self, config: GRNConfig, *, input_width: int) -> None:
        super().__init__()
        self.config = config
        self.context: ContextLayer | None = None
        self.input: Linear | None = None
        if config.branches:
            self.context = ContextLayer(input_width=input_width, width=config.width, branches=config.branches)
        elif input_width != config.width:
            self.input = Linear(input_width, config.width)
            kaiming_uniform_start(self.input)
        self.dropout = Dropout(config.dropout)
        self.relation = None if config.relation is None else RELATIONS[config.relation](width=config.width)

    def forward(self, x: Tensor, lengths: Lengths) -> Tensor:
        """Encode the tokens of all sequences, joined; `lengths` says how many each sequence has.

        x: *Shape: [N, input_width]*. Returns *Shape: [N, d]*
        """
        context, ragged = self._read(x, lengths)
        if self.relation is None:
            return context
        related: Tensor = self.relation(context, ragged.lengths)
        return related

    def relation_strengths(self, x: Tensor, lengths: Lengths) -> list[Tensor]:
        """How strongly the tokens of each sequence are related: the paper's figure 4. *Shape: [T, T]* each"""
        if self.relation is None:
            raise ValueError("This gated relation network was made without a relation layer, so it relates no tokens.")
        context, ragged = self._read(x, lengths)
        return self.relation.strengths(context, ragged.lengths)

    def _read(self, x: Tensor, lengths: Lengths) -> tuple[Tensor, Ragged]:
        """The context features of every token, and the sequences they form. *Shape: [N, d]*"""
        ragged = Ragged.of(lengths, device=x.device, n_tokens=len(x))
        if self.context is not None:
            x = self.context(x, ragged)
        elif self.input is not None:
            x = self.input(x)
        return self.dropout(x), ragged
