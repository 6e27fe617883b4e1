"""Functions that run a model on a batch of texts, and functions that select a GPU.

The component calls `predict`. Thinc calls `forward` if a layer from this package is part of another Thinc model.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import thinc.compat
import thinc.util
from thinc.api import Model
from thinc.types import Floats2d

from ..errors import UserError, install
from ..features.tokens import TokenBatch
from .backends import Backend, Batch, Layer, NumpyBackend, Rows, as_batch, is_out_of_memory, text_lengths
from .shim import TorchShim, require_torch, torch_shims


def check_gpu(gpu_id: int) -> None:
    """Raise an error if there is no GPU with this id. The id -1 stands for the CPU."""
    n_gpus = 0
    if thinc.util.gpu_is_available():
        n_gpus = thinc.compat.cupy.cuda.runtime.getDeviceCount() if thinc.compat.has_cupy_gpu else 1
    if gpu_id < n_gpus:
        return
    if not thinc.compat.has_cupy and sys.platform != "darwin":
        command = install('"cupy-cuda12x[ctk]"')
        fix = f"Run `{command}`, or install cupy-cuda13x for CUDA 13. To use the CPU, remove --gpu-id."
        raise UserError(f"GPU {gpu_id} cannot be used: CuPy is not installed", fix)
    if not n_gpus:
        raise _unusable_gpu(gpu_id, "no GPU was found", "Run `nvidia-smi -L` to check which GPUs the driver finds.")
    if n_gpus == 1:
        raise _unusable_gpu(gpu_id, "the only GPU is 0", "Use --gpu-id 0.")
    raise _unusable_gpu(gpu_id, f"the last GPU is {n_gpus - 1}", f"Use an id from 0 to {n_gpus - 1}.")


def use_gpu(gpu_id: int) -> None:
    """Make the current thread compute on a GPU. Raise an error if the GPU can't be used.

    Thinc selects the device separately for each thread. Call this function in every new thread.

    gpu_id (int): Id of the GPU. With -1, the device is not changed.
    """
    check_gpu(gpu_id)
    if gpu_id >= 0:
        try:
            thinc.util.require_gpu(gpu_id)
        except (ValueError, RuntimeError) as error:  # Thinc raises ValueError, CuPy raises RuntimeError.
            raise _unusable_gpu(gpu_id, str(error), "Choose a GPU that `nvidia-smi -L` lists.") from error


def _unusable_gpu(gpu_id: int, reason: str, fix: str) -> UserError:
    return UserError(f"GPU {gpu_id} cannot be used: {reason}", f"{fix} To use the CPU, remove --gpu-id.")


def prediction_backend(model: Model[Any, Any], batch: Batch, shims: Sequence[TorchShim] | None = None) -> Backend:
    """Return the backend for prediction: NumPy if all modules support it, otherwise torch.

    model (Model): The model.
    batch (Batch): The model's input.
    shims (Sequence[TorchShim] | None): The model's shims. If None, they are collected from the model.
    """
    shims = torch_shims(model) if shims is None else shims
    if all(shim.predicts_with_numpy(model.ops) for shim in shims):
        return NumpyBackend(model.ops, text_lengths(batch))
    require_torch()
    from .backend_torch import TorchBackend

    return TorchBackend.of(model, batch, training=False, shims=shims)


def predict(model: Model[Any, Any], tokens: TokenBatch, shims: Sequence[TorchShim] | None = None) -> Rows:
    """Compute the model's output for a batch of texts.

    If the GPU runs out of memory, the batch is split into halves, which are computed separately.

    model (Model): The model.
    tokens (TokenBatch): The tokens of all texts.
    shims (Sequence[TorchShim] | None): The model's shims. If None, they are collected from the model.
    RETURNS (Rows): The output for each token, as a NumPy array or a torch tensor. *Shape:* (tokens, width)
    """
    try:
        return prediction_backend(model, tokens, shims).run(model, tokens)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        if len(tokens) < 2:
            raise UserError(
                "The GPU ran out of memory when processing a single text",
                "Lower `window` and `max_units` of tener_ner, or predict on the CPU.",
            ) from error
    # Retry outside of the except block. Inside the block, the traceback would keep the tensors of the failed attempt in
    # memory.
    halves = np.array_split(np.arange(len(tokens)), [len(tokens) // 2])
    return concatenate_rows([predict(model, tokens.select(half), shims) for half in halves])


def concatenate_rows(parts: Sequence[Rows]) -> Rows:
    """Concatenate NumPy arrays or torch tensors along the first axis."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    import torch

    return torch.cat(list(parts))


def forward(
    layer: Layer, batch: Sequence[Any], is_train: bool
) -> tuple[list[Floats2d], Callable[[list[Floats2d]], Sequence[Any]]]:
    """Run a layer from this package with the signature of a Thinc forward function.

    layer (Layer): The layer.
    batch (Sequence[Any]): Docs for an embedder, or an array for each text.
    is_train (bool): Whether gradients are needed. If false, the returned function raises an error.
    RETURNS (tuple): The output for each text, and a function that backpropagates gradients.
    """
    if not len(batch):
        return [], lambda gradient: batch
    if not is_train:
        inputs = as_batch(batch)
        backend = prediction_backend(layer, inputs)
        return backend.split(backend.run(layer, inputs)), _refuse_gradient
    require_torch()
    from .backend_torch import begin_update

    return begin_update(layer, batch)


def _refuse_gradient(gradient: list[Floats2d]) -> Sequence[Any]:
    """Raise an error. Predictions return this function in place of a backward pass."""
    raise ValueError("Cannot backpropagate through a prediction. Call begin_update() instead of predict().")
