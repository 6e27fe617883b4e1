"""Memory for time: what a function keeps for its gradient is made again in the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint


def checkpointed(function: Callable[..., Tensor], *inputs: Any) -> Tensor:
    """`function(*inputs)`, made again in the backward pass with the same random numbers."""
    if not torch.is_grad_enabled():
        # The first call of torch's checkpoint imports its compiler: seconds and 80 MB that prediction needs not spend.
        return function(*inputs)
    return cast(Tensor, checkpoint(function, *inputs, use_reentrant=False))
