"""Runs in torch: training steps, each one graph, and predictions on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch
from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import Floats2d
from torch import Tensor

from ..layers.devices import on_device, on_device_together, one_host_thread
from ..layers.ragged import Segments
from ..types import IntArray
from .batches import Indices, wrap_memory_errors
from .bridge import torch_shim, torch_shims
from .run import HostRun
from .torch_side import compute_alone_if_forked, hide_known_warnings, join, split


class TorchRun(HostRun):
    """A run in torch: training, as one graph, or a prediction on a GPU."""

    def __init__(self, model: Model[Any, Any], batch: Sequence[Any], is_train: bool) -> None:
        self.training = is_train
        self.device = next((shim.device for shim in torch_shims(model)), torch.device("cpu"))
        self._leaves: list[tuple[Tensor, Callable[[list[Floats2d]], object] | None]] = []
        super().__init__(model, batch)

    def _compute(self, model: Model[Any, Any]) -> Any:
        compute_alone_if_forked()
        if self.device.type == "cuda":
            hide_known_warnings()
        memory = wrap_memory_errors(self.lengths) if self.training else torch.inference_mode()
        with one_host_thread(self.device), memory:
            return super()._compute(model)

    def foreign(self, layer: Model[Any, Any], docs: Sequence[Doc]) -> Tensor:
        return self._leaf(*layer(docs, self.training))

    def _leaf(self, arrays: Sequence[Floats2d], backprop: Callable[[list[Floats2d]], object] | None = None) -> Tensor:
        rows = join(self.ops, arrays, self.device).requires_grad_(self.training)
        self._leaves.append((rows, backprop))
        return rows

    def module(self, layer: Model[Any, Any], *inputs: Any) -> Tensor:
        shim = torch_shim(layer)
        module = shim.module
        moved = iter(on_device_together([own.array for own in inputs if isinstance(own, Indices)], self.device))
        given = [next(moved) if isinstance(own, Indices) else own for own in inputs]
        if not self.training:
            return cast(Tensor, module(*given))
        module.train()
        try:
            return cast(Tensor, module(*given))
        finally:
            module.eval()

    def rows(self, arrays: Sequence[Floats2d], *, learn: bool = True) -> Tensor:
        return self._leaf(arrays) if learn else join(self.ops, arrays, self.device)

    def beside(self, parts: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(parts), dim=1)

    def with_means(self, rows: Tensor, n_own: int, sizes: IntArray, places: IntArray) -> Tensor:
        groups = Segments.of(np.repeat(np.arange(len(sizes)), sizes), len(sizes), device=self.device)
        return torch.cat([rows[:n_own], groups.mean(rows[n_own:].detach())])[on_device(places, self.device)]

    def split(self) -> list[Floats2d]:
        return split(self.ops, self.output, self.lengths)

    def backprop(self, gradient: list[Floats2d]) -> Sequence[Any]:
        if not self.training:
            return super().backprop(gradient)
        self.backward(self.output, join(self.ops, gradient, self.device))
        if isinstance(self.batch[0], Doc):
            return self.batch
        return self._gradient(self._leaves[0][0])

    def backward(self, result: Tensor | None, gradient: Tensor | None = None) -> None:
        """Compute all gradients of a result, such as the loss, and pass them on to the layers of other libraries, which
        get zeros if there is none."""
        with one_host_thread(self.device), wrap_memory_errors(self.lengths):
            # No gradient is required if all modules are frozen, or the batch has no tokens.
            if result is not None and result.requires_grad:
                result.backward(gradient)
            for leaf, backprop in reversed(self._leaves):
                if backprop is not None:
                    backprop(self._gradient(leaf))

    def _gradient(self, leaf: Tensor) -> list[Floats2d]:
        # An input may be unused: if it is empty, or if a setting leaves it out.
        return split(self.ops, torch.zeros_like(leaf) if leaf.grad is None else leaf.grad, self.lengths)
