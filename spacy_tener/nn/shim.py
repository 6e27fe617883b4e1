"""`TorchShim`, which connects a torch module with a Thinc model.

In contrast to Thinc's `PyTorchShim`, it saves weights as safetensors instead of pickle. It can also predict with a
NumPy implementation of the module, so that prediction doesn't require torch.
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

from ..errors import UserError, check_package, install
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

# Names of the Thinc `Ops` that compute on the CPU.
_HOST_OPS = {"numpy", "apple"}
# Name of the serialized keyword arguments of a module.
_SIZES = "sizes"


class TorchShim(Shim):
    """A Thinc shim for a torch module that can also predict with NumPy.

    The shim contains a torch module and a *predictor*, which is the module's NumPy implementation. The torch module is
    only built for training or for a GPU. The predictor is built for prediction on a CPU. It is rebuilt when the
    module's weights have changed.

    The torch module is in evaluation mode except during a training step. Gradients of embedding tables can be sparse.

    build (Callable): Function that returns the torch module, such as its class. It must be picklable.
    make_predictor (Callable | None): Function that returns the predictor for given `Weights`. It must be picklable.
        None if the module has no NumPy implementation.
    saved_as (DTypeLike | None): Dtype in which the weights are saved. None to keep their dtype.
    """

    def __init__(
        self, build: Build, make_predictor: MakePredictor | None = None, saved_as: DTypeLike | None = None
    ) -> None:
        super().__init__(None)
        # Keyword arguments of `build`, such as the number of labels. They are saved together with the weights.
        self.sizes: dict[str, Any] = {}
        self._build = build
        self._make_predictor = make_predictor
        self._saved_as = saved_as
        self._arrays: Arrays | None = None
        self._predictor: Predict | None = None

    @property
    def is_built(self) -> bool:
        """Whether the weights have been initialized or loaded."""
        return self._model is not None or self._arrays is not None

    @property
    def module(self) -> Any:
        """The torch module, which is built on first access.

        If you change its weights, call `clear_predictor` afterwards.
        """
        if self._model is None:
            self._model, self._arrays = self._build_module(self.weights, self.sizes), None
            self._predictor = None
        return self._model

    @property
    def weights(self) -> Arrays:
        """The weights by name, as NumPy arrays.

        If the torch module is on the CPU, the arrays share its memory. If it is on a GPU, the arrays are copies.
        """
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
        """The torch module's device."""
        return cast("torch.device", next(self.module.parameters()).device)

    def predicts_with_numpy(self, ops: Ops) -> bool:
        """Return True if the model can predict with NumPy.

        This requires that the model is on the CPU and that its module has a NumPy implementation.

        ops (Ops): The model's Thinc ops.
        """
        if self._make_predictor is None or ops.name not in _HOST_OPS:
            return False
        return self._model is None or self.device.type == "cpu"

    def predictor(self) -> Predict:
        """Return the NumPy implementation with the current weights. Raise an error if there is none."""
        if self._predictor is None:
            if self._make_predictor is None:
                fix = (
                    "Predict with torch. To export a model, train it with the layers of this package, and without "
                    "functions or classes of your own in their settings."
                )
                raise UserError("A layer of the model has no NumPy implementation, and cannot be exported", fix)
            self._predictor = self._make_predictor(Weights(self.weights))
        return self._predictor

    def clear_predictor(self) -> None:
        """Discard the predictor, so that it is rebuilt on next use.

        Call this method after you change the torch module's weights.
        """
        self._predictor = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_predictor": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a copied or unpickled shim, and give it a new id."""
        self.__dict__.update(state)
        self._renew_id()

    def _renew_id(self) -> None:
        """Give the shim a new id, so that optimizers treat its parameters as new ones."""
        # Optimizers store each parameter's momentum and moving average under the shim's id. A copy of the shim must not
        # share these values, and they don't fit a module with other shapes.
        with Shim.global_id_lock:
            Shim.global_id += 1
            self.id = Shim.global_id

    def build(self, **sizes: Any) -> None:
        """Build the module with initial weights on Thinc's default device.

        sizes (Any): Keyword arguments for the function that builds the module.
        """
        require_torch()
        self.set_module(self._build(**sizes).to(get_torch_default_device()), sizes)

    def _build_module(self, arrays: Arrays, sizes: Mapping[str, Any]) -> nn.Module:
        """Build a module with the given weights on Thinc's default device, in evaluation mode.

        Raise an error if names or shapes of the weights don't match the module.
        """
        require_torch()
        import torch

        module = self._build(**sizes)
        try:
            module.load_state_dict({name: torch.as_tensor(array) for name, array in arrays.items()})
        except RuntimeError as error:
            raise WeightsError(f"The weights do not match the model in the config: {error}") from error
        return module.to(get_torch_default_device()).eval()

    def set_module(self, module: nn.Module, sizes: Mapping[str, Any]) -> None:
        """Replace the module, for example after labels were added. The new module is not moved to another device.

        module (nn.Module): The new module.
        sizes (Mapping[str, Any]): Keyword arguments with which the new module was built.
        """
        # The weights and these values are saved in one file, in which each of them needs a different name.
        files = [name for name, size in sizes.items() if isinstance(size, bytes)]
        reserved = sorted({_SIZES} & {*files} | {_SIZES, *files} & {*module.state_dict()})
        if reserved:
            raise ValueError(
                f"Cannot save the module, because these names are reserved or used twice: {', '.join(reserved)}. "
                f"Rename the parameters or arguments. The name '{_SIZES}' is reserved, and a bytes argument must not "
                "have the same name as a parameter."
            )
        if module is not self._model:
            self._renew_id()
        self.sizes = dict(sizes)
        self._model, self._arrays, self._predictor = module.eval(), None, None

    def load_arrays(self, arrays: Arrays, sizes: Mapping[str, Any]) -> None:
        """Replace the current weights. Raise an error if the new weights don't match the module.

        arrays (Arrays): Weights by name. Empty if the model is not initialized.
        sizes (Mapping[str, Any]): Keyword arguments with which the module was built.
        """
        # Build the predictor or the module now instead of on first use. This detects weights that don't match the
        # config.
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
        """Update the module's parameters with their gradients, then delete the gradients.

        optimizer (Optimizer): A Thinc optimizer.
        """
        parameters = [] if self._model is None else self._model.named_parameters()
        with_gradient = {(self.id, name): weight for name, weight in parameters if weight.grad is not None}
        if with_gradient:
            from .devices_torch import host_threads, threads_for_updates

            with host_threads(threads_for_updates()):
                _update(optimizer, with_gradient)
        self.clear_predictor()

    @contextlib.contextmanager
    def use_params(self, params: Mapping[Any, FloatsXd]) -> Iterator[None]:
        """Temporarily replace parameters inside a `with` block, for example by their moving averages.

        params (Mapping[Any, FloatsXd]): The replacements. The key is a tuple with the shim's id and the parameter's
            name.
        """
        # A module that is not built was never trained, so `params` contains no averages of its parameters.
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
        """Move the module to a GPU or to the CPU. For a GPU, the module is built if necessary."""
        if device_type == "gpu" and self.is_built:
            self.module.cuda(device_id)
        elif self._model is not None:
            self._model.cpu()
        self.clear_predictor()

    def to_bytes(self) -> bytes:
        """Serialize the module's weights and keyword arguments as safetensors."""
        # JSON can't represent bytes, such as a tokenizer. They are stored in the same way as weights.
        files = {name: size for name, size in self.sizes.items() if isinstance(size, bytes)}
        sizes = {name: size for name, size in self.sizes.items() if name not in files}
        weights = self.weights if self.is_built else {}
        arrays = {name: array.astype(self._saved_as or array.dtype, copy=False) for name, array in weights.items()}
        return to_safetensors({_SIZES: sizes, **files, **arrays})

    def from_bytes(self, data: bytes) -> TorchShim:
        """Load the weights and keyword arguments that `to_bytes` serialized."""
        parts = from_safetensors(data)
        sizes = parts.pop(_SIZES)
        files = {name: part for name, part in parts.items() if isinstance(part, bytes)}
        self.load_arrays({name: part for name, part in parts.items() if name not in files}, sizes | files)
        return self


def _update(optimizer: Optimizer, parameters: Mapping[tuple[int, str], nn.Parameter]) -> None:
    """Update parameters with their gradients, then delete the gradients.

    A sparse gradient of an embedding table only updates the rows that occur in the gradient. On a CUDA GPU, Adam
    updates all other parameters at once, which requires fewer kernel launches than separate updates.

    optimizer (Optimizer): A Thinc optimizer.
    parameters (Mapping[tuple[int, str], nn.Parameter]): The parameters. The key consists of the shim's id and the
        parameter's name.
    """
    from ..optim.updates_torch import apply_row_gradient, is_adam, step_together

    # `step_together` requires that the optimizer's arrays share memory with the tensors. CuPy arrays do. On an Apple
    # GPU, Thinc copies the tensors to the CPU.
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
            # Some optimizers return a new array instead of updating the parameter in place.
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
    """Raise an error with installation instructions if torch is not installed."""
    fix = f"To install it, run {install('torch')}. Other trained pipelines predict on the CPU without torch."
    check_package("torch", "Training, prediction on a GPU, and pipelines with a transformer require", fix)


def torch_shim(model: Model[Any, Any]) -> TorchShim:
    """Return the `TorchShim` of a Thinc layer."""
    return cast(TorchShim, model.shims[0])


def torch_shims(model: Model[Any, Any]) -> list[TorchShim]:
    """Return the `TorchShim` objects of all layers in a model."""
    return [shim for node in model.walk() for shim in node.shims if isinstance(shim, TorchShim)]


def penalties(shims: Sequence[TorchShim]) -> list[Penalty]:
    """Return all `Penalty` modules in the given shims.

    A `Penalty` module adds a regularization term to the loss.
    """
    from .layers_torch import Penalty

    modules = (part for shim in shims if shim.is_built for part in shim.module.modules())
    return [module for module in modules if isinstance(module, Penalty)]


def forget_gradients(model: Model[Any, Any]) -> None:
    """Delete all gradients that a model has accumulated.

    The loss values that `Penalty` modules have recorded are deleted as well.
    """
    for node in model.walk():
        for name in node.grad_names:
            node.set_grad(name, node.ops.xp.zeros_like(node.get_grad(name)))
        for shim in node.shims:
            module = shim.module if isinstance(shim, TorchShim) else shim._model
            if hasattr(module, "zero_grad"):
                module.zero_grad()
    for penalty in penalties(torch_shims(model)):
        penalty.pop_value()
