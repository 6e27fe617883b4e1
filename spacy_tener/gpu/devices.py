"""Copies to a device, for which the host does not wait; mixed precision in bfloat16, with cuDNN's attention off."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor


def on_device(array: NDArray[Any] | Tensor, device: torch.device | str) -> Tensor:
    """Copy an array of the host to a device, without waiting for the copy."""
    tensor = array if isinstance(array, Tensor) else torch.from_numpy(array)
    device = torch.device(device)
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    # Apple's GPU would read the host's memory later, when there may be something else in it
    # (https://github.com/pytorch/pytorch/issues/139550).
    return tensor.to(device, non_blocking=device.type != "mps")


def all_on_device(arrays: Sequence[NDArray[Any] | Tensor | None], device: torch.device | str) -> list[Any]:
    """Copy arrays of the host to a device; None stays None."""
    return [None if array is None else on_device(array, device) for array in arrays]


_ALONE = threading.RLock()
"""Held while a transformer computes in mixed precision: the choice of attention kernels is global to the process."""


@contextlib.contextmanager
def autocast_to_bfloat16(device: torch.device) -> Iterator[None]:
    """Compute in mixed precision inside."""
    with _ALONE, _without_cudnn_attention(device), torch.autocast(device.type, torch.bfloat16):
        yield


@contextlib.contextmanager
def _without_cudnn_attention(device: torch.device) -> Iterator[None]:
    """Disable cuDNN's attention kernels inside. Backward passes use the kernel of their forward pass.

    cuDNN plans each new shape, which takes milliseconds per layer and direction, and batches of text hardly ever have
    the same shape.
    """
    before = device.type == "cuda" and torch.backends.cuda.cudnn_sdp_enabled()
    if not before:
        yield
        return
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(True)
