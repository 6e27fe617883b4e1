"""Convolution along the sequences of a flat batch: every token with its neighbours, none beyond its own sequence.

torch's own convolution needs padded sequences, and on a CPU compiles a kernel for every new shape. Here each token's
neighbours are laid side by side by one gather, and a linear layer does the rest: on batches of sentences of mixed
lengths that takes about half the time of `nn.Conv1d`, forwards and backwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...batching.sequences import as_lengths, ranges
from ..devices import on_device
from ..linear import Linear
from ..ragged import Ragged


@dataclass(frozen=True)
class ConvolutionWindows:
    """Which neighbours each token of a batch sees. Made once per batch, for all convolutions of one shape.

    size: k, tokens in a window; an odd number, the token itself in the middle.
    rows: the flat row of each neighbour; N, the number of tokens, where the sequence has ended. *Shape: [N, k]*
    readers: where in `rows`, counted flat, each token is found again; N k where no window has it. *Shape: [N, k]*
    """

    size: int
    rows: Tensor
    readers: Tensor

    @classmethod
    def of(cls, ragged: Ragged, size: int, dilation: int = 1) -> ConvolutionWindows:
        """dilation: the distance between neighbours of a window: 1 for tokens that stand side by side."""
        if size < 1 or size % 2 == 0:
            raise ValueError(f"A convolution's window must be an odd number of tokens; got {size!r}.")
        # Made on the host and sent in two copies: a GPU would need a dozen launches for it.
        lengths, place = as_lengths(ragged.lengths), np.arange(size)
        offsets, n_tokens = (place - size // 2) * dilation, lengths.sum()
        seen = ranges(np.zeros_like(lengths), lengths)[:, None] + offsets
        inside = (seen >= 0) & (seen < np.repeat(lengths, lengths)[:, None])
        flat = np.arange(n_tokens)[:, None] + offsets
        # Windows are symmetric: a token's neighbour at `place` sees the token at the mirrored place.
        readers = flat * size + (size - 1 - place)
        plan = np.where(inside, flat, n_tokens), np.where(inside, readers, n_tokens * size)
        return cls(size, *(on_device(rows, ragged.positions.device) for rows in plan))

    def gather(self, x: Tensor) -> Tensor:
        """Each token's neighbours side by side, in reading order, with zeros beyond the sequence's ends.

        x: *Shape: [N, w]*. Returns *Shape: [N, k w]*
        """
        if self.size == 1:
            return x
        gathered: Tensor = _Gather.apply(x, self.rows, self.readers)  # type: ignore[no-untyped-call]
        return gathered


class Convolution(nn.Module):
    """A convolution with as many outputs as inputs: `k // 2` zeros (times the dilation) stand beyond each end.

    Its weights are those of `nn.Conv1d` with the last two dimensions swapped and joined.
    """

    def __init__(self, width: int, out: int, *, size: int) -> None:
        super().__init__()
        self.size = size
        self.product = Linear(size * width, out)

    def forward(self, x: Tensor, windows: ConvolutionWindows) -> Tensor:
        """x: *Shape: [N, width]*. Returns *Shape: [N, out]*

        windows: of this size.
        """
        convolved: Tensor = self.product(windows.gather(x))
        return convolved


class _Gather(torch.autograd.Function):
    """Rows by index, where the gradient is a gather as well: a scatter would add row after row."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: Tensor, readers: Tensor) -> Tensor:
        ctx.readers = readers
        return _rows(x, rows).view(len(x), rows.shape[1] * x.shape[1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        n_tokens, size = ctx.readers.shape
        width = gradients[0].shape[1] // size
        d_rows = gradients[0].reshape(n_tokens * size, width)
        return _rows(d_rows, ctx.readers).view(n_tokens, size, width).sum(1), None, None


def _rows(x: Tensor, index: Tensor) -> Tensor:
    """Rows of `x`, with a row of zeros after the last. *Shape* x: [N, w]; index: any; result: [.., w]"""
    return torch.cat((x, x.new_zeros(1, x.shape[1]))).index_select(0, index.flatten())
