"""Copies to a device, mixed precision, and the number of CPU threads that torch uses."""

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

# A training step gets one more thread for each 2^32 products of a weight and a unit. In smaller steps, threads mostly
# wait for each other, and even longer if other processes use the cores (research/results/threads.md).
WORK_PER_THREAD = 1 << 32


def threads_for(device: torch.device, modules: Iterable[nn.Module], n_units: int) -> int:
    """Return the number of CPU threads for running modules: as many as make it faster, or the number that the user has
    set.

    On a GPU, one thread is enough, since the CPU only computes with small tensors.

    device (torch.device): The device of the modules.
    modules (Iterable[nn.Module]): The modules.
    n_units (int): Number of units in the batch.
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
    """Return the number of CPU threads for updating parameters: one, or the number that the user has set.

    An update consists of a few elementwise operations per parameter, which is too little work for a second thread.
    """
    threads = torch.get_num_threads()
    return threads if _is_set_by_user(threads) else 1


def _is_set_by_user(threads: int) -> bool:
    """Return True if the user has set the number of threads, by an environment variable or in torch.

    torch's own default is the number of logical or of physical cores.
    """
    set_outside = any(name in os.environ for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"))
    return set_outside or threads not in (count_cores(), count_physical_cores())


@contextlib.contextmanager
def host_threads(threads: int) -> Iterator[None]:
    """Set torch's number of CPU threads inside the context, and restore it afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def on_device(array: NDArray[Any] | Tensor, device: torch.device | str) -> Tensor:
    """Copy an array or a tensor from the CPU to a device, without waiting until it is copied."""
    tensor = array if isinstance(array, Tensor) else torch.from_numpy(array)
    device = torch.device(device)
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    # On Apple's GPU, an asynchronous copy may happen after the CPU's memory has been used for something else
    # (https://github.com/pytorch/pytorch/issues/139550).
    return tensor.to(device, non_blocking=device.type != "mps")


# The choice of attention kernels is global to the process. So only one thread at a time computes in mixed precision.
_ALONE = threading.RLock()


@contextlib.contextmanager
def autocast_to_bfloat16(device: torch.device) -> Iterator[None]:
    """Compute in mixed precision (bfloat16) inside the context."""
    with _ALONE, _without_cudnn_attention(device), torch.autocast(device.type, torch.bfloat16):
        yield


@contextlib.contextmanager
def _without_cudnn_attention(device: torch.device) -> Iterator[None]:
    """Disable cuDNN's attention kernels inside the context. A backward pass uses the kernel of its forward pass.

    cuDNN plans a kernel for each new shape, which takes milliseconds per layer and direction, and batches of text
    hardly ever have the same shape. Without cuDNN, a training step of a transformer of the size of BERT took 134 ms
    instead of 403 ms on an H100 (research/results/gpu.md).
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
