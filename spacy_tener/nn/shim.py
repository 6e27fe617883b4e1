"""Torch modules in Thinc models: built when their sizes are known, saved as data, and predicting without torch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from numpy.typing import DTypeLike, NDArray
from spacy.tokens import Doc
from thinc.api import Model, Ops, Optimizer, get_current_ops, get_torch_default_device, torch2xp, xp2torch
from thinc.shims import Shim
from thinc.types import Floats2d, FloatsXd
from thinc.util import is_cupy_array

from ..errors import RemedyError, check_package, install
from .layers_numpy import Weights, WeightsError
from .serialize import from_safetensors, to_safetensors

if TYPE_CHECKING:
    import torch
    from torch import nn

    from .layers_torch import Penalty

EmbedModel = Model[list[Doc], list[Floats2d]]
RaggedModel = Model[list[Floats2d], list[Floats2d]]
Arrays = Mapping[str, NDArray[Any]]
Build = Callable[..., "nn.Module"]
Predict = Callable[..., NDArray[Any]]
MakePredictor = Callable[[Weights], Predict]

_HOST_OPS = {"numpy", "apple"}


class TorchShim(Shim):
    """Thinc shim of a torch module, which is built when its sizes are known, can grow, and has a form in NumPy.

    Weights are loaded as arrays by name. For training or a GPU, the module is built from them; from then on it owns
    them. The predictor, the module's form in NumPy, is made from the present weights when it is needed. Weights are
    saved as safetensors, with the sizes, so that a model file can never run code.

    Gradients of embedding tables are sparse: only rows in use are updated. The module stays in evaluation mode except
    in a training step, so that prediction need not switch its submodules.

    build (Callable): Builds the module from its sizes, given as keyword arguments: a module-level function or a
        `functools.partial` of one, so that a pipeline can be pickled.
    make_predictor (Callable): Builds the predictor from the weights; likewise picklable. None for a module that only
        torch can run.
    saved_as (DTypeLike): The dtype of saved weights; None for their own.
    """

    def __init__(
        self, build: Build, make_predictor: MakePredictor | None = None, saved_as: DTypeLike | None = None
    ) -> None:
        super().__init__(None)
        self.sizes: dict[str, Any] = {}
        self._build = build
        self._make_predictor = make_predictor
        self._saved_as = saved_as
        self._arrays: Arrays | None = None
        self._predictor: Predict | None = None

    @property
    def is_built(self) -> bool:
        """True if there are weights."""
        return self._model is not None or self._arrays is not None

    @property
    def module(self) -> Any:
        """The torch module, built from the weights when it is first needed. Call `clear_predictor` after changing its
        weights."""
        if self._model is None:
            self._model, self._arrays = self._build_module(self.weights, self.sizes), None
            self._predictor = None
        return self._model

    @property
    def weights(self) -> Arrays:
        """The weights by name: views of the module's memory if it is on the CPU, otherwise copies."""
        if self._model is not None:
            return {name: value.cpu().numpy() for name, value in self._model.state_dict().items()}
        if self._arrays is None:
            raise ValueError(
                "The torch part of this model has no weights yet. Call nlp.initialize() (or component.initialize()) "
                "before predicting or training, or load a trained pipeline with spacy.load()."
            )
        return self._arrays

    @property
    def device(self) -> torch.device:
        """The device of the torch module."""
        return cast("torch.device", next(self.module.parameters()).device)

    def predicts_with_numpy(self, ops: Ops) -> bool:
        """Return True if predictions need no torch: on the CPU, by a module with a form in NumPy."""
        if self._make_predictor is None or ops.name not in _HOST_OPS:
            return False
        return self._model is None or self.device.type == "cpu"

    def predictor(self) -> Predict:
        """Return the module's form in NumPy, with its present weights."""
        if self._predictor is None:
            if self._make_predictor is None:
                remedy = "Predict with torch, or train the architecture without its variant."
                raise RemedyError("A part of the model runs in torch alone, and is not exported", remedy)
            self._predictor = self._make_predictor(Weights(self.weights))
        return self._predictor

    def clear_predictor(self) -> None:
        """Make the predictor again when it is next needed, since the module's weights have changed."""
        self._predictor = None

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
        require_torch()
        self.set_module(self._build(**sizes).to(get_torch_default_device()), sizes)

    def _build_module(self, arrays: Arrays, sizes: Mapping[str, Any]) -> nn.Module:
        """Build a module with these weights, on Thinc's default device, in evaluation mode."""
        require_torch()
        import torch

        module = self._build(**sizes)
        try:
            module.load_state_dict({name: torch.as_tensor(array) for name, array in arrays.items()})
        except RuntimeError as error:
            raise WeightsError(f"The weights do not fit the settings: {error}") from error
        return module.to(get_torch_default_device()).eval()

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
            module = self._build_module(arrays, sizes)
        self._renew_id()
        self.sizes = dict(sizes)
        self._model, self._predictor = module, None if module else predictor
        self._arrays = arrays if arrays and module is None else None

    def finish_update(self, optimizer: Optimizer) -> None:
        """Update parameters by their gradients, and remove the gradients."""
        parameters = [] if self._model is None else self._model.named_parameters()
        with_gradient = {(self.id, name): weight for name, weight in parameters if weight.grad is not None}
        if with_gradient:
            from .devices_torch import host_threads, threads_for_updates

            with host_threads(threads_for_updates()):
                _update(optimizer, with_gradient)
        self.clear_predictor()

    @contextlib.contextmanager
    def use_params(self, params: Mapping[Any, FloatsXd]) -> Iterator[None]:
        """Use other weights, such as averages, inside the context."""
        # Averages of parameters exist only if the module was trained, and so was built.
        parameters = {} if self._model is None else dict(self._model.named_parameters())
        parameters = {name: weight for name, weight in parameters.items() if (self.id, name) in params}
        backups = {name: weight.detach().clone() for name, weight in parameters.items()}
        try:
            for name, weight in parameters.items():
                weight.data.copy_(xp2torch(params[self.id, name], device=weight.device))
            self.clear_predictor()
            yield
        finally:
            for name, weight in parameters.items():
                weight.data.copy_(backups[name])
            self.clear_predictor()

    def to_device(self, device_type: str, device_id: int) -> None:
        if device_type == "gpu" and self.is_built:
            self.module.cuda(device_id)
        elif self._model is not None:
            self._model.cpu()
        self.clear_predictor()

    def to_bytes(self) -> bytes:
        files = {name: size for name, size in self.sizes.items() if isinstance(size, bytes)}
        sizes = {name: size for name, size in self.sizes.items() if name not in files}
        weights = self.weights if self.is_built else {}
        arrays = {name: array.astype(self._saved_as or array.dtype, copy=False) for name, array in weights.items()}
        return to_safetensors({"sizes": sizes, **files, **arrays})

    def from_bytes(self, data: bytes) -> TorchShim:
        parts = from_safetensors(data)
        sizes = {**parts.pop("sizes"), **{name: part for name, part in parts.items() if isinstance(part, bytes)}}
        self.load_arrays({name: part for name, part in parts.items() if name not in sizes}, sizes)
        return self


def _update(optimizer: Optimizer, parameters: Mapping[tuple[int, str], nn.Parameter]) -> None:
    """Update parameters of a module by their gradients, and remove the gradients."""
    from ..optim.updates_torch import apply_row_gradient, is_adam, step_together

    # Arrays of Apple's GPU are copies on the host, which the optimizer keeps.
    at_once = is_adam(optimizer) and is_cupy_array(_floats(next(iter(parameters.values())).data))
    dense: dict[tuple[int, str], torch.Tensor] = {}
    for key, parameter in parameters.items():
        gradient = cast("torch.Tensor", parameter.grad)
        if gradient.is_sparse:
            apply_row_gradient(optimizer, key, parameter.data, gradient.coalesce())
        elif at_once and parameter.numel():
            dense[key] = gradient
        else:
            weights, _ = optimizer(key, _floats(parameter.data), _floats(gradient))
            updated = xp2torch(weights, device=parameter.device)
            if updated.data_ptr() != parameter.data.data_ptr():
                parameter.data.copy_(updated)
    if dense:
        step_together(optimizer, list(dense), [parameters[key].data for key in dense], list(dense.values()))
    for parameter in parameters.values():
        parameter.grad = None


def _floats(tensor: Any) -> FloatsXd:
    return cast(FloatsXd, torch2xp(tensor))


def require_torch() -> None:
    """Raise if torch is not installed."""
    remedy = f"{install('torch')}. Other trained pipelines do not need it."
    check_package("torch", "Training, a GPU, and pipelines with a transformer need", remedy)


def torch_shim(model: Model[Any, Any]) -> TorchShim:
    """Return the `TorchShim` of a layer."""
    return cast(TorchShim, model.shims[0])


def torch_shims(model: Model[Any, Any]) -> list[TorchShim]:
    """Return all `TorchShim`s of a model."""
    return [shim for node in model.walk() for shim in node.shims if isinstance(shim, TorchShim)]


def penalties(shims: Sequence[TorchShim]) -> list[Penalty]:
    """Return the penalties that layers of a trained model add to the loss."""
    from .layers_torch import Penalty

    modules = (part for shim in shims if shim.is_built for part in shim.module.modules())
    return [module for module in modules if isinstance(module, Penalty)]


def forget_gradients(model: Model[Any, Any]) -> None:
    """Remove all gradients that a step has accumulated, and what its penalties recorded."""
    for node in model.walk():
        for name in node.grad_names:
            node.set_grad(name, node.ops.xp.zeros_like(node.get_grad(name)))
        for shim in node.shims:
            module = shim.module if isinstance(shim, TorchShim) else shim._model
            if hasattr(module, "zero_grad"):
                module.zero_grad()
    for penalty in penalties(torch_shims(model)):
        penalty.pop_value()
