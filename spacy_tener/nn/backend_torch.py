"""The torch back end: training steps, and predictions on a GPU or by modules without a NumPy form."""

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
    """Rows at which the graph ends: input, or the output of another library's layer with its backprop."""

    rows: Tensor
    backprop: Callable[[list[Floats2d]], object] | None


class TorchBackend:
    """Computes layers by their torch modules. In training, all layers are one graph.

    lengths (list[int]): Tokens of each text.
    threads (int): Threads of the host that it uses.
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
        """Return the back end for a batch.

        shims (Sequence[TorchShim] | None): The model's, if they are known.
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
        if self.device.type == "cuda":
            hide_known_warnings()
        context = wrap_memory_errors(self.lengths) if self.training else torch.inference_mode()
        with host_threads(self.threads), context:
            return self.compute(model, batch if isinstance(batch, TokenBatch) else self.join(batch))

    def compute(self, layer: Model[Any, Any], inputs: Any) -> Any:
        if isinstance(layer, Layer):
            return layer.compute(inputs, self)
        arrays, backprop = layer(thinc_input(inputs), self.training)
        return self._add_leaf(arrays, backprop)

    def call(self, layer: Layer, *inputs: Any) -> Tensor:
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
        """Compute the gradients of a result, such as the loss, and pass them on to layers of other libraries.

        result (Tensor): None for gradients of zero, which listeners need if there is no loss.
        """
        with host_threads(self.threads), wrap_memory_errors(self.lengths):
            # No gradient is required if all modules are frozen, or the batch has no tokens.
            if result is not None and result.requires_grad:
                result.backward(gradient)
            for leaf in reversed(self._leaves):
                if leaf.backprop is not None:
                    leaf.backprop(self._gradient(leaf))

    def input_gradient(self) -> list[Floats2d]:
        """Return the gradient of the rows that a model without embedder was run with."""
        return self._gradient(self._leaves[0])

    def _add_leaf(
        self, arrays: Sequence[Floats2d], backprop: Callable[[list[Floats2d]], object] | None = None
    ) -> Tensor:
        rows = join_tensors(self.ops, arrays, self.device).requires_grad_(self.training)
        self._leaves.append(Leaf(rows, backprop))
        return rows

    def _gradient(self, leaf: Leaf) -> list[Floats2d]:
        # An input may be unused: if it is empty, or if a setting leaves it out.
        gradient = torch.zeros_like(leaf.rows) if leaf.rows.grad is None else leaf.rows.grad
        return split_tensor(self.ops, gradient, self.lengths)


def begin_update(
    layer: Layer, batch: Sequence[Any]
) -> tuple[list[Floats2d], Callable[[list[Floats2d]], Sequence[Any]]]:
    """Run a layer for a training step of Thinc. Return its arrays, and the function that takes their gradients."""
    inputs = as_batch(batch)
    backend = TorchBackend.of(layer, inputs, training=True)
    rows = backend.run(layer, inputs)

    def backprop(gradient: list[Floats2d]) -> Sequence[Any]:
        backend.backward(rows, join_tensors(backend.ops, gradient, backend.device))
        return batch if isinstance(inputs, TokenBatch) else backend.input_gradient()

    return backend.split(rows), backprop


def join_tensors(ops: Ops, arrays: Sequence[Floats2d], device: torch.device) -> Tensor:
    """Join the arrays of a batch as one tensor."""
    return xp2torch(join_rows(ops, arrays), device=device).to(torch.float32)


def split_tensor(ops: Ops, tensor: Tensor, lengths: Sequence[int]) -> list[Floats2d]:
    """Split a tensor into one array for each text: views, not copies."""
    return split_rows(cast(Floats2d, torch2xp(tensor.detach(), ops=ops)), lengths)


def use_one_thread_if_forked() -> None:
    """Use a single thread in a forked worker, such as one of `nlp.pipe(n_process=2)`.

    A fork lacks the threads of torch's pool, and would wait for them forever.
    """
    global _process
    if os.getpid() != _process:
        _process = os.getpid()
        torch.set_num_threads(1)


@functools.cache
def hide_known_warnings() -> None:
    """Hide two warnings that users of a GPU can do nothing about, from its first use on."""
    # Thinc hands over CuPy's arrays by `toDlpack`, which CuPy 14 warns of.
    warnings.filterwarnings("ignore", r"This function is deprecated.*cupy\.from_dlpack", module=r"thinc\.util$")
    # The thread of torch's backward pass gets its context by the first product.
    warnings.filterwarnings("ignore", "Attempting to run cuBLAS, but there was no current CUDA context")


@contextlib.contextmanager
def wrap_memory_errors(lengths: Sequence[int]) -> Iterator[None]:
    """Raise out-of-memory errors of a GPU with the size of the batch, and with settings to lower."""
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
