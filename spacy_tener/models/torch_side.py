"""The part of the models that needs torch: training, and prediction on a GPU."""

from __future__ import annotations

import contextlib
import functools
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from thinc.api import Ops, Optimizer, get_torch_default_device, torch2xp, xp2torch
from thinc.types import Floats2d, FloatsXd
from torch import Tensor, nn

from ..layers.devices import one_host_thread
from ..optim.updates import StepTogether, apply_row_gradient
from .batches import join_rows, split_rows

__all__ = ["StepTogether"]

_process = os.getpid()


@functools.cache
def hide_known_warnings() -> None:
    """Hide two warnings of GPUs that users can do nothing about, from the first time that one computes here."""
    # Thinc hands over CuPy's arrays by `toDlpack`, which CuPy 14 warns of.
    warnings.filterwarnings("ignore", r"This function is deprecated.*cupy\.from_dlpack", module=r"thinc\.util$")
    # The thread of torch's backward pass gets its context by the first product.
    warnings.filterwarnings("ignore", "Attempting to run cuBLAS, but there was no current CUDA context")


def compute_alone_if_forked() -> None:
    """Use a single thread in a forked worker, as of `nlp.pipe(n_process=2)`: it lacks the threads of torch's pool and
    would wait for them forever."""
    global _process
    if os.getpid() != _process:
        _process = os.getpid()
        torch.set_num_threads(1)


def to_default_device(module: nn.Module) -> nn.Module:
    """Move a module to Thinc's default device."""
    return module.to(get_torch_default_device())


def device_of(module: nn.Module) -> torch.device:
    """Return the device of a module's parameters."""
    return next(module.parameters()).device


def arrays_of(module: nn.Module) -> dict[str, NDArray[Any]]:
    """Return a module's state_dict as arrays: views if it is on the CPU, otherwise copies."""
    return {name: value.cpu().numpy() for name, value in module.state_dict().items()}


def load_arrays(module: nn.Module, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Copy arrays into a module's state."""
    module.load_state_dict({name: torch.as_tensor(value) for name, value in arrays.items()})


def predictor_of(module: nn.Module) -> Callable[..., NDArray[Any]]:
    """Return the call of a module on the CPU that has no numpy counterpart, from arrays to an array."""

    def predict(*inputs: Any) -> NDArray[Any]:
        compute_alone_if_forked()
        with torch.inference_mode():
            rows: Tensor = module(*(torch.from_numpy(own) if isinstance(own, np.ndarray) else own for own in inputs))
            return rows.numpy()

    return predict


def finish_update(modules: Mapping[int, nn.Module], optimizer: Optimizer, step_together: StepTogether) -> None:
    """Update parameters by their gradients, and remove the gradients. modules: By the ids of their shims."""
    learning = [
        ((owner, name), part)
        for owner, module in modules.items()
        for name, part in module.named_parameters()
        if part.grad is not None
    ]
    if not learning:
        return
    device, done = learning[0][1].device, set[tuple[int, str]]()
    if device.type != "cpu":  # on the CPU, Thinc's own kernels are quicker
        with one_host_thread(device):
            done = step_together(optimizer, learning)
    for key, parameter in learning:
        gradient = cast(Tensor, parameter.grad)
        if key in done:
            pass
        elif gradient.is_sparse:
            apply_row_gradient(optimizer, key, parameter.data, gradient.coalesce())
        else:
            weights, _ = optimizer(key, _floats(parameter.data), _floats(gradient))
            _write_back(parameter, weights)
        parameter.grad = None


@contextlib.contextmanager
def use_params(module: nn.Module, shim_id: int, params: Mapping[Any, FloatsXd]) -> Iterator[None]:
    """Use other weights, such as averages, inside the context."""
    own = {name: params[shim_id, name] for name, _ in module.named_parameters() if (shim_id, name) in params}
    backup = {name: value.clone() for name, value in module.state_dict().items() if name in own}
    try:
        _load(module, {name: xp2torch(value, device=device_of(module)) for name, value in own.items()})
        yield
    finally:
        _load(module, backup)


def _load(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    if state:
        module.load_state_dict({**module.state_dict(), **state})


def _floats(tensor: Tensor) -> FloatsXd:
    return cast(FloatsXd, torch2xp(tensor))


def _write_back(parameter: nn.Parameter, weights: FloatsXd) -> None:
    updated = xp2torch(weights, device=parameter.device)
    if updated.data_ptr() != parameter.data.data_ptr():
        parameter.data.copy_(updated)


def join(ops: Ops, arrays: Sequence[Floats2d], device: torch.device) -> Tensor:
    """Join the arrays of a batch as one tensor."""
    return xp2torch(join_rows(ops, arrays), device=device).to(torch.float32)


def split(ops: Ops, tensor: Tensor, lengths: Sequence[int]) -> list[Floats2d]:
    """Split a tensor into one array per text: views, not copies."""
    return split_rows(cast(Floats2d, torch2xp(tensor.detach(), ops=ops)), lengths)
