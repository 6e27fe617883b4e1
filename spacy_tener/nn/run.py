"""Running a model: the choice of a GPU, separately for each thread, and of a back end; the forward function by which
Thinc calls a layer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import thinc.compat
import thinc.util
from thinc.api import Model
from thinc.types import Floats2d

from ..errors import RemedyError, install
from ..features.tokens import TokenBatch
from .backends import Backend, Batch, Layer, NumpyBackend, Rows, as_batch, is_out_of_memory, text_lengths
from .shim import TorchShim, require_torch, torch_shims


def check_gpu(gpu_id: int) -> None:
    """Raise if a GPU does not exist; -1 is the CPU."""
    n_gpus = 0
    if thinc.util.gpu_is_available():
        n_gpus = thinc.compat.cupy.cuda.runtime.getDeviceCount() if thinc.compat.has_cupy_gpu else 1
    if gpu_id < n_gpus:
        return
    if not thinc.compat.has_cupy and sys.platform != "darwin":
        command = install('"cupy-cuda12x[ctk]"')
        remedy = f"{command}, or cupy-cuda13x for CUDA 13; or leave --gpu-id out for the CPU."
        raise RemedyError(f"GPU {gpu_id} cannot be used: CuPy is not installed", remedy)
    reason = "there is no GPU" if not n_gpus else f"the last GPU is {n_gpus - 1}" if n_gpus > 1 else "the only one is 0"
    raise _unusable_gpu(gpu_id, reason)


def use_gpu(gpu_id: int) -> None:
    """Let this thread compute on a GPU; raise if it cannot. -1 changes nothing. New threads start on the CPU, whatever
    the others use."""
    check_gpu(gpu_id)
    if gpu_id >= 0:
        try:
            thinc.util.require_gpu(gpu_id)
        except (ValueError, RuntimeError) as error:  # of Thinc; of CuPy
            raise _unusable_gpu(gpu_id, str(error)) from error


def _unusable_gpu(gpu_id: int, reason: str) -> RemedyError:
    remedy = "Choose one that `nvidia-smi -L` lists, or leave --gpu-id out for the CPU."
    return RemedyError(f"GPU {gpu_id} cannot be used: {reason}", remedy)


def prediction_backend(model: Model[Any, Any], batch: Batch, shims: Sequence[TorchShim] | None = None) -> Backend:
    """Return NumPy's back end if a model can predict with it, otherwise torch's.

    shims (Sequence[TorchShim]): The model's, if they are known.
    """
    shims = torch_shims(model) if shims is None else shims
    if all(shim.predicts_with_numpy(model.ops) for shim in shims):
        return NumpyBackend(model.ops, text_lengths(batch))
    require_torch()
    from .backend_torch import TorchBackend

    return TorchBackend.of(model, batch, training=False, shims=shims)


def predict(model: Model[Any, Any], tokens: TokenBatch, shims: Sequence[TorchShim] | None = None) -> Rows:
    """Return a model's rows for at least one text: an array, or a tensor.

    A batch that takes more memory than the GPU has is computed in halves.

    shims (Sequence[TorchShim]): The model's, if they are known.
    """
    try:
        return prediction_backend(model, tokens, shims).run(model, tokens)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        if len(tokens) < 2:
            raise RemedyError(
                "The GPU's memory is too small to read one text",
                "Lower `window` of tener_ner, and `max_units` with it, or predict on the CPU.",
            ) from error
    # Not inside the handler: there, the error still refers to the tensors of the failed attempt.
    halves = np.array_split(np.arange(len(tokens)), [len(tokens) // 2])
    return concatenate_rows([predict(model, tokens.select(half), shims) for half in halves])


def concatenate_rows(parts: Sequence[Rows]) -> Rows:
    """Join rows: arrays or tensors."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    import torch

    return torch.cat(list(parts))


def forward(
    layer: Layer, batch: Sequence[Any], is_train: bool
) -> tuple[list[Floats2d], Callable[[list[Floats2d]], Sequence[Any]]]:
    """Compute a layer of this package alone, or inside a layer of another library, as Thinc calls it."""
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
    raise ValueError("Cannot backpropagate through a prediction. Call begin_update() instead of predict().")
