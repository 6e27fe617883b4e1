"""A linear layer by the faster of torch's two libraries for matrix products.

On a CPU, torch multiplies float32 matrices with MKL, which does not use the AVX-512 units of AMD's processors; oneDNN,
which comes with torch too, does: the same layer, the same precision, nearly twice the speed forwards and backwards
(benchmarks/results/linear.md). But oneDNN compiles a kernel for every new number of rows, which takes longer than the
product itself, and keeps a thousand of them at almost a megabyte each; batches of text hardly ever have the same number
of rows twice. So rows are multiplied in blocks of a few fixed sizes. Where torch lacks the operator, or on another
device, it is `F.linear`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BLOCKS = (512, 128)
"""Sizes of blocks of rows, from the largest."""
STEP = 16
"""What is left below the smallest block is filled up with zeros to a multiple of this."""
FEWEST_PRODUCTS = 1 << 21
"""Below so many multiplications oneDNN's fixed cost outweighs its speed."""


class Linear(nn.Linear):
    """`x W^T + b`: `nn.Linear` with the same parameters."""

    def forward(self, x: Tensor) -> Tensor:
        """*Shape* [N, in] -> [N, out]"""
        if not _serves(x, self.weight) or torch.is_autocast_enabled("cpu"):
            return F.linear(x, self.weight, self.bias)
        if not torch.is_grad_enabled():
            return _product(x, self.weight, self.bias)
        product: Tensor = _OneDnnLinear.apply(x, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return product


class Projection(nn.Module):
    """`x W^T + b` for each token, in the place of an encoder, where two parts of a model differ in width."""

    def __init__(self, *, width_in: int, width_out: int) -> None:
        super().__init__()
        self.linear = Linear(width_in, width_out)

    def forward(self, tokens: Tensor, lengths: Sequence[int]) -> Tensor:
        """*Shape* [N, width_in] -> [N, width_out]"""
        projected: Tensor = self.linear(tokens)
        return projected


def _serves(x: Tensor, weight: Tensor) -> bool:
    return HAS_ONEDNN and x.is_cpu and x.dtype == torch.float32 and x.dim() == 2 and _pays(x, weight.numel())


def _pays(rows: Tensor, n_weights: int) -> bool:
    # No more rows than a block has are multiplied at once.
    return min(len(rows), BLOCKS[0]) * n_weights >= FEWEST_PRODUCTS


def _blocks(n_rows: int) -> Iterator[tuple[slice, int]]:
    """Where each block lies, and how many rows of zeros fill it up."""
    start = 0
    for size in BLOCKS:
        while n_rows - start >= size:
            yield slice(start, start + size), 0
            start += size
    if start < n_rows:
        yield slice(start, n_rows), -(n_rows - start) % STEP


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x W^T + b`. *Shape* x: [N, in]; weight: [out, in]; result: [N, out]"""
    result = x.new_empty(len(x), len(weight))
    for block, filling in _blocks(len(x)):
        rows = x[block]
        if not _pays(rows, weight.numel()):
            result[block] = F.linear(rows, weight, bias)
        elif filling:
            result[block] = _onednn(F.pad(rows, (0, 0, 0, filling)), weight, bias)[: len(rows)]
        else:
            result[block] = _onednn(rows, weight, bias)
    return result


def _outer(dy: Tensor, x: Tensor) -> Tensor:
    """`dy^T x`, the weight's gradient. *Shape* dy: [N, out]; x: [N, in]; result: [out, in]"""
    result = x.new_zeros(dy.shape[1], x.shape[1])
    for block, filling in _blocks(len(x)):
        rows, d_rows = x[block], dy[block]
        if not _pays(rows, result.numel()):
            result.addmm_(d_rows.t(), rows)
        else:
            if filling:
                rows, d_rows = (F.pad(part, (0, 0, 0, filling)) for part in (rows, d_rows))
            result += _onednn(d_rows.t(), rows.t(), None)
    return result


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return cast(Tensor, torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], ""))


def _onednn_works() -> bool:
    """Whether the operator, which torch keeps for its own compiler, is there and computes what we use it for."""
    x, weight, bias = torch.linspace(-1, 1, 128).split([48, 48, 32])
    rows = x.view(STEP, 3), weight[:6].view(2, 3), bias[:2]
    columns = rows[0].t(), weight.view(3, STEP).t().contiguous().t(), None
    try:
        return all(torch.allclose(_onednn(*given), F.linear(*given), atol=1e-5) for given in (rows, columns))
    except (RuntimeError, AttributeError, TypeError):
        return False


HAS_ONEDNN = _onednn_works()


class _OneDnnLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (dy,) = gradients
        x, weight = ctx.saved_tensors
        wants_x, wants_weight, wants_bias = ctx.needs_input_grad
        return (
            _product(dy, weight.t()) if wants_x else None,
            _outer(dy, x) if wants_weight else None,
            dy.sum(0) if wants_bias else None,
        )
