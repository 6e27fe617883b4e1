"""Functions that copy tensors to a device, enable mixed precision, and set the number of CPU threads in torch."""

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

# A training step uses one CPU thread per 2^32 multiplications in linear layers. With less work per thread, the threads
# mostly wait for each other (research/results/threads.md).
WORK_PER_THREAD = 1 << 32


def threads_for(device: torch.device, modules: Iterable[nn.Module], n_units: int) -> int:
    """Return the number of CPU threads for running torch modules.

    If the user has set a number of threads, it is returned. On a GPU, one thread is enough, since the CPU only
    processes small tensors. On a CPU, large modules and large batches get more threads.

    device (torch.device): The device of the modules.
    modules (Iterable[nn.Module]): The modules to run.
    n_units (int): Number of tokens or characters in the batch.
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
    """Return the number of CPU threads for an optimizer step: 1, unless the user has set a number of threads.

    The optimizer runs only a few elementwise operations for each parameter, which are too small for a second thread.
    """
    threads = torch.get_num_threads()
    return threads if _is_set_by_user(threads) else 1


def _is_set_by_user(threads: int) -> bool:
    """Return whether the user has set the number of threads, with an environment variable or in torch.

    By default, torch uses as many threads as there are logical or physical cores.

    threads (int): The number of threads in torch.
    """
    set_outside = any(name in os.environ for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"))
    return set_outside or threads not in (count_cores(), count_physical_cores())


@contextlib.contextmanager
def host_threads(threads: int) -> Iterator[None]:
    """Set the number of CPU threads in torch, and restore the previous number when the context exits."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def on_device(array: NDArray[Any] | Tensor, device: torch.device | str) -> Tensor:
    """Copy an array or a CPU tensor to a device. The copy is asynchronous on CUDA devices."""
    tensor = array if isinstance(array, Tensor) else torch.from_numpy(array)
    device = torch.device(device)
    if device.type == "cuda":
        # CUDA copies are asynchronous only from pinned memory.
        tensor = tensor.pin_memory()
    # On Apple GPUs, copy synchronously: an asynchronous copy may read the CPU memory after it has been reused
    # (https://github.com/pytorch/pytorch/issues/139550).
    return tensor.to(device, non_blocking=device.type != "mps")


# Attention kernels are enabled or disabled for the whole process, so only one thread at a time may do this.
_ALONE = threading.RLock()


@contextlib.contextmanager
def autocast_to_bfloat16(device: torch.device) -> Iterator[None]:
    """Enable automatic mixed precision (bfloat16), as a context manager."""
    with _ALONE, _without_cudnn_attention(device), torch.autocast(device.type, torch.bfloat16):
        yield


@contextlib.contextmanager
def _without_cudnn_attention(device: torch.device) -> Iterator[None]:
    """Disable cuDNN's attention kernels, as a context manager.

    cuDNN compiles an execution plan for each new batch shape, which takes several milliseconds per layer. Batches of
    text rarely have the same shape. For a transformer with BERT's size on an H100, disabling cuDNN reduced the time per
    training step from 403 ms to 134 ms (research/results/gpu.md). The backward pass uses the same kernel as the forward
    pass.
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
