"""The weights of a layer inside a Thinc model: as a torch module where it learns, as arrays where it predicts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from numpy.typing import NDArray
from thinc.api import ArgsKwargs, Ops, Optimizer, get_current_ops
from thinc.shims import Shim
from thinc.types import FloatsXd

from ...errors import MissingTorchError
from ...runtime.weights import Weights
from .checksum import pack, unpack
from .state import arrays_from_torch, pack_arrays, unpack_arrays

if TYPE_CHECKING:
    import torch
    from torch import nn

Build = Callable[..., "nn.Module"]
Predict = Callable[..., NDArray[Any]]
MakePredictor = Callable[[Weights], Predict]

_HOST_OPS = {"numpy", "apple"}


class TorchShim(Shim):
    """Thinc's shim for a torch module that is built when its sizes are known, that may grow, and that predicts on the
    CPU without torch.

    Weights are arrays until something learns or a GPU computes; then the module is built of them. From there on the
    module has the weights, and predictions read its own memory: what was learned is what predicts.

    Sizes and weights are saved as plain bytes, so that a model file can never run code. Gradients of embedding tables
    are sparse: only rows in use are updated. The module rests in evaluation mode, so that prediction need not switch
    every submodule back and forth.

    build: Makes the module from its sizes, given as keyword arguments. It must be a module-level function or a
        `functools.partial` of one, so that a pipeline can be pickled.
    make_predictor: Makes what predicts as the module does from its weights; likewise. None for a module that only torch
        can run.
    """

    def __init__(self, build: Build, make_predictor: MakePredictor | None = None) -> None:
        super().__init__(None)
        self._build = build
        self._make_predictor = make_predictor
        self._arrays: Mapping[str, NDArray[Any]] | None = None
        self._predictor: Predict | None = None
        self._step: Any = None

    @property
    def sizes(self) -> dict[str, int]:
        return cast("dict[str, int]", self.cfg)

    @property
    def is_built(self) -> bool:
        """Whether there are weights."""
        return self._model is not None or self._arrays is not None

    @property
    def module(self) -> Any:
        """The torch module, built of the weights if it is not there yet."""
        if self._model is None:
            self._check_weights()
            module = self._new_module(self.sizes)
            _torch_side().load_arrays(module, self._arrays)
            self._take(module, None)
        _torch_side().note_use()
        return self._model

    @property
    def weights(self) -> Mapping[str, NDArray[Any]]:
        """The weights by name: the module's own memory, where it is on the CPU."""
        self._check_weights()
        if self._model is not None:
            return cast("Mapping[str, NDArray[Any]]", _torch_side().arrays_of(self._model))
        return cast("Mapping[str, NDArray[Any]]", self._arrays)

    @property
    def device(self) -> torch.device:
        return cast("torch.device", _torch_side().device_of(self.module))

    def _check_weights(self) -> None:
        if not self.is_built:
            raise ValueError(
                "The torch part of this model has no weights yet. Call nlp.initialize() (or component.initialize()) "
                "before predicting or training, or load a trained pipeline with spacy.load()."
            )

    def predicts_on_host(self, ops: Ops) -> bool:
        """Whether predictions need no torch: on the CPU, where there is a form of the module that does without."""
        if self._make_predictor is None or ops.name not in _HOST_OPS:
            return False
        self._check_weights()
        return self._model is None or self.device.type == "cpu"

    def predictor(self) -> Predict:
        """What predicts without torch. Of a module it is made anew for each batch, since weights may have changed."""
        assert self._make_predictor is not None
        if self._model is not None:
            return self._make_predictor(Weights(self.weights))
        if self._predictor is None:
            self._predictor = self._make_predictor(Weights(self.weights))
        return self._predictor

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_predictor": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Finish a copy: deep, shallow or unpickled."""
        self.__dict__.update(state)
        self._renew_id()

    def _renew_id(self) -> None:
        # An optimizer knows parameters by this id. A copy with the original's, or a module of other shapes with its
        # predecessor's, would be given momentum and averages that are not its own.
        with Shim.global_id_lock:
            Shim.global_id += 1
            self.id = Shim.global_id

    def build(self, **sizes: int) -> None:
        """Make the module with fresh weights."""
        self.set_module(self._new_module(sizes), sizes)

    def set_module(self, module: nn.Module, sizes: Mapping[str, int], device: torch.device | None = None) -> None:
        """Take a module made elsewhere, of the given sizes.

        device: Where it goes; None for Thinc's default. What grows a module gives the one that it has been on, since
            the default may be another one in another thread.
        """
        if module is not self._model:
            self._renew_id()
        self.cfg = dict(sizes)
        self._take(module, device)

    def _new_module(self, sizes: Mapping[str, int]) -> nn.Module:
        require_torch()
        return self._build(**sizes)

    def _take(self, module: nn.Module, device: torch.device | None) -> None:
        _torch_side().note_use()
        self._model = _torch_side().placed(module, device)
        self._arrays = self._predictor = None

    def __call__(self, inputs: ArgsKwargs, is_train: bool) -> tuple[Any, Callable[..., Any]]:
        return self.begin_update(inputs) if is_train else (self.predict(inputs), lambda gradients: None)

    def predict(self, inputs: ArgsKwargs) -> Any:
        return _torch_side().predict(self.module, inputs)

    def begin_update(self, inputs: ArgsKwargs) -> tuple[Any, Callable[[ArgsKwargs], None]]:
        return cast("tuple[Any, Callable[[ArgsKwargs], None]]", _torch_side().begin_update(self.module, inputs))

    def finish_update(self, optimizer: Optimizer) -> None:
        if self._model is not None:
            _torch_side().finish_update(self, optimizer)

    def step_together(self, *given: Any) -> bool:
        """One step of an optimizer for all parameters at once, on a GPU. Returns whether it was done."""
        if self._step is None:
            from ...optim.updates import StepTogether

            self._step = StepTogether()
        return bool(self._step(*given))

    @contextlib.contextmanager
    def use_params(self, params: Mapping[Any, FloatsXd]) -> Iterator[None]:
        # Whoever has averages of parameters has had the module.
        with _torch_side().use_params(self, params) if self._model is not None else contextlib.nullcontext():
            yield

    def to_device(self, device_type: str, device_id: int) -> None:
        if device_type == "gpu" and self.is_built:
            self.module.cuda(device_id)
        elif self._model is not None:
            self._model.cpu()

    def to_bytes(self) -> bytes:
        if self._make_predictor is not None:
            return pack({"sizes": self.sizes, **pack_arrays(self.weights if self.is_built else {})})
        state = _torch_side().to_torch_bytes(self._model) if self.is_built else b""
        return pack({"sizes": self.sizes, "state": state})

    def from_bytes(self, data: bytes) -> TorchShim:
        message = unpack(data, "sizes", ("state", "weights"))
        sizes: dict[str, int] = message["sizes"]
        if self._make_predictor is None:
            self._load_module(message["state"], sizes)
            return self
        arrays = arrays_from_torch(message["state"]) if "state" in message else unpack_arrays(message)
        self.load_arrays(arrays, sizes)
        return self

    def _load_module(self, state: bytes, sizes: dict[str, int]) -> None:
        if state:
            module = self._new_module(sizes)
            _torch_side().load_torch_bytes(module, state)
            self.set_module(module, sizes)
        else:
            self._forget(sizes)

    def load_arrays(self, arrays: Mapping[str, NDArray[Any]], sizes: dict[str, int]) -> None:
        """Take weights and the sizes that go with them; no weights, if there are none."""
        if not arrays:
            self._forget(sizes)
            return
        assert self._make_predictor is not None
        weights = Weights(arrays)
        predictor = self._make_predictor(weights)
        weights.check_all_used()
        self._forget(sizes)
        self._renew_id()
        self._arrays, self._predictor = arrays, predictor
        if get_current_ops().name not in _HOST_OPS:
            self.module  # noqa: B018 - on the device that is Thinc's default now

    def _forget(self, sizes: dict[str, int]) -> None:
        """Have no weights."""
        self.cfg, self._model, self._arrays, self._predictor = sizes, None, None, None


def require_torch() -> None:
    """Say what to install, where there is no torch."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise MissingTorchError from error


def _torch_side() -> ModuleType:
    require_torch()
    from . import torch_side

    return torch_side
