"""Convolutions along the sequences of a flat batch, and the encoder made of them: GRN.

torch's own convolution needs padded sequences, and on a CPU compiles a kernel for every new shape. Here one gather
concatenates the tokens of each window, and a linear layer multiplies them: on batches of sentences of mixed lengths
that takes about half the time of `nn.Conv1d`, forwards and backwards.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..batching.sequences import Lengths, as_lengths, ranges
from ..settings import GRNConfig
from ..types import IntArray
from .dense import Dropout, Linear
from .ragged import Segments
from .relation import Relation


@dataclass(frozen=True)
class ConvolutionWindows:
    """Windows around each token of a batch. Made once per batch, for all convolutions of this size.

    size (int): k, tokens in a window; an odd number, with the token itself in the middle.
    tokens (Segments): the token at each place of each window, in reading order; token N is beyond the sequence's ends.
    """

    size: int
    tokens: Segments

    @classmethod
    def of(cls, lengths: IntArray, size: int, *, device: torch.device | str = "cpu") -> ConvolutionWindows:
        """Plan the windows."""
        if size < 1 or size % 2 == 0:
            raise ValueError(f"A convolution's window must be an odd number of tokens; got {size!r}.")
        offsets, n_tokens = np.arange(size) - size // 2, int(lengths.sum())
        positions = ranges(np.zeros_like(lengths), lengths)[:, None] + offsets
        inside = (positions >= 0) & (positions < np.repeat(lengths, lengths)[:, None])
        tokens = np.where(inside, np.arange(n_tokens)[:, None] + offsets, n_tokens)
        return cls(size, Segments.of(tokens.ravel(), n_tokens + 1, device=device))

    def gather(self, x: Tensor) -> Tensor:
        """Return the tokens of each window, concatenated in reading order, with zeros beyond the sequence's ends.

        x (Tensor): *Shape:* (tokens, width). Returns *Shape:* (tokens, window * width)
        """
        if self.size == 1:
            return x
        return self.tokens.gather(F.pad(x, (0, 0, 0, 1))).view(len(x), self.size * x.shape[1])


class Convolution(nn.Module):
    """Convolution with zero padding at both ends of each sequence: `k // 2` zeros.

    Its weights are those of `nn.Conv1d` with the last two dimensions swapped and joined.
    """

    def __init__(self, width: int, out: int, *, size: int) -> None:
        super().__init__()
        self.size = size
        self.product = Linear(size * width, out)

    def forward(self, x: Tensor, windows: ConvolutionWindows) -> Tensor:
        """Transform the rows of all texts. *Shape:* (tokens, width) to (tokens, width)

        windows (ConvolutionWindows): windows of `size` tokens.
        """
        return self.product(windows.gather(x))


class ContextLayer(nn.Module):
    """Context layer: convolutions of several window sizes, tanh, and the maximum of each channel (eq. 3)."""

    def __init__(self, *, input_width: int, width: int, branches: Sequence[int]) -> None:
        super().__init__()
        self.branches = nn.ModuleList(Convolution(input_width, width, size=size) for size in branches)
        for branch in self.branches:
            kaiming_uniform_start(cast(Convolution, branch).product)

    def forward(self, x: Tensor, lengths: IntArray) -> Tensor:
        """Transform the rows of all texts. *Shape:* (tokens, input width) to (tokens, width)"""
        branches = [
            branch(x, ConvolutionWindows.of(lengths, cast(Convolution, branch).size, device=x.device))
            for branch in self.branches
        ]
        # tanh is increasing: the maximum of several is tanh of the maximum.
        return torch.tanh(_largest(branches))


def kaiming_uniform_start(layer: Linear) -> None:
    """Initialise a layer with Kaiming-uniform weights and a bias of zeros."""
    nn.init.kaiming_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)


def _largest(branches: Sequence[Tensor]) -> Tensor:
    """Return the elementwise maximum.

    The gradient of `torch.maximum` takes many times as long on a CPU, where selecting by a condition is not vectorised.
    """
    larger = (lambda a, b: a + F.relu(b - a)) if torch.is_grad_enabled() else torch.maximum
    return functools.reduce(larger, branches)


class GRNEncoder(nn.Module):
    """Gated relation network: the context layer, dropout and the relation layer, over a flat batch.

    Without a context layer, the relation layer gets the input itself, after a linear layer if the widths differ.
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
        self.relation = None if config.relation is None else Relation(width=config.width)

    def forward(self, x: Tensor, lengths: Lengths) -> Tensor:
        """Encode the tokens of all sequences, joined; `lengths` says how many each sequence has.

        x (Tensor): *Shape:* (tokens, input width). Returns *Shape:* (tokens, width)
        """
        sizes = as_lengths(lengths, len(x))
        if self.context is not None:
            x = self.context(x, sizes)
        elif self.input is not None:
            x = self.input(x)
        x = self.dropout(x)
        return x if self.relation is None else self.relation(x, sizes.tolist())
