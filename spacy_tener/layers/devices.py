"""Threads of the host, while it computes or a GPU does."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator

import torch
from torch import nn

from ..processes import count_cores, count_physical_cores

WORK_PER_THREAD = 1 << 32
"""Products of a weight and a unit that another thread is worth. Before, threads wait for each other, for many times as
long where other processes want the cores: research/results/threads.md."""


def threads_for(device: torch.device, modules: Iterable[nn.Module], n_units: int) -> int:
    """Return the number of the host's threads for a step: as many as pay, or the user's own number.

    On a GPU one pays, since the host has small tensors only.
    """
    threads = torch.get_num_threads()
    if threads == 1 or _is_set_by_user(threads):
        return threads
    if device.type != "cpu":
        return 1
    layers = (layer for module in modules for layer in module.modules() if isinstance(layer, nn.Linear))
    work = n_units * sum(layer.weight.numel() for layer in layers)
    return min(threads, max(1, work // WORK_PER_THREAD))


def _is_set_by_user(threads: int) -> bool:
    """Return True unless torch has chosen its number of threads: that of the cores, logical or physical ones."""
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
