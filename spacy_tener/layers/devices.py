"""Copies between the host and a GPU, which are few: each one that is waited for leaves the GPU without work."""

from __future__ import annotations

from typing import Any, cast

import torch
from numpy.typing import NDArray
from torch import Tensor


def on_device(array: NDArray[Any] | Tensor, device: torch.device | str) -> Tensor:
    """Return an array of the host on a device, without waiting until it is there."""
    tensor = array if isinstance(array, Tensor) else torch.from_numpy(array)
    device = torch.device(device)
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    # Apple's GPU would read the host's memory later, when there may be something else in it
    # (https://github.com/pytorch/pytorch/issues/139550).
    return tensor.to(device, non_blocking=device.type != "mps")


def to_host(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Return floats on the CPU, by one copy of all that are elsewhere. Their gradients go back by one copy as well."""
    away = [tensor for tensor in tensors if not tensor.is_cpu]
    if not away:
        return tensors
    joined = cast(Tensor, _ToHost.apply(torch.cat([tensor.flatten() for tensor in away])))  # type: ignore[no-untyped-call]
    parts = iter(joined.split([tensor.numel() for tensor in away]))
    return tuple(tensor if tensor.is_cpu else next(parts).view_as(tensor) for tensor in tensors)


class _ToHost(torch.autograd.Function):
    """A copy on the CPU, whose gradient goes back without waiting."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        ctx.device = tensor.device
        return tensor.cpu()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return on_device(gradients[0], ctx.device)
