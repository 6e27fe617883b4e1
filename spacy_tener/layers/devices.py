"""Copies between the host and a GPU, which are few: each one that is waited for leaves the GPU without work."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..batching.sequences import starts


def on_device(array: NDArray[Any] | Tensor, device: torch.device | str) -> Tensor:
    """Return an array of the host on a device, without waiting until it is there."""
    tensor = array if isinstance(array, Tensor) else torch.from_numpy(array)
    device = torch.device(device)
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    # Apple's GPU would read the host's memory later, when there may be something else in it
    # (https://github.com/pytorch/pytorch/issues/139550).
    return tensor.to(device, non_blocking=device.type != "mps")


def on_device_together(arrays: Sequence[NDArray[Any] | Tensor | None], device: torch.device | str) -> list[Any]:
    """Return arrays of the host as tensors on a device, by one copy of all; None where there is None."""
    device = torch.device(device)
    given = [array for array in arrays if array is not None]
    if device.type == "cpu" or len(given) < 2:
        return [None if array is None else on_device(array, device) for array in arrays]
    parts = [np.ascontiguousarray(array) for array in given]
    # A tensor of numbers of 8 bytes begins at a multiple of 8.
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


@contextlib.contextmanager
def one_host_thread(device: torch.device) -> Iterator[None]:
    """Let the host compute on one thread where a GPU does the work: its small tensors take longer on more."""
    before = torch.get_num_threads()
    if device.type == "cpu" or before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


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
