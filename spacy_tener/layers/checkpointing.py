"""Gradient checkpointing: what a function saves for its gradient is recomputed in the backward pass.

torch's `checkpoint` does the same, but its first call imports torch's compiler: seconds and 80 MB in each process.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import get_device_states, set_device_states


def checkpointed(function: Callable[..., Tensor], *inputs: Any) -> Tensor:
    """Return `function(*inputs)`, recomputed in the backward pass with the same random numbers."""
    if not torch.is_grad_enabled():
        return function(*inputs)
    recomputed = _Recomputed(function, *inputs)
    with saved_tensors_hooks(recomputed.pack, recomputed.unpack):
        return function(*inputs)


class _Recomputed:
    """Tensors that a call saves for its gradient, by their index in the order of saving, recomputed when needed."""

    def __init__(self, function: Callable[..., Tensor], *inputs: Any) -> None:
        self.call = partial(function, *inputs)
        self.seed, self.devices = torch.get_rng_state(), get_device_states(*inputs)
        kind = next(each.device.type for each in inputs if isinstance(each, Tensor))
        precision, mixed = torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)
        self.autocast = partial(torch.autocast, kind, dtype=precision, enabled=mixed)
        self.saved = 0
        self.tensors: dict[int, Tensor] = {}

    def pack(self, _: Tensor) -> int:
        self.saved += 1
        return self.saved - 1

    def unpack(self, index: int) -> Tensor:
        if index not in self.tensors:
            self._recompute()
        return self.tensors.pop(index)

    def _recompute(self) -> None:
        self.tensors.clear()
        with torch.random.fork_rng(self.devices[0]), torch.enable_grad(), self.autocast():
            torch.set_rng_state(self.seed)
            set_device_states(*self.devices)
            with saved_tensors_hooks(self._store, self.tensors.__getitem__):
                self.call()

    def _store(self, tensor: Tensor) -> int:
        index = len(self.tensors)
        self.tensors[index] = tensor.detach()
        return index
