"""Copies to a device, for which the host does not wait; mixed precision; the host's threads beside a GPU."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..processes import count_cores, count_physical_cores

WORK_PER_THREAD = 1 << 32
"""Products of a weight and a unit for which one more thread pays. With fewer, threads wait for each other, and much
longer where other processes want the cores: research/results/threads.md."""


def threads_for(device: torch.device, modules: Iterable[nn.Module], n_units: int) -> int:
    """Return the number of the host's threads for a training step: as many as pay, or the user's own number.

    On a GPU one thread is enough, since the host only computes with small tensors.
    """
    threads = torch.get_num_threads()
    if _is_set_by_user(threads):
        return threads
    if device.type != "cpu":
        return 1
    layers = (layer for module in modules for layer in module.modules() if isinstance(layer, nn.Linear))
    work = n_units * sum(layer.weight.numel() for layer in layers)
    return min(threads, max(1, work // WORK_PER_THREAD))


def threads_for_updates() -> int:
    """Return the number of the host's threads for updating the parameters: one, or the user's own number.

    An update is a few element-wise operations per parameter, too little work for a second thread.
    """
    threads = torch.get_num_threads()
    return threads if _is_set_by_user(threads) else 1


def _is_set_by_user(threads: int) -> bool:
    """Return True unless torch has chosen its number of threads, which is that of logical or of physical cores."""
    set_outside = any(name in os.environ for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"))
    return set_outside or threads not in (count_cores(), count_physical_cores())


@contextlib.contextmanager
def host_threads(threads: int) -> Iterator[None]:
    """Let torch compute on so many threads of the host. Afterwards it has as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def on_device(array: NDArray[Any] | Tensor, device: torch.device | str) -> Tensor:
    """Copy an array of the host to a device, without waiting for the copy."""
    tensor = array if isinstance(array, Tensor) else torch.from_numpy(array)
    device = torch.device(device)
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    # Apple's GPU would read the host's memory later, when there may be something else in it
    # (https://github.com/pytorch/pytorch/issues/139550).
    return tensor.to(device, non_blocking=device.type != "mps")


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
