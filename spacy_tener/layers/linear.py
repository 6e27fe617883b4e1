"""A linear layer by the faster of torch's two libraries for matrix products.

On a CPU, torch multiplies float32 matrices with MKL, which does not use the AVX-512 units of AMD's processors; oneDNN,
which comes with torch too, does: the same layer, the same precision, twice the speed forwards and backwards
(benchmarks/results/linear.md). Where torch has no such operator, or on another device, it is `F.linear`.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Below so many rows, oneDNN's fixed cost outweighs its speed.
FEWEST_ROWS = 32


class Linear(nn.Linear):
    """`x W^T + b`: `nn.Linear` with the same parameters."""

    def forward(self, x: Tensor) -> Tensor:
        """*Shape* [N, in] -> [N, out]"""
        if not _serves(x) or torch.is_autocast_enabled("cpu"):
            return F.linear(x, self.weight, self.bias)
        if not torch.is_grad_enabled():
            return _product(x, self.weight, self.bias)
        product: Tensor = _OneDnnLinear.apply(x, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return product


def _serves(x: Tensor) -> bool:
    return HAS_ONEDNN and x.is_cpu and x.dtype == torch.float32 and x.dim() == 2 and len(x) >= FEWEST_ROWS


def _has_onednn() -> bool:
    # The operator is torch's own, for its compiler's use; a build of torch may lack it.
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


HAS_ONEDNN = _has_onednn()


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x W^T + b`. *Shape* x: [N, in]; weight: [out, in]; result: [N, out]"""
    return cast(Tensor, torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], ""))


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
            _product(dy.t(), x.t()) if wants_weight else None,
            dy.sum(0) if wants_bias else None,
        )
