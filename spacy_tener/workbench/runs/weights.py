"""What a training has changed: a pipeline's weights and tables, and what its optimizer remembers of each weight.

Thinc's optimizers know a weight by the id of the layer or shim that has it. Ids are given out anew in every process, so
on disk a weight goes by its place: the component, the number of the layer in it, and the number of the shim.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Collection, Iterator, Mapping
from io import BytesIO
from typing import Any

import torch
from spacy.language import Language
from thinc.api import Model, Optimizer, get_current_ops, serialize_attr
from thinc.backends import get_array_ops
from thinc.model import deserialize_attr
from thinc.shims import PyTorchShim, Shim

_BUFFER = "_radam_buffer"


class Weights:
    """The layers and shims of all components that learn, by their places. Made before the first update."""

    def __init__(self, nlp: Language, frozen: Collection[str] = ()) -> None:
        self._layers: dict[str, Model[Any, Any]] = {}
        for name, pipe in nlp.pipeline:
            model = getattr(pipe, "model", None)
            if name not in frozen and isinstance(model, Model):
                self._layers.update({f"{name}/{number}": layer for number, layer in enumerate(model.walk())})
        self._initial = {place: _digests(layer) for place, layer in self._layers.items()}

    def structure(self) -> dict[str, str]:
        """A digest of each layer's kind, sizes and tables as `initialize` left them: what training begins with."""
        return {place: _structure(layer, self._initial[place]) for place, layer in self._layers.items()}

    def state(self) -> dict[str, Any]:
        """What updates have changed. On a CPU the weights of Thinc's layers are not copied."""
        state: dict[str, dict[str, Any]] = {
            "parameters": {place: _parameters(layer) for place, layer in self._layers.items()},
            "attrs": {place: self._changed_attrs(place) for place in self._layers},
            "shims": {place: _shim_bytes(shim) for place, shim in self._shims()},
        }
        return {kind: {place: value for place, value in places.items() if value} for kind, places in state.items()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Put it back, weights into the memory that is there: sums of floats may depend on its alignment."""
        for place, parameters in state["parameters"].items():
            for name, values in parameters.items():
                weights: Any = self._layers[place].get_param(name)
                weights[...] = self._layers[place].ops.asarray(values)
        for place, attrs in state["attrs"].items():
            layer = self._layers[place]
            for name, value in attrs.items():
                layer.attrs[name] = deserialize_attr(layer.attrs.get(name), value, name, layer)
        shims = dict(self._shims())
        for place, data in state["shims"].items():
            _load_shim(shims[place], data)

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """What the optimizer remembers, by the places of weights. What it remembers of others is of no use any more."""
        places = self._places()
        tables: dict[str, list[Any]] = {}
        for table, values in _tables(optimizer):
            found = [(self._place_of(key, places), key[1], value) for key, value in values.items()]
            tables[table] = [[place, name, _on_host(value)] for place, name, value in found if place]
        return {"tables": tables, "buffer": getattr(optimizer, _BUFFER, None)}

    def load_optimizer(self, optimizer: Optimizer, state: Mapping[str, Any]) -> None:
        owners: dict[str, Any] = {**self._layers, **dict(self._shims())}
        for table, values in _tables(optimizer):
            values.clear()
            for place, name, value in state["tables"][table]:
                values[(owners[place].id, name)] = _on_device(value)
        if hasattr(optimizer, _BUFFER):
            setattr(optimizer, _BUFFER, state["buffer"])

    def _shims(self) -> Iterator[tuple[str, Shim]]:
        for place, layer in self._layers.items():
            for number, shim in enumerate(layer.shims):
                if shim._model is not None:
                    yield f"{place}/{number}", shim

    def _places(self) -> dict[tuple[type, int], str]:
        """The place of each id, as ids are now: a module that has grown may have got another."""
        places: dict[tuple[type, int], str]
        places = {(Model, layer.id): place for place, layer in reversed(self._layers.items())}
        return {**places, **{(Shim, shim.id): place for place, shim in self._shims()}}

    def _place_of(self, key: tuple[int, str], places: Mapping[tuple[type, int], str]) -> str:
        """Where a weight is; nothing if it is gone. Layers and shims count their ids apart: an id may be of both."""
        layer = places.get((Model, key[0]), "")
        if layer and key[1] in self._layers[layer].param_names:
            return layer
        return places.get((Shim, key[0]), "")

    def _changed_attrs(self, place: str) -> dict[str, bytes]:
        """Such as the rate of dropout, and the strings of tables that grow with what training shows."""
        initial = self._initial[place]
        return {name: data for name, data in _attrs(self._layers[place]) if _digest(data) != initial.get(name)}


def _attrs(layer: Model[Any, Any]) -> Iterator[tuple[str, bytes]]:
    for name, value in sorted(layer.attrs.items()):
        with contextlib.suppress(TypeError):  # such as functions, which Thinc does not save either
            yield name, serialize_attr(value, value, name, layer)


def _digests(layer: Model[Any, Any]) -> dict[str, str]:
    return {name: _digest(data) for name, data in _attrs(layer)}


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def _structure(layer: Model[Any, Any], attrs: Mapping[str, str]) -> str:
    dims = {name: layer.get_dim(name) if layer.has_dim(name) else None for name in layer.dim_names}
    return _digest(repr([layer.name, sorted(dims.items()), sorted(attrs.items())]).encode())


def _parameters(layer: Model[Any, Any]) -> dict[str, Any]:
    return {name: _on_host(layer.get_param(name)) for name in layer.param_names if layer.has_param(name)}


def _shim_bytes(shim: Shim) -> bytes:
    if type(shim) is not PyTorchShim:
        data: bytes = shim.to_bytes()
        return data
    file = BytesIO()
    torch.save({"weights": shim._model.state_dict(), "scaler": _scaler(shim)}, file)
    return file.getvalue()


def _load_shim(shim: Shim, data: bytes) -> None:
    """Thinc's own shim for torch would read with whatever safety torch has by default, and without the scale that
    gradients have in mixed precision."""
    if type(shim) is not PyTorchShim:
        shim.from_bytes(data)
        return
    state = torch.load(BytesIO(data), map_location="cpu", weights_only=True)
    shim._model.load_state_dict(state["weights"])
    for name, value in _scaler(shim).items():
        value.copy_(state["scaler"][name])


def _scaler(shim: PyTorchShim) -> dict[str, torch.Tensor]:
    return {name: getattr(shim._grad_scaler, name) for name in ("_scale", "_growth_tracker")}


def _tables(optimizer: Optimizer) -> Iterator[tuple[str, dict[Any, Any]]]:
    """Everything that an optimizer, Thinc's or one made after it, keeps by weight: momentum, averages, counts."""
    slots = [name for kind in type(optimizer).__mro__ for name in getattr(kind, "__slots__", ())]
    for name in sorted({*slots, *getattr(optimizer, "__dict__", ())}):
        value = getattr(optimizer, name, None)
        if isinstance(value, dict) and all(isinstance(key, tuple) and len(key) == 2 for key in value):
            yield name, value


def _on_host(value: Any) -> Any:
    return get_array_ops(value).to_numpy(value) if hasattr(value, "shape") else value


def _on_device(value: Any) -> Any:
    return get_current_ops().asarray(value) if hasattr(value, "shape") else value
