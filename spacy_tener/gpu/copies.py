"""Copies between host and device, which are few, since a GPU idles while the host waits for one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..batching.sequences import starts


def on_device(array: NDArray[Any] | Tensor, device: torch.device | str) -> Tensor:
    """Copy an array of the host to a device, without waiting for the copy."""
    tensor = array if isinstance(array, Tensor) else torch.from_numpy(array)
    device = torch.device(device)
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    # Apple's GPU would read the host's memory later, when there may be something else in it
    # (https://github.com/pytorch/pytorch/issues/139550).
    return tensor.to(device, non_blocking=device.type != "mps")


def on_device_together(arrays: Sequence[NDArray[Any] | Tensor | None], device: torch.device | str) -> list[Any]:
    """Copy arrays of the host to a device in one transfer; None stays None."""
    device = torch.device(device)
    given = [array for array in arrays if array is not None]
    if device.type == "cpu" or len(given) < 2:
        return [None if array is None else on_device(array, device) for array in arrays]
    parts = [np.ascontiguousarray(array) for array in given]
    # Tensors must be aligned: each begins at a multiple of 8 bytes.
    sizes = [-(-part.nbytes // 8) * 8 for part in parts]
    begins = starts(np.array(sizes)).tolist()
    block = np.empty(sum(sizes), np.uint8)
    for part, begin in zip(parts, begins, strict=True):
        block[begin : begin + part.nbytes] = part.reshape(-1).view(np.uint8)
    there = on_device(block, device)
    moved = (
        there[begin : begin + part.nbytes].view(_dtype(part)).view(part.shape)
        for part, begin in zip(parts, begins, strict=True)
    )
    return [None if array is None else next(moved) for array in arrays]


def _dtype(array: NDArray[Any]) -> torch.dtype:
    return torch.from_numpy(array[:0]).dtype


def to_host(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Copy tensors of floats to the CPU in one transfer. Their gradients go back in one, too."""
    away = [tensor for tensor in tensors if not tensor.is_cpu]
    if not away:
        return tensors
    joined = cast(Tensor, _ToHost.apply(torch.cat([tensor.flatten() for tensor in away])))  # type: ignore[no-untyped-call]
    parts = iter(joined.split([tensor.numel() for tensor in away]))
    return tuple(tensor if tensor.is_cpu else next(parts).view_as(tensor) for tensor in tensors)


class _ToHost(torch.autograd.Function):
    """Copy to the CPU, whose gradient is copied back without waiting."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        ctx.device = tensor.device
        return tensor.cpu()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return on_device(gradients[0], ctx.device)
