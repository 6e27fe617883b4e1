"""`TorchBackend`, which runs models with torch.

It is used for training, on a GPU, and for modules without a NumPy implementation.

`NumpyBackend` and the common interface `Backend` are in `backends`. See "How a model is run" in CONTRIBUTING.md.
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

from ..errors import UserError
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
    """An input tensor in torch's autograd graph.

    It is the model's input, or the output of a layer from another library.

    rows (Tensor): The tensor. The backward pass computes its gradient.
    backprop (Optional[Callable]): Function that backpropagates the gradient through the layer that returned the tensor.
        None for the model's input.
    """

    rows: Tensor
    backprop: Callable[[list[Floats2d]], object] | None


class TorchBackend:
    """Backend that runs a model's torch modules. In training, all modules share one autograd graph.

    ops (Ops): The model's Thinc ops.
    lengths (list[int]): Text lengths in tokens.
    device (torch.device): Device of the torch modules.
    training (bool): Whether to apply dropout and to record the autograd graph.
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
        """Create the backend for a batch.

        model (Model): The model to run.
        batch (Batch): The model's input.
        training (bool): Whether the batch is used for training.
        shims (Sequence[TorchShim] | None): The model's shims. By default, they are collected from the model.
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
        """Run a model for a batch. Gradients can be computed only if `training` is set."""
        if self.device.type == "cuda":
            hide_known_warnings()
        context = wrap_memory_errors(self.lengths) if self.training else torch.inference_mode()
        with host_threads(self.threads), context:
            return self.compute(model, batch if isinstance(batch, TokenBatch) else self.join(batch))

    def compute(self, layer: Model[Any, Any], inputs: Any) -> Any:
        """Compute the output of a layer.

        Layers from other libraries are not part of the autograd graph. Their outputs are used as new input tensors, and
        `backward` calls their own backpropagation functions.
        """
        if isinstance(layer, Layer):
            return layer.compute(inputs, self)
        arrays, backprop = layer(thinc_input(inputs), self.training)
        return self._add_leaf(arrays, backprop)

    def call(self, layer: Layer, *inputs: Any) -> Tensor:
        """Call a layer's torch module. For training, the module is switched to training mode during the call."""
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
        """Run the backward pass through all layers, including layers from other libraries.

        result (Tensor | None): The tensor to differentiate, such as the loss. None if the batch has no loss. Layers
            from other libraries then receive zero gradients, since spaCy's listeners expect a gradient in each step.
        gradient (Tensor | None): The gradient of `result`. None if `result` is a scalar.
        """
        with host_threads(self.threads), wrap_memory_errors(self.lengths):
            # If all modules are frozen, or if the batch contains no tokens, the result does not require a gradient.
            if result is not None and result.requires_grad:
                result.backward(gradient)
            for leaf in reversed(self._leaves):
                if leaf.backprop is not None:
                    leaf.backprop(self._gradient(leaf))

    def input_gradient(self) -> list[Floats2d]:
        """Return the gradient with respect to the model's input, for each text.

        The model must not have an embedding layer.
        """
        return self._gradient(self._leaves[0])

    def _add_leaf(
        self, arrays: Sequence[Floats2d], backprop: Callable[[list[Floats2d]], object] | None = None
    ) -> Tensor:
        """Concatenate the arrays of all texts, and record the result as an input tensor in the autograd graph."""
        rows = join_tensors(self.ops, arrays, self.device).requires_grad_(self.training)
        self._leaves.append(Leaf(rows, backprop))
        return rows

    def _gradient(self, leaf: Leaf) -> list[Floats2d]:
        """Return the gradient with respect to an input tensor in the autograd graph, for each text."""
        # torch sets no gradient if the loss does not depend on the tensor, for example because the batch is empty.
        gradient = torch.zeros_like(leaf.rows) if leaf.rows.grad is None else leaf.rows.grad
        return split_tensor(self.ops, gradient, self.lengths)


def begin_update(
    layer: Layer, batch: Sequence[Any]
) -> tuple[list[Floats2d], Callable[[list[Floats2d]], Sequence[Any]]]:
    """Run a layer for training. The result is the same as for Thinc's `Model.begin_update`.

    layer (Layer): The layer.
    batch (Sequence[Any]): The Docs, or an array for each text.
    RETURNS (Tuple[list[Floats2d], Callable]): An output array for each text, and a function for the backward pass.
    """
    inputs = as_batch(batch)
    backend = TorchBackend.of(layer, inputs, training=True)
    rows = backend.run(layer, inputs)

    def backprop(gradient: list[Floats2d]) -> Sequence[Any]:
        backend.backward(rows, join_tensors(backend.ops, gradient, backend.device))
        return batch if isinstance(inputs, TokenBatch) else backend.input_gradient()

    return backend.split(rows), backprop


def join_tensors(ops: Ops, arrays: Sequence[Floats2d], device: torch.device) -> Tensor:
    """Concatenate the arrays of all texts to a float32 tensor.

    *Shape:* (tokens in the text, width) each to (tokens, width)
    """
    return xp2torch(join_rows(ops, arrays), device=device).to(torch.float32)


def split_tensor(ops: Ops, tensor: Tensor, lengths: Sequence[int]) -> list[Floats2d]:
    """Split a tensor into an array for each text. The arrays share the tensor's memory."""
    return split_rows(cast(Floats2d, torch2xp(tensor.detach(), ops=ops)), lengths)


def use_one_thread_if_forked() -> None:
    """Limit torch to a single CPU thread if this process was forked, as the workers of `nlp.pipe(n_process=2)` are.

    The threads in torch's thread pool do not exist in a forked process. Without the limit, torch would wait for them
    forever.
    """
    global _process
    if os.getpid() != _process:
        _process = os.getpid()
        torch.set_num_threads(1)


@functools.cache
def hide_known_warnings() -> None:
    """Hide two warnings about GPUs that users cannot fix."""
    # Thinc converts CuPy arrays with `toDlpack`, which CuPy 14 deprecates.
    warnings.filterwarnings("ignore", r"This function is deprecated.*cupy\.from_dlpack", module=r"thinc\.util$")
    # torch shows this warning for the first matrix product in its backward thread. It is harmless.
    warnings.filterwarnings("ignore", "Attempting to run cuBLAS, but there was no current CUDA context")


@contextlib.contextmanager
def wrap_memory_errors(lengths: Sequence[int]) -> Iterator[None]:
    """Convert GPU out-of-memory errors into RemedyErrors with the batch size and with settings that reduce memory."""
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        tokens = f"{sum(lengths)} tokens in total, {max(lengths, default=0)} in the longest text"
        raise UserError(
            f"The GPU ran out of memory when training on a batch of {len(lengths)} texts ({tokens})",
            "Lower `size` in [training.batcher], or `max_units` of tener_ner. If the model contains a transformer, set "
            "mixed_precision = true, which reduces the memory usage.",
        ) from error
