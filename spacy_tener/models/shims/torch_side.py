"""What a model does with torch: learning, and predicting on a GPU. Only what does either imports this file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any, Protocol, cast

import torch
from numpy.typing import NDArray
from thinc.api import ArgsKwargs, Ops, Optimizer, get_torch_default_device, torch2xp, xp2torch
from thinc.types import Floats2d, FloatsXd
from torch import Tensor, nn

from ...layers.devices import on_device
from ...layers.selection import Penalty
from ...optim.updates import apply_row_gradient
from .batches import Indices, cut, flat


class Shim(Protocol):
    """What is needed of a `TorchShim`."""

    id: int

    @property
    def module(self) -> Any: ...

    def step_together(self, *given: Any) -> bool: ...

    def __call__(self, inputs: ArgsKwargs, is_train: bool) -> tuple[Any, Callable[..., Any]]: ...


_in_use = False
"""Whether this process, or the one that it was forked from, has made or run a module of a `TorchShim`."""


def note_use() -> None:
    global _in_use
    _in_use = True


def _limit_threads() -> None:
    """A forked worker, as of `nlp.pipe(n_process=2)`, does not have the threads that torch computed with in its parent,
    and would wait for them forever. Forks of a process that has no model of ours keep the number that they have."""
    if _in_use:
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_limit_threads)


def placed(module: nn.Module, device: torch.device | None) -> nn.Module:
    """The module where it computes, which is Thinc's default device if none is given, and in evaluation mode."""
    return module.to(device or get_torch_default_device()).eval()


def device_of(module: nn.Module) -> torch.device:
    return next(module.parameters()).device


def arrays_of(module: nn.Module) -> dict[str, NDArray[Any]]:
    """The module's state: views of it where it is on the CPU, copies elsewhere."""
    return {name: value.cpu().numpy() for name, value in module.state_dict().items()}


def load_arrays(module: nn.Module, arrays: Mapping[str, NDArray[Any]]) -> None:
    module.load_state_dict({name: torch.tensor(value) for name, value in arrays.items()})


def to_torch_bytes(module: nn.Module) -> bytes:
    file = BytesIO()
    torch.save({name: value.cpu() for name, value in module.state_dict().items()}, file)
    return file.getvalue()


def load_torch_bytes(module: nn.Module, state: bytes) -> None:
    module.load_state_dict(torch.load(BytesIO(state), map_location="cpu", weights_only=True))


def predict(module: nn.Module, inputs: ArgsKwargs) -> Any:
    with torch.inference_mode():
        return module(*inputs.args, **inputs.kwargs)


def begin_update(module: nn.Module, inputs: ArgsKwargs) -> tuple[Any, Callable[[ArgsKwargs], None]]:
    module.train()
    try:
        outputs = module(*inputs.args, **inputs.kwargs)
    finally:
        module.eval()

    def backprop(gradients: ArgsKwargs) -> None:
        torch.autograd.backward(*gradients.args, **gradients.kwargs)

    return outputs, backprop


def finish_update(shim: Shim, optimizer: Optimizer) -> None:
    learning = [(name, part) for name, part in shim.module.named_parameters() if part.grad is not None]
    dense = [(name, parameter) for name, parameter in learning if not cast(Tensor, parameter.grad).is_sparse]
    # On a CPU Thinc's own kernels are quicker.
    together = bool(dense) and not dense[0][1].is_cpu and shim.step_together(optimizer, shim.id, dense)
    for name, parameter in learning:
        gradient = cast(Tensor, parameter.grad)
        if gradient.is_sparse:
            apply_row_gradient(optimizer, (shim.id, name), parameter.data, gradient.coalesce())
        elif not together:
            weights, _ = optimizer((shim.id, name), _floats(parameter.data), _floats(gradient))
            _write_back(parameter, weights)
        parameter.grad = None


@contextlib.contextmanager
def use_params(shim: Shim, params: Mapping[Any, FloatsXd]) -> Iterator[None]:
    module: nn.Module = shim.module
    own = {name: params[shim.id, name] for name, _ in module.named_parameters() if (shim.id, name) in params}
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


def penalties(shims: Sequence[Shim]) -> list[Penalty]:
    """What the modules of a model add to the loss by themselves."""
    return [part for shim in shims for part in shim.module.modules() if isinstance(part, Penalty)]


def run(
    shim: Shim, ops: Ops, is_train: bool, lengths: Sequence[int], floats: Sequence[Floats2d], others: Sequence[Any]
) -> tuple[list[Floats2d], Callable[[list[Floats2d]], list[Floats2d]]]:
    """Call a shim's torch module: see `bridge.run_module`."""
    device = device_of(shim.module)
    inputs = [_to_device(rows, device).requires_grad_(is_train) for rows in floats]
    rest = [on_device(other.array, device) if isinstance(other, Indices) else other for other in others]
    outputs, backprop_torch = shim(ArgsKwargs(args=(*inputs, *rest), kwargs={}), is_train)

    def backprop(dY: list[Floats2d]) -> list[Floats2d]:
        if not is_train:
            raise ValueError("Cannot backpropagate through a prediction. Call begin_update() instead of predict().")
        # The module may have nothing to learn: where it is frozen, or where there are no tokens.
        if outputs.requires_grad:
            d_outputs = join(ops, dY, device)
            backprop_torch(ArgsKwargs(args=((outputs,),), kwargs={"grad_tensors": (d_outputs,)}))
        # Nor need it have used what there was none of, or what a setting leaves out.
        gradients = [torch.zeros_like(tensor) if tensor.grad is None else tensor.grad for tensor in inputs]
        return [_to_ops(ops, gradient) for gradient in gradients]

    return cut(_to_ops(ops, outputs), lengths), backprop


def _to_ops(ops: Ops, tensor: Tensor) -> Floats2d:
    return cast(Floats2d, torch2xp(tensor.detach(), ops=ops))


def _to_device(rows: Floats2d, device: torch.device) -> Tensor:
    return xp2torch(rows, device=device).to(torch.float32)


def join(ops: Ops, arrays: Sequence[Floats2d], device: torch.device) -> Tensor:
    """The arrays of a batch as one tensor."""
    return _to_device(flat(ops, arrays), device)


def split(ops: Ops, tensor: Tensor, lengths: Sequence[int]) -> list[Floats2d]:
    """A tensor as one array per text: views, not copies."""
    return cut(_to_ops(ops, tensor), lengths)
