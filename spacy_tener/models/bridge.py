"""Torch modules in Thinc models: built when their sizes are known, saved as data, and predicting without torch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from numpy.typing import NDArray
from spacy.tokens import Doc
from thinc.api import Model, Ops, Optimizer, get_current_ops
from thinc.shims import Shim
from thinc.types import Floats2d, FloatsXd

from ..errors import check_package, install
from ..runtime.weights import Weights
from .serialize import from_safetensors, to_safetensors

if TYPE_CHECKING:
    import torch
    from torch import nn

    from ..layers.selection import Penalty

EmbedModel = Model[list[Doc], list[Floats2d]]
RaggedModel = Model[list[Floats2d], list[Floats2d]]
Arrays = Mapping[str, NDArray[Any]]
Build = Callable[..., "nn.Module"]
Predict = Callable[..., NDArray[Any]]
MakePredictor = Callable[[Weights], Predict]

_HOST_OPS = {"numpy", "apple"}


class TorchShim(Shim):
    """Thinc shim of a torch module that is built when its sizes are known, can grow, and predicts on the CPU without
    torch.

    Weights are loaded as arrays by name. For training or a GPU, the module is built from them; from then on it owns
    them, and numpy predictions read the module's memory. They are saved as safetensors, with the sizes, so that a model
    file can never run code.

    Gradients of embedding tables are sparse: only rows in use are updated. The module stays in evaluation mode except
    in a training step, so that prediction need not switch its submodules.

    build: Builds the module from its sizes, given as keyword arguments. It must be a module-level function or a
        `functools.partial` of one, so that a pipeline can be pickled.
    make_predictor: Builds the numpy counterpart from the weights; likewise picklable. None for a module that only torch
        can run.
    """

    def __init__(self, build: Build, make_predictor: MakePredictor | None = None) -> None:
        super().__init__(None)
        self.sizes: dict[str, Any] = {}
        self._build = build
        self._make_predictor = make_predictor
        self._arrays: Arrays | None = None
        self._predictor: Predict | None = None
        self._step_together: Any = None

    @property
    def is_built(self) -> bool:
        """True if there are weights."""
        return self._model is not None or self._arrays is not None

    @property
    def module(self) -> Any:
        """The torch module, built from the weights when it is first needed."""
        if self._model is None:
            self._model, self._arrays = self._build_of(self.weights, self.sizes), None
        # Whoever asks for the module may change its weights.
        self._predictor = None
        return self._model

    @property
    def weights(self) -> Arrays:
        """The weights by name: views of the module's memory if it is on the CPU, otherwise copies."""
        if self._model is not None:
            return cast(Arrays, torch_side().arrays_of(self._model))
        if self._arrays is None:
            raise ValueError(
                "The torch part of this model has no weights yet. Call nlp.initialize() (or component.initialize()) "
                "before predicting or training, or load a trained pipeline with spacy.load()."
            )
        return self._arrays

    @property
    def device(self) -> torch.device:
        """The device of the torch module."""
        return cast("torch.device", torch_side().device_of(self._model or self.module))

    def predicts_on_host(self, ops: Ops) -> bool:
        """Return True if predictions are made on the CPU, from arrays of numpy."""
        return ops.name in _HOST_OPS and (self._model is None or self.device.type == "cpu")

    def predictor(self) -> Predict:
        """Return the numpy counterpart of the module with its present weights; without one, the module's call."""
        if self._predictor is None:
            if self._make_predictor is None:
                self._predictor = torch_side().predictor_of(self.module)
            else:
                self._predictor = self._make_predictor(Weights(self.weights))
        return self._predictor

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_predictor": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Finish a copy: deep, shallow or unpickled."""
        self.__dict__.update(state)
        self._renew_id()

    def _renew_id(self) -> None:
        # Optimizers find a parameter's momentum and average by this id. A copy, or a module of other shapes, must not
        # get those of the original.
        with Shim.global_id_lock:
            Shim.global_id += 1
            self.id = Shim.global_id

    def build(self, **sizes: Any) -> None:
        """Build the module with initial weights, on Thinc's default device."""
        side = torch_side()
        self.set_module(side.to_default_device(self._build(**sizes)), sizes)

    def _build_of(self, arrays: Arrays, sizes: Mapping[str, Any]) -> nn.Module:
        """Build a module with these weights, on Thinc's default device, in evaluation mode."""
        side = torch_side()
        module = self._build(**sizes)
        side.load_arrays(module, arrays)
        return cast("nn.Module", side.to_default_device(module).eval())

    def set_module(self, module: nn.Module, sizes: Mapping[str, Any]) -> None:
        """Replace the module by one of the given sizes, such as a grown one. It stays on its device."""
        if module is not self._model:
            self._renew_id()
        self.sizes = dict(sizes)
        self._model, self._arrays, self._predictor = module.eval(), None, None

    def load_arrays(self, arrays: Arrays, sizes: Mapping[str, Any]) -> None:
        """Replace weights and sizes. Without arrays the shim has no weights."""
        module = predictor = None
        if arrays and self._make_predictor is not None:
            weights = Weights(arrays)
            predictor = self._make_predictor(weights)
            weights.check_all_used()
        if arrays and (predictor is None or get_current_ops().name not in _HOST_OPS):
            module = self._build_of(arrays, sizes)
        self._renew_id()
        self.sizes = dict(sizes)
        self._model, self._predictor = module, None if module else predictor
        self._arrays = arrays if arrays and module is None else None

    def finish_update(self, optimizer: Optimizer) -> None:
        finish_updates([self], optimizer)

    @contextlib.contextmanager
    def use_params(self, params: Mapping[Any, FloatsXd]) -> Iterator[None]:
        # Averages of parameters exist only if the module was trained, and so was built.
        if self._model is None:
            yield
        else:
            with torch_side().use_params(self.module, self.id, params):
                yield
            self._predictor = None

    def to_device(self, device_type: str, device_id: int) -> None:
        if device_type == "gpu" and self.is_built:
            self.module.cuda(device_id)
        elif self._model is not None:
            self._model.cpu()

    def to_bytes(self) -> bytes:
        files = {name: size for name, size in self.sizes.items() if isinstance(size, bytes)}
        sizes = {name: size for name, size in self.sizes.items() if name not in files}
        return to_safetensors({"sizes": sizes, **files, **(self.weights if self.is_built else {})})

    def from_bytes(self, data: bytes) -> TorchShim:
        parts = from_safetensors(data)
        sizes = {**parts.pop("sizes"), **{name: part for name, part in parts.items() if isinstance(part, bytes)}}
        self.load_arrays({name: part for name, part in parts.items() if name not in sizes}, sizes)
        return self


def finish_updates(shims: Sequence[TorchShim], optimizer: Optimizer) -> None:
    """Update several modules by their gradients: on a GPU, with as many kernel launches as for one module."""
    modules = {shim.id: shim.module for shim in shims if shim._model is not None}
    if modules:
        side, first = torch_side(), shims[0]
        first._step_together = first._step_together or side.StepTogether()
        side.finish_update(modules, optimizer, first._step_together)


def require_torch() -> None:
    """Raise if torch is not installed."""
    remedy = f"{install('torch')}. Other trained pipelines do not need it."
    check_package("torch", "Training, a GPU, and pipelines with a transformer need", remedy)


def torch_side() -> ModuleType:
    """Import and return the module `torch_side`, which needs torch."""
    require_torch()
    from . import torch_side

    return torch_side


def torch_shim(model: Model[Any, Any]) -> TorchShim:
    """Return the `TorchShim` of a layer."""
    return cast(TorchShim, model.shims[0])


def torch_shims(model: Model[Any, Any]) -> list[TorchShim]:
    """Return all `TorchShim`s of a model."""
    return [shim for node in model.walk() for shim in node.shims if isinstance(shim, TorchShim)]


def penalties(model: Model[Any, Any]) -> list[Penalty]:
    """Return the penalties that layers of a trained model add to the loss."""
    from ..layers.selection import Penalty

    shims = (shim for shim in torch_shims(model) if shim.is_built)
    return [part for shim in shims for part in shim.module.modules() if isinstance(part, Penalty)]


def forget_gradients(model: Model[Any, Any]) -> None:
    """Remove all gradients that a step has accumulated, and what its penalties recorded."""
    for node in model.walk():
        for name in node.grad_names:
            node.set_grad(name, node.ops.xp.zeros_like(node.get_grad(name)))
        for shim in node.shims:
            module = shim.module if isinstance(shim, TorchShim) else shim._model
            if hasattr(module, "zero_grad"):
                module.zero_grad()
    for term in penalties(model):
        term.take()
