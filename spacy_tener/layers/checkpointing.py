"""Memory for time: what a function keeps for its gradient is made again in the backward pass.

As torch's `checkpoint` does, whose first call imports torch's compiler: seconds and 80 MB, once in each process.
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
    """Return `function(*inputs)`, made again in the backward pass with the same random numbers."""
    if not torch.is_grad_enabled():
        return function(*inputs)
    again = _Again(function, *inputs)
    with saved_tensors_hooks(again.pack, again.unpack):
        return function(*inputs)


class _Again:
    """The tensors that a call saves for its gradient, by their places in the order of saving."""

    def __init__(self, function: Callable[..., Tensor], *inputs: Any) -> None:
        self.call = partial(function, *inputs)
        self.seed, self.devices = torch.get_rng_state(), get_device_states(*inputs)
        kind = next(each.device.type for each in inputs if isinstance(each, Tensor))
        precision, mixed = torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)
        self.autocast = partial(torch.autocast, kind, dtype=precision, enabled=mixed)
        self.saved = 0
        self.made: dict[int, Tensor] = {}

    def pack(self, _: Tensor) -> int:
        self.saved += 1
        return self.saved - 1

    def unpack(self, place: int) -> Tensor:
        if place not in self.made:
            self._make()
        return self.made.pop(place)

    def _make(self) -> None:
        self.made.clear()
        with torch.random.fork_rng(self.devices[0]), torch.enable_grad(), self.autocast():
            torch.set_rng_state(self.seed)
            set_device_states(*self.devices)
            with saved_tensors_hooks(self._keep, self.made.__getitem__):
                self.call()

    def _keep(self, tensor: Tensor) -> int:
        place = len(self.made)
        self.made[place] = tensor.detach()
        return place
