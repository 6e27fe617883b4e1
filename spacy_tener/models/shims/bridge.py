"""The bridge between Thinc and the modules of `layers` and `runtime`.

A module is built late, when its sizes are known, and travels inside a Thinc model as a `TorchShim`. Floats cross flat:
one array for all tokens of a batch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from spacy.tokens import Doc
from thinc.api import Model, chain
from thinc.types import Floats2d

from .batches import Indices, cut, flat, token_counts
from .shim import Build, MakePredictor, TorchShim

if TYPE_CHECKING:
    from ...layers.selection import Penalty

__all__ = [
    "Build",
    "EmbedModel",
    "Indices",
    "RaggedModel",
    "TorchShim",
    "chain_sized",
    "cut",
    "encoder_layer",
    "flat",
    "penalties",
    "ragged_layer",
    "run_module",
    "token_counts",
    "torch_shim",
]

EmbedModel = Model[list[Doc], list[Floats2d]]
RaggedModel = Model[list[Floats2d], list[Floats2d]]


def torch_shim(model: Model[Any, Any]) -> TorchShim:
    """The shim of a layer made here."""
    return cast(TorchShim, model.shims[0])


def penalties(model: Model[Any, Any]) -> list[Penalty]:
    """What the layers of a model add to the loss by themselves."""
    from . import torch_side

    shims = (shim for node in model.walk() for shim in node.shims)
    return torch_side.penalties([shim for shim in shims if isinstance(shim, TorchShim) and shim.is_built])


def run_module(
    model: Model[Any, Any], is_train: bool, lengths: Sequence[int], floats: Sequence[Floats2d], *others: Any
) -> tuple[list[Floats2d], Callable[[list[Floats2d]], list[Floats2d]]]:
    """Call a layer's module, and cut its output into stretches of the given lengths.

    floats: The module's first arguments, which get a gradient.
    others: What else it is called with: `Indices`, and what it reads on the host.

    The second result takes the output's gradient to the module's parameters and returns that of the floats.
    """
    shim = torch_shim(model)
    if is_train or not shim.predicts_on_host(model.ops):
        from . import torch_side

        return torch_side.run(shim, model.ops, is_train, lengths, floats, others)
    rest = [other.array if isinstance(other, Indices) else other for other in others]
    return cut(cast(Floats2d, shim.predictor()(*map(_as_floats, floats), *rest)), lengths), _no_backprop


def _as_floats(rows: Any) -> Any:
    return rows.astype("f", copy=False)


def _no_backprop(dY: list[Floats2d]) -> list[Floats2d]:
    raise ValueError("Cannot backpropagate through a prediction. Call begin_update() instead of predict().")


def ragged_layer(
    name: str,
    build: Build,
    make_predictor: MakePredictor | None = None,
    *,
    width_in: int | None = None,
    width_out: int | None = None,
) -> RaggedModel:
    """A module from flat tokens to flat tokens, as a layer from list to list.

    build: Takes `nI` and `nO` and returns a module that is called with the tokens of all sequences joined,
        *Shape* [N, nI], and their lengths, and returns *Shape* [N, nO].
    make_predictor: Makes what predicts so without torch; None for a module that only torch can run.
    width_out: The module's width, where it is not to be inferred from sample output.
    """
    dims = {"nI": width_in, "nO": width_out}
    return Model(name, _forward_ragged, init=_init_ragged, dims=dims, shims=[TorchShim(build, make_predictor)])


def encoder_layer(name: str, build: Build, predictor: Callable[..., Any], config: Any) -> RaggedModel:
    """An encoder of sequences as a layer.

    build: Makes the module from its config and its sizes.
    predictor: Made from the config and the weights.
    """
    build, make_predictor = functools.partial(build, config=config), functools.partial(predictor, config)
    return ragged_layer(name, build, make_predictor, width_out=config.width)


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
    outputs, backprop_module = run_module(model, is_train, lengths, [flat(model.ops, X)], lengths)
    return outputs, lambda dY: cut(backprop_module(dY)[0], lengths)
