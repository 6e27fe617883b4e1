"""Convolutions along the sequences of a flat batch.

torch's own convolution needs padded sequences, and on a CPU compiles a kernel for every new shape. Here one gather
concatenates the tokens of each window, and a linear layer multiplies them. On batches of sentences of mixed lengths,
that takes about half the time of `nn.Conv1d`, forwards and backwards.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..sequences import ranges
from ..types import IntArray
from .dense_torch import Linear
from .ragged_torch import Segments


@dataclass(frozen=True)
class ConvolutionWindows:
    """Windows around each token of a batch. Made once per batch, for all convolutions of this size.

    size (int): Number of tokens in a window: odd, with the token itself in the middle.
    tokens (Segments): The token at each place of each window, in reading order. Beyond the sequence's ends it is the
        number of tokens.
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

        *Shape:* (tokens, width) to (tokens, window * width)
        """
        if self.size == 1:
            return x
        return self.tokens.gather(F.pad(x, (0, 0, 0, 1))).view(len(x), self.size * x.shape[1])


class Convolution(nn.Module):
    """Convolution with zero padding at both ends of each sequence.

    Its weights are those of `nn.Conv1d` with the last two dimensions swapped and joined.

    width (int): Width of the input.
    out (int): Width of the output.
    size (int): Number of tokens in a window.
    """

    def __init__(self, width: int, out: int, *, size: int) -> None:
        super().__init__()
        self.size = size
        self.product = Linear(size * width, out)

    def forward(self, x: Tensor, windows: ConvolutionWindows) -> Tensor:
        """Transform the rows of all texts. *Shape:* (tokens, width) to (tokens, out)

        windows (ConvolutionWindows): Windows of `size` tokens.
        """
        return self.product(windows.gather(x))
