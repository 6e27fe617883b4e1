"""The one bridge between Thinc and torch.

A torch module is built late, when its sizes are known, and travels inside a Thinc model as a `TorchShim`: sizes and
weights are one block of bytes, read back with `weights_only=True`, so that a model file can never run code. Floats
cross flat: one array for all tokens of a batch.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from io import BytesIO
from typing import Any, cast

import srsly
import torch
from spacy.tokens import Doc
from thinc.api import Model, Ops, Optimizer, chain, get_torch_default_device, torch2xp, xp2torch
from thinc.shims import Shim
from thinc.types import Floats2d, FloatsXd
from torch import Tensor, nn

from ..layers.penalty import Penalty
from ..optim.rows import apply_row_gradient

Build = Callable[..., nn.Module]
EmbedModel = Model[list[Doc], list[Floats2d]]
RaggedModel = Model[list[Floats2d], list[Floats2d]]

if hasattr(os, "register_at_fork"):
    # A forked worker, as of `nlp.pipe(n_process=2)`, does not have the threads that torch computed with in its parent,
    # and would wait for them forever.
    os.register_at_fork(after_in_child=partial(torch.set_num_threads, 1))


class TorchShim(Shim):
    """Holds a torch module for Thinc: its sizes, weights, gradients and place on a device.

    build: makes the module from its sizes, given as keyword arguments. It must be a module-level function or a
        `functools.partial` of one, so that a pipeline can be pickled.
    """

    def __init__(self, build: Build) -> None:
        super().__init__(None)
        self._build = build

    @property
    def sizes(self) -> dict[str, int]:
        return cast("dict[str, int]", self.cfg)

    @property
    def is_built(self) -> bool:
        return self._model is not None

    @property
    def module(self) -> Any:
        if self._model is None:
            raise ValueError(
                "The torch part of this model has no weights yet. Call nlp.initialize() (or component.initialize()) "
                "before predicting or training, or load a trained pipeline with spacy.load()."
            )
        return self._model

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

    def set_module(self, module: nn.Module, sizes: Mapping[str, int]) -> None:
        """Take a module made elsewhere, of the given sizes: what growing a table or adding labels ends in."""
        if module is not self._model:
            self._renew_id()
        self.cfg = dict(sizes)
        # Evaluation is the resting state, so that prediction need not switch every submodule back and forth.
        self._model = module.to(get_torch_default_device()).eval()

    def build(self, **sizes: int) -> None:
        """Make the module with fresh weights."""
        self.set_module(self._build(**sizes), sizes)

    @property
    def device(self) -> torch.device:
        return cast(torch.device, next(self.module.parameters()).device)

    @contextlib.contextmanager
    def training(self) -> Iterator[nn.Module]:
        """The module in training mode: dropout is on inside this context only."""
        module = cast(nn.Module, self.module)
        module.train()
        try:
            yield module
        finally:
            module.eval()

    def finish_update(self, optimizer: Optimizer) -> None:
        if self._model is None:
            return
        for name, parameter in self._model.named_parameters():
            gradient = parameter.grad
            if gradient is None:
                continue
            if gradient.is_sparse:
                apply_row_gradient(optimizer, (self.id, name), parameter.data, gradient.coalesce())
            else:
                weights, _ = optimizer((self.id, name), _floats(parameter.data), _floats(gradient))
                _write_back(parameter, weights)
            parameter.grad = None

    @contextlib.contextmanager
    def use_params(self, params: Mapping[Any, FloatsXd]) -> Iterator[None]:
        own = {name: params[(self.id, name)] for name in self._names() if (self.id, name) in params}
        backup = {name: value.clone() for name, value in self._state().items() if name in own}
        try:
            self._load({name: xp2torch(value, device=self.device) for name, value in own.items()})
            yield
        finally:
            self._load(backup)

    def _names(self) -> list[str]:
        return [] if self._model is None else [name for name, _ in self._model.named_parameters()]

    def _state(self) -> dict[str, Tensor]:
        return {} if self._model is None else self._model.state_dict()

    def _load(self, state: Mapping[str, Tensor]) -> None:
        if state:
            self.module.load_state_dict({**self._state(), **state})

    def to_device(self, device_type: str, device_id: int) -> None:
        if self._model is not None:
            self._model.to("cpu" if device_type == "cpu" else torch.device("cuda", device_id))

    def to_bytes(self) -> bytes:
        state = b""
        if self._model is not None:
            file = BytesIO()
            torch.save({name: value.cpu() for name, value in self._state().items()}, file)
            state = file.getvalue()
        return cast(bytes, srsly.msgpack_dumps({"sizes": self.sizes, "state": state}))

    def from_bytes(self, data: bytes) -> TorchShim:
        message = srsly.msgpack_loads(data)
        sizes, state = _checked(message)
        if not state:
            self.cfg, self._model = sizes, None
        else:
            module = self._build(**sizes)
            module.load_state_dict(torch.load(BytesIO(state), map_location="cpu", weights_only=True))
            self.set_module(module, sizes)
        return self


def _checked(message: Any) -> tuple[dict[str, int], bytes]:
    if not isinstance(message, dict) or not {"sizes", "state"} <= set(message):
        raise ValueError(
            "This model file does not hold the weights of a spacy_tener model: it is damaged, or was written by "
            "another architecture. Check that the config beside it names the architecture it was trained with."
        )
    return message["sizes"], message["state"]


def _floats(tensor: Tensor) -> FloatsXd:
    return cast(FloatsXd, torch2xp(tensor))


def _write_back(parameter: nn.Parameter, weights: FloatsXd) -> None:
    updated = xp2torch(weights, device=parameter.device)
    if updated.data_ptr() != parameter.data.data_ptr():
        parameter.data.copy_(updated)


def torch_shim(model: Model[Any, Any]) -> TorchShim:
    """The shim of a layer made here."""
    return cast(TorchShim, model.shims[0])


def penalties(model: Model[Any, Any]) -> list[Penalty]:
    """What the layers of a model add to the loss by themselves."""
    shims = (shim for node in model.walk() for shim in node.shims)
    built = (shim.module for shim in shims if isinstance(shim, TorchShim) and shim.is_built)
    return [part for module in built for part in module.modules() if isinstance(part, Penalty)]


def ragged_layer(name: str, build: Build, *, width_in: int | None = None, width_out: int | None = None) -> RaggedModel:
    """A torch module from flat tokens to flat tokens, as a layer from list to list.

    build: takes `nI` and `nO` and returns a module that is called with the tokens of all sequences joined,
        *Shape* [N, nI], and their lengths, and returns *Shape* [N, nO].
    width_out: the module's width, where it is not to be inferred from sample output.
    """
    return Model(
        name,
        _forward_ragged,
        init=_init_ragged,
        dims={"nI": width_in, "nO": width_out},
        shims=[TorchShim(build)],
    )


def chain_sized(first: EmbedModel, second: RaggedModel) -> EmbedModel:
    """Thinc's `chain`, with the widths that are known before anything is initialized."""
    if first.has_dim("nO"):
        second.set_dim("nI", first.get_dim("nO"))
    model: EmbedModel = chain(first, second)
    if second.has_dim("nO"):
        model.set_dim("nO", second.get_dim("nO"))
    return model


def _init_ragged(model: RaggedModel, X: list[Floats2d] | None = None, Y: list[Floats2d] | None = None) -> None:
    if X and model.has_dim("nI") is None:
        model.set_dim("nI", X[0].shape[1])
    if Y and model.has_dim("nO") is None:
        model.set_dim("nO", Y[0].shape[1])
    if model.has_dim("nI") and model.has_dim("nO"):
        torch_shim(model).build(nI=model.get_dim("nI"), nO=model.get_dim("nO"))


def _forward_ragged(
    model: RaggedModel, X: list[Floats2d], is_train: bool
) -> tuple[list[Floats2d], Callable[[list[Floats2d]], list[Floats2d]]]:
    if not X:
        return [], lambda dY: []
    shim = torch_shim(model)
    lengths = [len(x) for x in X]
    inputs = join(model.ops, X, shim.device)
    if not is_train:
        with torch.inference_mode():
            return split(model.ops, shim.module(inputs, lengths), lengths), _no_backprop
    inputs.requires_grad_(True)
    with shim.training() as module:
        outputs = module(inputs, lengths)

    def backprop(dY: list[Floats2d]) -> list[Floats2d]:
        torch.autograd.backward(outputs, join(model.ops, dY, shim.device))
        assert inputs.grad is not None
        return split(model.ops, inputs.grad, lengths)

    return split(model.ops, outputs, lengths), backprop


def _no_backprop(dY: list[Floats2d]) -> list[Floats2d]:
    raise ValueError("Cannot backpropagate through a prediction. Call begin_update() instead of predict().")


def join(ops: Ops, arrays: Sequence[Floats2d], device: torch.device) -> Tensor:
    """The arrays of a batch as one tensor."""
    # A transformer's listener does not know how wide the rows of an empty text are.
    filled = [array for array in arrays if len(array)] or list(arrays[:1])
    # Contiguous, since torch ends the process on an array that runs backwards.
    joined = ops.xp.ascontiguousarray(filled[0]) if len(filled) == 1 else ops.xp.concatenate(filled, axis=0)
    return xp2torch(joined, device=device).to(torch.float32)


def split(ops: Ops, tensor: Tensor, lengths: Sequence[int]) -> list[Floats2d]:
    """A tensor as one array per text: views, not copies."""
    flat = torch2xp(tensor.detach(), ops=ops)
    ends = itertools.accumulate(lengths)
    return [cast(Floats2d, flat[end - length : end]) for end, length in zip(ends, lengths, strict=True)]


def token_counts(docs: Sequence[Doc]) -> list[int]:
    return [len(doc) for doc in docs]
