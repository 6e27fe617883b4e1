"""Mixed precision in bfloat16: torch's autocast, with cuDNN's attention off."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch

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
