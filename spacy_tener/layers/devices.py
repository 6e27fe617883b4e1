"""Copies between the host and a GPU, which are few: each one that is waited for leaves the GPU without work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
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


def on_device_together(arrays: Sequence[NDArray[Any] | Tensor], device: torch.device | str) -> list[Tensor]:
    """Return arrays of the host on a device, by one copy of all, each with its own type of numbers."""
    device = torch.device(device)
    if device.type == "cpu" or len(arrays) < 2:
        return [on_device(array, device) for array in arrays]
    parts = [np.ascontiguousarray(array) for array in arrays]
    # A tensor of numbers of 8 bytes begins at a multiple of 8.
    sizes = [-(-part.nbytes // 8) * 8 for part in parts]
    block = np.empty(sum(sizes), np.uint8)
    ends = np.cumsum(sizes).tolist()
    for part, size, end in zip(parts, sizes, ends, strict=True):
        block[end - size : end - size + part.nbytes] = part.reshape(-1).view(np.uint8)
    there = on_device(block, device)
    return [
        there[end - size : end - size + part.nbytes].view(_dtype(part)).view(part.shape)
        for part, size, end in zip(parts, sizes, ends, strict=True)
    ]


def _dtype(array: NDArray[Any]) -> torch.dtype:
    return torch.from_numpy(array[:0]).dtype


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
