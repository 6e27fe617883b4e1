"""The bridge between Thinc and torch.

A torch module is built late, when its sizes are known, and travels inside a Thinc model as a `TorchShim`. Floats cross
flat: one array for all tokens of a batch.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any, cast

import torch
from spacy.tokens import Doc
from thinc.api import (
    ArgsKwargs,
    Model,
    Ops,
    Optimizer,
    PyTorchShim,
    chain,
    get_torch_default_device,
    torch2xp,
    xp2torch,
)
from thinc.shims import Shim
from thinc.types import Floats2d, FloatsXd
from torch import Tensor, nn

from ..layers.penalty import Penalty
from ..optim.rows import apply_row_gradient
from ..optim.together import StepTogether
from .checksum import pack, unpack

Build = Callable[..., nn.Module]
EmbedModel = Model[list[Doc], list[Floats2d]]
RaggedModel = Model[list[Floats2d], list[Floats2d]]

_in_use = False
"""Whether this process, or the one that it was forked from, has made or run a module of a `TorchShim`."""


class TorchShim(PyTorchShim):
    """Thinc's shim for a torch module, for one that is built when its sizes are known, and that may grow.

    Sizes and weights are saved as one block of bytes, read back with `weights_only=True`, so that a model file can
    never run code. Gradients of embedding tables are sparse: only rows in use are updated. The module rests in
    evaluation mode, so that prediction need not switch every submodule back and forth.

    build: Makes the module from its sizes, given as keyword arguments. It must be a module-level function or a
        `functools.partial` of one, so that a pipeline can be pickled.
    """

    def __init__(self, build: Build) -> None:
        super().__init__(None)
        self._build = build
        self._step = StepTogether()

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
        _note_use()
        return self._model

    @property
    def device(self) -> torch.device:
        return cast(torch.device, next(self.module.parameters()).device)

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
        self.set_module(self._build(**sizes), sizes)

    def set_module(self, module: nn.Module, sizes: Mapping[str, int], device: torch.device | None = None) -> None:
        """Take a module made elsewhere, of the given sizes.

        device: Where it goes; None for Thinc's default. What grows a module gives the one that it has been on, since
            the default may be another one in another thread.
        """
        if module is not self._model:
            self._renew_id()
        _note_use()
        self.cfg = dict(sizes)
        self._model = module.to(device or get_torch_default_device()).eval()

    def predict(self, inputs: ArgsKwargs) -> Any:
        module = self.module
        with torch.inference_mode():
            return module(*inputs.args, **inputs.kwargs)

    def begin_update(self, inputs: ArgsKwargs) -> tuple[Any, Callable[[ArgsKwargs], ArgsKwargs]]:
        module = self.module
        try:
            return cast("tuple[Any, Callable[[ArgsKwargs], ArgsKwargs]]", super().begin_update(inputs))
        finally:
            module.eval()

    def finish_update(self, optimizer: Optimizer) -> None:
        learning = [(name, parameter) for name, parameter in self._parameters() if parameter.grad is not None]
        dense = [(name, parameter) for name, parameter in learning if not cast(Tensor, parameter.grad).is_sparse]
        # On a CPU Thinc's own kernels are quicker.
        together = bool(dense) and not dense[0][1].is_cpu and self._step(optimizer, self.id, dense)
        for name, parameter in learning:
            gradient = cast(Tensor, parameter.grad)
            if gradient.is_sparse:
                apply_row_gradient(optimizer, (self.id, name), parameter.data, gradient.coalesce())
            elif not together:
                weights, _ = optimizer((self.id, name), _floats(parameter.data), _floats(gradient))
                _write_back(parameter, weights)
            parameter.grad = None

    @contextlib.contextmanager
    def use_params(self, params: Mapping[Any, FloatsXd]) -> Iterator[None]:
        own = {name: params[self.id, name] for name, _ in self._parameters() if (self.id, name) in params}
        backup = {name: value.clone() for name, value in self._state().items() if name in own}
        try:
            self._load({name: xp2torch(value, device=self.device) for name, value in own.items()})
            yield
        finally:
            self._load(backup)

    def _parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        return self.module.named_parameters() if self.is_built else iter(())

    def _state(self) -> dict[str, Tensor]:
        return self.module.state_dict() if self.is_built else {}

    def _load(self, state: Mapping[str, Tensor]) -> None:
        if state:
            self.module.load_state_dict({**self._state(), **state})

    def to_device(self, device_type: str, device_id: int) -> None:
        if self.is_built:
            super().to_device(device_type, device_id)

    def to_bytes(self) -> bytes:
        state = b""
        if self.is_built:
            file = BytesIO()
            torch.save({name: value.cpu() for name, value in self._state().items()}, file)
            state = file.getvalue()
        return pack({"sizes": self.sizes, "state": state})

    def from_bytes(self, data: bytes) -> TorchShim:
        message = unpack(data, "sizes", "state")
        sizes, state = message["sizes"], message["state"]
        if state:
            module = self._build(**sizes)
            module.load_state_dict(torch.load(BytesIO(state), map_location="cpu", weights_only=True))
            self.set_module(module, sizes)
        else:
            self.cfg, self._model = sizes, None
        return self


def _note_use() -> None:
    global _in_use
    _in_use = True


def _limit_threads() -> None:
    """A forked worker, as of `nlp.pipe(n_process=2)`, does not have the threads that torch computed with in its parent,
    and would wait for them forever. Forks of a process that has no model of ours keep the number that they have."""
    if _in_use:
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_limit_threads)


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


def run_module(
    model: Model[Any, Any], is_train: bool, lengths: Sequence[int], floats: Sequence[Tensor], *others: Any
) -> tuple[list[Floats2d], Callable[[list[Floats2d]], list[Tensor]]]:
    """Call a layer's torch module, and cut its output into stretches of the given lengths.

    floats: The module's first arguments, which get a gradient.
    others: What else it is called with.

    The second result takes the output's gradient to the module's parameters and returns that of the floats.
    """
    shim = torch_shim(model)
    for tensor in floats if is_train else ():
        tensor.requires_grad_(True)
    outputs, backprop_torch = shim(ArgsKwargs(args=(*floats, *others), kwargs={}), is_train)

    def backprop(dY: list[Floats2d]) -> list[Tensor]:
        if not is_train:
            raise ValueError("Cannot backpropagate through a prediction. Call begin_update() instead of predict().")
        # The module may have nothing to learn: where it is frozen, or where there are no tokens.
        if outputs.requires_grad:
            d_outputs = join(model.ops, dY, shim.device)
            backprop_torch(ArgsKwargs(args=((outputs,),), kwargs={"grad_tensors": (d_outputs,)}))
        # Nor need it have used what there was none of, or what a setting leaves out.
        return [torch.zeros_like(tensor) if tensor.grad is None else tensor.grad for tensor in floats]

    return split(model.ops, outputs, lengths), backprop


def ragged_layer(name: str, build: Build, *, width_in: int | None = None, width_out: int | None = None) -> RaggedModel:
    """A torch module from flat tokens to flat tokens, as a layer from list to list.

    build: Takes `nI` and `nO` and returns a module that is called with the tokens of all sequences joined,
        *Shape* [N, nI], and their lengths, and returns *Shape* [N, nO].
    width_out: The module's width, where it is not to be inferred from sample output.
    """
    dims = {"nI": width_in, "nO": width_out}
    return Model(name, _forward_ragged, init=_init_ragged, dims=dims, shims=[TorchShim(build)])


def encoder_layer(name: str, encoder: Callable[..., nn.Module], config: Any) -> RaggedModel:
    """An encoder of sequences as a layer. encoder: Made from its config and the width of its input."""
    build = functools.partial(_build_encoder, encoder=encoder, config=config)
    return ragged_layer(name, build, width_out=config.width)


def _build_encoder(*, nI: int, nO: int, encoder: Callable[..., nn.Module], config: Any) -> nn.Module:
    return encoder(config, input_width=nI)


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
    lengths = [len(x) for x in X]
    inputs = join(model.ops, X, torch_shim(model).device)
    outputs, backprop_module = run_module(model, is_train, lengths, [inputs], lengths)
    return outputs, lambda dY: split(model.ops, backprop_module(dY)[0], lengths)


def join(ops: Ops, arrays: Sequence[Floats2d], device: torch.device) -> Tensor:
    """The arrays of a batch as one tensor."""
    return xp2torch(flat(ops, arrays), device=device).to(torch.float32)


def flat(ops: Ops, arrays: Sequence[Floats2d]) -> Floats2d:
    """The arrays of a batch as one."""
    # A transformer's listener does not know how wide the rows of an empty text are.
    filled = [array for array in arrays if len(array)] or list(arrays[:1])
    # Contiguous, since torch ends the process on an array that runs backwards.
    joined = ops.xp.ascontiguousarray(filled[0]) if len(filled) == 1 else ops.xp.concatenate(filled, axis=0)
    return cast(Floats2d, joined)


def split(ops: Ops, tensor: Tensor, lengths: Sequence[int]) -> list[Floats2d]:
    """A tensor as one array per text: views, not copies."""
    return cut(cast(Floats2d, torch2xp(tensor.detach(), ops=ops)), lengths)


def cut(array: Floats2d, lengths: Sequence[int]) -> list[Floats2d]:
    """The reverse of `flat`, by views."""
    ends = itertools.accumulate(lengths)
    return [array[end - length : end] for end, length in zip(ends, lengths, strict=True)]


def token_counts(docs: Sequence[Doc]) -> list[int]:
    return [len(doc) for doc in docs]
