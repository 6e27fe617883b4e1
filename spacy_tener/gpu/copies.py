"""Copies from the host to a device, for which the host does not wait."""

from __future__ import annotations

from collections.abc import Sequence
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
