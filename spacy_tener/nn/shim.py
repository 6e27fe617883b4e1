"""`TorchShim`, which connects a torch module and its NumPy implementation with a Thinc model.

Thinc's own `PyTorchShim` needs torch, and saves modules with pickle. `TorchShim` saves weights as safetensors, and
builds the torch module only for training or for a GPU.
"""

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

# Names of Thinc's ops that compute on the CPU.
_HOST_OPS = {"numpy", "apple"}


class TorchShim(Shim):
    """A Thinc shim with the weights of a torch module, the module, and its NumPy implementation (the predictor).

    Weights are loaded as NumPy arrays. For training or a GPU, the torch module is built from them. From then on, the
    module owns the weights, and the predictor is built anew from the module's weights if it is needed after an update.
    Weights are saved as safetensors, together with the sizes, so that loading a model never runs code.

    Gradients of embedding tables are sparse, so that only the rows of a batch are updated. The module is in evaluation
    mode except during a training step. So predictions don't have to switch the mode of its submodules.

    build (Callable): Function that builds the module, called with the sizes as keyword arguments. It must be picklable,
        as a function of a module, or a `functools.partial` of one, is.
    make_predictor (Callable): Function that builds the predictor from the `Weights`. It must be picklable, too. None if
        the module has no NumPy implementation.
    saved_as (DTypeLike): The dtype in which weights are saved. None for the dtype that they have.
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
        """Whether there are weights."""
        return self._model is not None or self._arrays is not None

    @property
    def module(self) -> Any:
        """The torch module, built on first access. If you change its weights, call `clear_predictor` afterwards."""
        if self._model is None:
            self._model, self._arrays = self._build_module(self.weights, self.sizes), None
            self._predictor = None
        return self._model

    @property
    def weights(self) -> Arrays:
        """The weights by name. If the module is on the CPU, they share its memory, otherwise they are copies."""
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
        """Return True if predictions don't need torch: on the CPU, if there is a NumPy implementation."""
        if self._make_predictor is None or ops.name not in _HOST_OPS:
            return False
        return self._model is None or self.device.type == "cpu"

    def predictor(self) -> Predict:
        """Return the NumPy implementation, with the current weights. Raise an error if there is none."""
        if self._predictor is None:
            if self._make_predictor is None:
                remedy = "Predict with torch, or train the architecture without its variant."
                raise RemedyError("A part of the model runs in torch alone, and is not exported", remedy)
            self._predictor = self._make_predictor(Weights(self.weights))
        return self._predictor

    def clear_predictor(self) -> None:
        """Let the predictor be built anew when it is needed next, since weights of the module have changed."""
        self._predictor = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_predictor": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a copy or an unpickled shim."""
        self.__dict__.update(state)
        self._renew_id()

    def _renew_id(self) -> None:
        """Give the shim a new id."""
        # Optimizers store the momentum and average of each parameter under this id. A copy, or a module with other
        # shapes, must not use the values of the original.
        with Shim.global_id_lock:
            Shim.global_id += 1
            self.id = Shim.global_id

    def build(self, **sizes: Any) -> None:
        """Build the module with initial weights, on Thinc's default device.

        sizes (Any): The arguments of the function `build`.
        """
        require_torch()
        self.set_module(self._build(**sizes).to(get_torch_default_device()), sizes)

    def _build_module(self, arrays: Arrays, sizes: Mapping[str, Any]) -> nn.Module:
        """Build a module with the given weights, on Thinc's default device and in evaluation mode."""
        require_torch()
        import torch

        module = self._build(**sizes)
        try:
            module.load_state_dict({name: torch.as_tensor(array) for name, array in arrays.items()})
        except RuntimeError as error:
            raise WeightsError(f"The weights do not fit the settings: {error}") from error
        return module.to(get_torch_default_device()).eval()

    def set_module(self, module: nn.Module, sizes: Mapping[str, Any]) -> None:
        """Replace the module, for example by one with more labels. It stays on its device.

        module (nn.Module): The new module.
        sizes (Mapping[str, Any]): The sizes of the new module.
        """
        if module is not self._model:
            self._renew_id()
        self.sizes = dict(sizes)
        self._model, self._arrays, self._predictor = module.eval(), None, None

    def load_arrays(self, arrays: Arrays, sizes: Mapping[str, Any]) -> None:
        """Replace weights and sizes.

        arrays (Arrays): The weights by name. Empty for a model that is not initialized.
        sizes (Mapping[str, Any]): The sizes.
        """
        # Either the predictor or the module is built right away, since this checks whether the weights fit the config.
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
        """Update the parameters of the module with their gradients, and delete the gradients."""
        parameters = [] if self._model is None else self._model.named_parameters()
        with_gradient = {(self.id, name): weight for name, weight in parameters if weight.grad is not None}
        if with_gradient:
            from .devices_torch import host_threads, threads_for_updates

            with host_threads(threads_for_updates()):
                _update(optimizer, with_gradient)
        self.clear_predictor()

    @contextlib.contextmanager
    def use_params(self, params: Mapping[Any, FloatsXd]) -> Iterator[None]:
        """Use other weights inside the context, such as averages.

        params (Mapping[Any, FloatsXd]): The weights, by the id of the shim and the name of the parameter.
        """
        # There are averages only if the module has been trained. So a module that has not been built has none.
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
        """Move the module to a GPU or to the CPU. A GPU needs the module, so it is built if there are only arrays."""
        if device_type == "gpu" and self.is_built:
            self.module.cuda(device_id)
        elif self._model is not None:
            self._model.cpu()
        self.clear_predictor()

    def to_bytes(self) -> bytes:
        """Return the sizes and weights as a safetensors file. Sizes that are bytes, such as a tokenizer, are stored as
        arrays.
        """
        files = {name: size for name, size in self.sizes.items() if isinstance(size, bytes)}
        sizes = {name: size for name, size in self.sizes.items() if name not in files}
        weights = self.weights if self.is_built else {}
        arrays = {name: array.astype(self._saved_as or array.dtype, copy=False) for name, array in weights.items()}
        return to_safetensors({"sizes": sizes, **files, **arrays})

    def from_bytes(self, data: bytes) -> TorchShim:
        """Load sizes and weights that `to_bytes` has saved."""
        parts = from_safetensors(data)
        sizes = {**parts.pop("sizes"), **{name: part for name, part in parts.items() if isinstance(part, bytes)}}
        self.load_arrays({name: part for name, part in parts.items() if name not in sizes}, sizes)
        return self


def _update(optimizer: Optimizer, parameters: Mapping[tuple[int, str], nn.Parameter]) -> None:
    """Update parameters with their gradients, and delete the gradients.

    Sparse gradients of embedding tables are applied row by row. On a GPU, Adam updates all other parameters together,
    which takes fewer kernel launches than one update for each parameter.

    optimizer (Optimizer): Thinc's optimizer.
    parameters (Mapping[tuple[int, str], nn.Parameter]): The parameters, by the optimizer's key.
    """
    from ..optim.updates_torch import apply_row_gradient, is_adam, step_together

    # Only CuPy arrays share their memory with the tensors. On Apple's GPU, Thinc's arrays are copies on the CPU.
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
    """Raise an error if torch is not installed."""
    remedy = f"{install('torch')}. Other trained pipelines do not need it."
    check_package("torch", "Training, a GPU, and pipelines with a transformer need", remedy)


def torch_shim(model: Model[Any, Any]) -> TorchShim:
    """Return the `TorchShim` of a layer."""
    return cast(TorchShim, model.shims[0])


def torch_shims(model: Model[Any, Any]) -> list[TorchShim]:
    """Return all `TorchShim`s of a model."""
    return [shim for node in model.walk() for shim in node.shims if isinstance(shim, TorchShim)]


def penalties(shims: Sequence[TorchShim]) -> list[Penalty]:
    """Return the penalties that the modules of a model add to the loss."""
    from .layers_torch import Penalty

    modules = (part for shim in shims if shim.is_built for part in shim.module.modules())
    return [module for module in modules if isinstance(module, Penalty)]


def forget_gradients(model: Model[Any, Any]) -> None:
    """Delete the gradients that a training step has accumulated, and the recorded values of penalties."""
    for node in model.walk():
        for name in node.grad_names:
            node.set_grad(name, node.ops.xp.zeros_like(node.get_grad(name)))
        for shim in node.shims:
            module = shim.module if isinstance(shim, TorchShim) else shim._model
            if hasattr(module, "zero_grad"):
                module.zero_grad()
    for penalty in penalties(torch_shims(model)):
        penalty.pop_value()
