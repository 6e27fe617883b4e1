"""`TorchBackend`: runs models with torch, for training, on a GPU, and if a module has no NumPy implementation.

The counterpart `NumpyBackend` and the interface of both are in `backends`. See "How a model is run" in CONTRIBUTING.md.
"""

from __future__ import annotations

import contextlib
import functools
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from thinc.api import Model, Ops, torch2xp, xp2torch
from thinc.types import Floats2d
from torch import Tensor

from ..errors import RemedyError
from ..features.tokens import TokenBatch
from ..types import IntArray
from .backends import (
    Batch,
    Indices,
    Layer,
    as_batch,
    is_out_of_memory,
    join_rows,
    split_rows,
    text_lengths,
    thinc_input,
)
from .devices_torch import host_threads, on_device, threads_for
from .ragged_torch import Segments
from .shim import TorchShim, torch_shims

_process = os.getpid()


class Leaf(NamedTuple):
    """A tensor at which torch's graph begins: the input, or the output of a layer of another library.

    rows (Tensor): The tensor. Its gradient is computed in the backward pass.
    backprop (Optional[Callable]): The layer's backpropagation function, which gets the gradient. None for input.
    """

    rows: Tensor
    backprop: Callable[[list[Floats2d]], object] | None


class TorchBackend:
    """Runs the torch modules of layers. During training, all layers form a single graph.

    ops (Ops): The model's Thinc ops.
    lengths (list[int]): Token count per text.
    device (torch.device): The device of the modules.
    training (bool): Whether dropout is active and gradients are computed.
    threads (int): Number of CPU threads.
    """

    def __init__(self, ops: Ops, lengths: list[int], device: torch.device, *, training: bool, threads: int) -> None:
        self.ops = ops
        self.lengths = lengths
        self.device = device
        self.training = training
        self.threads = threads
        self._leaves: list[Leaf] = []

    @classmethod
    def of(
        cls,
        model: Model[Any, Any],
        batch: Batch,
        *,
        training: bool,
        shims: Sequence[TorchShim] | None = None,
    ) -> TorchBackend:
        """Create the back end for a batch.

        model (Model): The model that will be run.
        batch (Batch): The input.
        training (bool): Whether the batch is for training.
        shims (Sequence[TorchShim] | None): The model's shims, if the caller has them already.
        """
        shims = torch_shims(model) if shims is None else shims
        device = shims[0].device if shims else torch.device("cpu")
        lengths = text_lengths(batch)
        use_one_thread_if_forked()
        threads = torch.get_num_threads()
        if training or device.type != "cpu":
            threads = threads_for(device, [shim.module for shim in shims if shim.is_built], sum(lengths))
        return cls(model.ops, lengths, device, training=training, threads=threads)

    def run(self, model: Model[Any, Any], batch: Batch) -> Any:
        """Run a model without gradients, or for training."""
        if self.device.type == "cuda":
            hide_known_warnings()
        context = wrap_memory_errors(self.lengths) if self.training else torch.inference_mode()
        with host_threads(self.threads), context:
            return self.compute(model, batch if isinstance(batch, TokenBatch) else self.join(batch))

    def compute(self, layer: Model[Any, Any], inputs: Any) -> Any:
        """Run a layer. The graph begins anew at the output of another library's layer, whose backpropagation `backward`
        calls.
        """
        if isinstance(layer, Layer):
            return layer.compute(inputs, self)
        arrays, backprop = layer(thinc_input(inputs), self.training)
        return self._add_leaf(arrays, backprop)

    def call(self, layer: Layer, *inputs: Any) -> Tensor:
        """Call the layer's module. It is in training mode only during the call, if this is a training step."""
        module = layer.shim.module
        arguments = [on_device(part.array, self.device) if isinstance(part, Indices) else part for part in inputs]
        if not self.training:
            return cast(Tensor, module(*arguments))
        module.train()
        try:
            return cast(Tensor, module(*arguments))
        finally:
            module.eval()

    def join(self, arrays: Sequence[Floats2d], *, learn: bool = True) -> Tensor:
        return self._add_leaf(arrays) if learn else join_tensors(self.ops, arrays, self.device)

    def split(self, rows: Tensor) -> list[Floats2d]:
        return split_tensor(self.ops, rows, self.lengths)

    def concatenate_columns(self, parts: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(parts), dim=1)

    def replace_by_means(self, rows: Tensor, start: int, sizes: IntArray, order: IntArray) -> Tensor:
        groups = Segments.of(np.repeat(np.arange(len(sizes)), sizes), len(sizes), device=self.device)
        return torch.cat([rows[:start], groups.mean(rows[start:].detach())])[on_device(order, self.device)]

    def backward(self, result: Tensor | None, gradient: Tensor | None = None) -> None:
        """Backpropagate a result, such as the loss, through all layers, including layers of other libraries.

        result (Tensor | None): The result. None if there is no loss: then other libraries' layers, such as spaCy's
            listeners, get gradients of zero, since they expect a gradient in each step.
        gradient (Tensor | None): The gradient of the result, unless it is a scalar.
        """
        with host_threads(self.threads), wrap_memory_errors(self.lengths):
            # The result requires no gradient if all modules are frozen, or if the batch has no tokens.
            if result is not None and result.requires_grad:
                result.backward(gradient)
            for leaf in reversed(self._leaves):
                if leaf.backprop is not None:
                    leaf.backprop(self._gradient(leaf))

    def input_gradient(self) -> list[Floats2d]:
        """Return the gradient of the input of a model without embedder, for each text."""
        return self._gradient(self._leaves[0])

    def _add_leaf(
        self, arrays: Sequence[Floats2d], backprop: Callable[[list[Floats2d]], object] | None = None
    ) -> Tensor:
        """Concatenate arrays to a tensor at which the graph begins."""
        rows = join_tensors(self.ops, arrays, self.device).requires_grad_(self.training)
        self._leaves.append(Leaf(rows, backprop))
        return rows

    def _gradient(self, leaf: Leaf) -> list[Floats2d]:
        """Return a leaf's gradient for each text."""
        # The gradient is None if the output does not depend on this input: it is empty, or an option leaves it out.
        gradient = torch.zeros_like(leaf.rows) if leaf.rows.grad is None else leaf.rows.grad
        return split_tensor(self.ops, gradient, self.lengths)


def begin_update(
    layer: Layer, batch: Sequence[Any]
) -> tuple[list[Floats2d], Callable[[list[Floats2d]], Sequence[Any]]]:
    """Run a layer for training, as Thinc's `begin_update` does.

    RETURNS (Tuple[list[Floats2d], Callable]): The output for each text, and the backpropagation function.
    """
    inputs = as_batch(batch)
    backend = TorchBackend.of(layer, inputs, training=True)
    rows = backend.run(layer, inputs)

    def backprop(gradient: list[Floats2d]) -> Sequence[Any]:
        backend.backward(rows, join_tensors(backend.ops, gradient, backend.device))
        return batch if isinstance(inputs, TokenBatch) else backend.input_gradient()

    return backend.split(rows), backprop


def join_tensors(ops: Ops, arrays: Sequence[Floats2d], device: torch.device) -> Tensor:
    """Concatenate the arrays of a batch to a tensor in float32. *Shape:* (tokens, width) for each text to (all tokens,
    width)
    """
    return xp2torch(join_rows(ops, arrays), device=device).to(torch.float32)


def split_tensor(ops: Ops, tensor: Tensor, lengths: Sequence[int]) -> list[Floats2d]:
    """Split a tensor into an array for each text. The arrays are views."""
    return split_rows(cast(Floats2d, torch2xp(tensor.detach(), ops=ops)), lengths)


def use_one_thread_if_forked() -> None:
    """Use a single CPU thread if this process is a fork, such as a worker of `nlp.pipe(n_process=2)`.

    A forked process does not have the threads of torch's pool, and would wait for them forever.
    """
    global _process
    if os.getpid() != _process:
        _process = os.getpid()
        torch.set_num_threads(1)


@functools.cache
def hide_known_warnings() -> None:
    """Hide two warnings that users of a GPU can't do anything about."""
    # Thinc converts CuPy's arrays with `toDlpack`, which is deprecated in CuPy 14.
    warnings.filterwarnings("ignore", r"This function is deprecated.*cupy\.from_dlpack", module=r"thinc\.util$")
    # The first matrix product of torch's backward thread creates its CUDA context.
    warnings.filterwarnings("ignore", "Attempting to run cuBLAS, but there was no current CUDA context")


@contextlib.contextmanager
def wrap_memory_errors(lengths: Sequence[int]) -> Iterator[None]:
    """Add the size of the batch, and settings that reduce memory, to out-of-memory errors of a GPU."""
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        tokens = f"{sum(lengths)} tokens, the longest text {max(lengths, default=0)}"
        raise RemedyError(
            f"The GPU's memory is too small to train on {len(lengths)} texts at once ({tokens})",
            "Lower `size` in [training.batcher], or `max_units` of tener_ner. A transformer needs less memory with "
            "mixed_precision.",
        ) from error
