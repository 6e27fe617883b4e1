"""An emulated GPU: tensors and arrays whose memory is separate from the host's, on machines without a GPU.

Tensors on the emulated GPU have the device `meta`, with values in host memory. All operations are computed on the host.
Operations that mix memory of the GPU and the host raise an error, as on a real GPU.

Thinc's arrays are either on the emulated GPU, like CuPy arrays, which raise an error when they are converted to NumPy
implicitly; or they are NumPy arrays, as on Apple's GPUs.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import thinc.backends
import thinc.util
import torch
from numpy.lib.mixins import NDArrayOperatorsMixin
from thinc.api import MPSOps, get_current_ops, set_current_ops, torch2xp, xp2torch
from thinc.backends.ops import Ops
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

# Imported before the emulation replaces their functions.
from spacy_tener.nn import backend_torch  # noqa: F401
from spacy_tener.optim import updates_torch  # noqa: F401

DEVICE = torch.device("meta")

# Views that mark a tensor as conjugated or negated. At the level of the emulation the marks are ignored, so the result
# is computed instead.
MARKED = {torch.ops.aten._conj.default: torch.conj_physical, torch.ops.aten._neg_view.default: torch.neg}


class DeviceTensor(Tensor):
    """A tensor on the emulated GPU. Only the emulation accesses its values, the host tensor `held`."""

    held: Tensor

    @staticmethod
    def __new__(cls, values: Tensor) -> DeviceTensor:
        sparse = values.layout != torch.strided
        tensor: DeviceTensor = Tensor._make_wrapper_subclass(
            cls,
            values.size(),
            strides=None if sparse else values.stride(),
            storage_offset=None if sparse else values.storage_offset(),
            dtype=values.dtype,
            layout=values.layout,
            device=DEVICE,
        )
        tensor.held = values
        return tensor

    def data_ptr(self) -> int:
        return self.held.data_ptr()

    def __repr__(self) -> str:  # type: ignore[override]
        return f"DeviceTensor({self.held!r})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class _Operations(TorchDispatchMode):
    """Intercepts all operations, including those that create tensors on the emulated GPU and have no tensor as an
    argument."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


def _constructor(construct: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Wrap `torch.tensor`, which would discard the values of `meta` tensors before `_Operations` is called."""

    def constructed(data: Any, *, device: Any = None, **kwargs: Any) -> Tensor:
        tensor = construct(data, **kwargs)
        return tensor if device is None else tensor.to(device)

    return constructed


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Compute an operation of the emulated GPU on the host."""
    name = func._schema.name.split("::")[1]
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    on_device = [tensor for tensor in tensors if isinstance(tensor, DeviceTensor)]
    target = torch.device(kwargs["device"]) if kwargs.get("device") is not None else None
    if any(tensor.device == DEVICE and not isinstance(tensor, DeviceTensor) for tensor in tensors):
        raise AssertionError(f"{name}: torch has made a tensor on the device by itself, from a list as an index")
    if not on_device and target != DEVICE:
        return func(*args, **kwargs)
    on_host = [tensor for tensor in tensors if not isinstance(tensor, DeviceTensor) and tensor.dim()]
    is_copy = name in {"_to_copy", "copy_"}
    to_host = (target is not None and target != DEVICE) or (name == "copy_" and args[0] not in on_device)
    if on_host and not is_copy:
        raise RuntimeError(f"{name}: expected all tensors to be on the same device")
    wrappers: dict[int, Tensor] = {id(tensor.held): tensor for tensor in on_device}
    if target is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    result = MARKED.get(func, func)(*tree_map(_held, args), **tree_map(_held, kwargs))
    if to_host or not isinstance(result, Tensor | tuple | list):
        return result
    # Operations that work in place return the same tensor object that they received.
    return tree_map(lambda x: _wrapped(x, wrappers), result)


def _wrapped(x: Any, wrappers: dict[int, Tensor]) -> Any:
    if not isinstance(x, Tensor):
        return x
    return wrappers[id(x)] if id(x) in wrappers else DeviceTensor(x)


def _held(x: Any) -> Any:
    return x.held if isinstance(x, DeviceTensor | DeviceArray) else x


class DeviceArray(NDArrayOperatorsMixin):
    """An array on the emulated GPU. Like CuPy arrays, it cannot be mixed with NumPy arrays or converted implicitly."""

    def __init__(self, values: np.ndarray[Any, Any]) -> None:
        self.held = values

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in {"held", "toDlpack", "numpy"}:
            raise AttributeError(name)
        found = getattr(self.held, name)
        return _computing(found) if callable(found) else _on_device(found)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Use `.get()`.")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return _computing(getattr(ufunc, method))(*inputs, **kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _computing(function)(*args, **kwargs)

    def __len__(self) -> int:
        return len(self.held)

    def __getitem__(self, index: Any) -> Any:
        if any(isinstance(part, DeviceArray) for part in tree_leaves(index)):
            return _computing(self.held.__getitem__)(index)
        _refuse_numpy(index)
        # As in CuPy, scalars are arrays without dimensions.
        return DeviceArray(np.asarray(self.held[index]))

    def __setitem__(self, index: Any, value: Any) -> None:
        _computing(self.held.__setitem__)(index, value)

    def __float__(self) -> float:
        return float(self.get())

    def __bool__(self) -> bool:
        return bool(self.get())

    def get(self) -> np.ndarray[Any, Any]:
        return self.held.copy()


def _refuse_numpy(arguments: Any) -> None:
    if any(isinstance(leaf, np.ndarray) for leaf in tree_leaves(arguments)):
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")


def _computing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a NumPy function so that it takes and returns arrays on the emulated GPU."""

    def compute(*args: Any, **kwargs: Any) -> Any:
        _refuse_numpy((args, kwargs))
        result = function(*tree_map(_held, args), **tree_map(_held, kwargs))
        leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, DeviceArray)]
        in_place = [array for array in leaves if array.held is result]
        return in_place[0] if in_place else tree_map(_on_device, result)

    return compute


def _on_device(x: Any) -> Any:
    return DeviceArray(np.asarray(x)) if isinstance(x, np.ndarray | np.generic) else x


class _ArrayModule:
    """A replacement for the module `cupy` in Thinc: NumPy's functions for arrays on the emulated GPU."""

    ndarray = DeviceArray
    linalg = SimpleNamespace(norm=_computing(np.linalg.norm))

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        if not callable(found) or isinstance(found, type):
            return found
        return _computing(found)

    @staticmethod
    def array(data: Any, dtype: Any = None) -> DeviceArray:
        """Copy an array from the host or on the emulated GPU."""
        return DeviceArray(np.array(_held(data), dtype=dtype))

    @staticmethod
    def asarray(data: Any, dtype: Any = None) -> DeviceArray:
        return (
            data if isinstance(data, DeviceArray) and dtype in (None, data.dtype) else _ArrayModule.array(data, dtype)
        )


XP = _ArrayModule()


class DeviceOps(Ops):
    """Thinc's operations for arrays on the emulated GPU."""

    name = "cupy"
    xp = XP
    device_type = "gpu"

    def to_numpy(self, data: Any, *, byte_order: Any = None) -> Any:
        return data.get() if isinstance(data, DeviceArray) else data

    def asarray(self, data: Any, *, dtype: Any = None) -> Any:
        return XP.asarray(data, dtype)

    def adam(self, weights: Any, gradient: Any, mom1: Any, mom2: Any, *settings: Any) -> Any:
        arrays = weights, gradient, mom1, mom2
        for array in arrays:
            assert isinstance(array, DeviceArray), f"Adam on the device got {type(array)}"
        thinc.backends.NumpyOps().adam(*(array.held for array in arrays), *settings)
        return arrays

    def clip_gradient(self, gradient: Any, threshold: float) -> Any:
        """Clip a gradient without copying its norm to the host, as in CupyOps."""
        norm = self.xp.maximum(self.xp.linalg.norm(gradient), 1e-12)
        gradient *= self.xp.minimum(threshold, norm) / norm
        return gradient


def _torch2xp(tensor: Tensor, *, ops: Any = None, host_arrays: bool) -> Any:
    if host_arrays or not isinstance(tensor, DeviceTensor):
        return torch2xp(tensor.cpu() if isinstance(tensor, DeviceTensor) else tensor, ops=ops)
    return DeviceArray(tensor.detach().held.numpy())  # type: ignore[attr-defined]


def _xp2torch(array: Any, requires_grad: bool = False, device: torch.device | None = None) -> Tensor:
    if not isinstance(array, DeviceArray):
        return xp2torch(array, requires_grad=requires_grad, device=device or _default_device())
    tensor: Tensor = DeviceTensor(torch.from_numpy(array.held)).to(device or _default_device())
    return tensor.requires_grad_() if requires_grad else tensor


def _require_gpu(gpu_id: int = 0) -> bool:
    """Use the emulated GPU in this thread. In Thinc and CuPy, the current device is local to a thread."""
    if not isinstance(get_current_ops(), DeviceOps | MPSOps):
        set_current_ops(DeviceOps())
        # The main thread already has this mode, and would keep it after the emulation ends.
        if threading.current_thread() is not threading.main_thread():
            _Operations().__enter__()
    return True


def _default_device() -> torch.device:
    on_device = isinstance(get_current_ops(), DeviceOps | MPSOps)
    return DEVICE if on_device else torch.device("cpu")


@contextlib.contextmanager
def emulated_device(*, host_arrays: bool = False) -> Iterator[None]:
    """Use the emulated GPU in this block, as after `spacy.require_gpu()`.

    host_arrays: Whether Thinc's arrays stay on the host, as on Apple's GPUs.
    """
    substitutes: dict[Any, Any] = {
        thinc.util.get_torch_default_device: _default_device,
        torch2xp: partial(_torch2xp, host_arrays=host_arrays),
        xp2torch: _xp2torch,
        thinc.util.require_gpu: _require_gpu,
        thinc.util.gpu_is_available: lambda: True,
    }
    before = get_current_ops()
    with _replaced(substitutes), contextlib.ExitStack() as stack:
        stack.callback(set_current_ops, before)
        set_current_ops(MPSOps() if host_arrays else DeviceOps())
        for module, name, value in [
            (thinc.util, "cupy", XP),
            (thinc.util, "has_cupy", True),
            (thinc.backends, "CupyOps", DeviceOps),
            (torch, "autocast", _autocast),
            (torch, "tensor", _constructor(torch.tensor)),
            (torch, "as_tensor", _constructor(torch.as_tensor)),
            # Views of tensor subclasses cannot be created in inference mode.
            (torch, "inference_mode", lambda mode=True: torch.set_grad_enabled(torch.is_grad_enabled() and not mode)),
        ]:
            stack.callback(setattr, module, name, getattr(module, name))
            setattr(module, name, value)
        stack.enter_context(_Operations())
        yield


_real_autocast = torch.autocast


def _autocast(device_type: str, *args: Any, **kwargs: Any) -> Any:
    """torch does not support mixed precision on the device `meta`."""
    return contextlib.nullcontext() if device_type == DEVICE.type else _real_autocast(device_type, *args, **kwargs)


@contextlib.contextmanager
def _replaced(substitutes: dict[Any, Any]) -> Iterator[None]:
    """Replace objects in all modules of Thinc, spaCy and this package that import them by name."""
    modules = [
        module
        for name, module in list(sys.modules.items())
        if name.split(".")[0] in {"spacy_tener", "thinc", "spacy"} and module is not None
    ]
    places = [
        (module, name, value)
        for module in modules
        for name, value in list(vars(module).items())
        if any(value is original for original in substitutes)
    ]
    for module, name, value in places:
        setattr(module, name, substitutes[value])
    try:
        yield
    finally:
        for module, name, value in places:
            setattr(module, name, value)
