"""Layers of this package as Thinc models, and the choice of how they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import Floats2d

from ..runtime.dense import Projection
from .batches import in_halves
from .bridge import EmbedModel, RaggedModel, TorchShim, require_torch, torch_shim, torch_shims
from .run import COMPUTE, HostRun, Rows

if TYPE_CHECKING:
    from torch import nn

Compute = Callable[..., Any]


def run(model: Model[Any, Any], batch: Sequence[Any], *, is_train: bool = False) -> HostRun:
    """Run a model over a batch, at least one text: in numpy if it predicts on the CPU, otherwise in torch."""
    if not is_train and all(shim.predicts_on_host(model.ops) for shim in torch_shims(model)):
        return HostRun(model, batch)
    require_torch()
    from .torch_run import TorchRun

    return TorchRun(model, batch, is_train)


def run_in_halves(model: Model[Any, Any], docs: list[Doc]) -> Rows:
    """Return the rows of Docs. If that takes more memory than the GPU has, it is computed in parts."""
    return concatenate(in_halves(lambda some: run(model, some).output, docs))


def concatenate(parts: Sequence[Rows]) -> Rows:
    """Join rows, arrays or tensors."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    import torch

    return torch.cat(list(parts))


def own_layer(name: str, compute: Compute, **parts: Any) -> Model[Any, Any]:
    """Return a layer of this package. parts: Other arguments of a Thinc model."""
    return Model(name, _forward, **{**parts, "attrs": {**parts.get("attrs", {}), COMPUTE: compute}})


def _forward(
    model: Model[Any, Any], batch: Sequence[Any], is_train: bool
) -> tuple[list[Floats2d], Callable[[list[Floats2d]], Sequence[Any]]]:
    """Run a layer alone, or below a layer of another library."""
    if not len(batch):
        return [], lambda gradient: batch
    own = run(model, batch, is_train=is_train)
    return own.split(), own.backprop


def ragged_layer(
    name: str,
    build: Callable[..., Any],
    make_predictor: Callable[..., Any] | None = None,
    *,
    width_in: int | None = None,
    width_out: int | None = None,
) -> RaggedModel:
    """Return a module from flat tokens to flat tokens as a layer.

    build: Takes `nI` and `nO` and returns a module that is called with the tokens of all sequences joined,
        *Shape* [N, nI], and their lengths, and returns *Shape* [N, nO].
    make_predictor: Makes what predicts so without torch; None for a module that only torch can run.
    width_out: The module's width, where it is not to be inferred from sample output.
    """
    dims, shims = {"nI": width_in, "nO": width_out}, [TorchShim(build, make_predictor)]
    return own_layer(name, _compute_ragged, init=_init_ragged, dims=dims, shims=shims)


def _compute_ragged(model: RaggedModel, own: HostRun, rows: Rows) -> Rows:
    return own.module(model, rows, own.lengths)


def _init_ragged(model: RaggedModel, X: list[Floats2d] | None = None, Y: list[Floats2d] | None = None) -> None:
    if X and model.has_dim("nI") is None:
        model.set_dim("nI", X[0].shape[1])
    if Y and model.has_dim("nO") is None:
        model.set_dim("nO", Y[0].shape[1])
    if model.has_dim("nI") and model.has_dim("nO"):
        torch_shim(model).build(nI=model.get_dim("nI"), nO=model.get_dim("nO"))


def projection(width: int, dropout: float = 0.0) -> RaggedModel:
    """Return a linear layer between two parts of a model that differ in width."""
    return ragged_layer("project", partial(_build_projection, dropout=dropout), Projection, width_out=width)


def _build_projection(*, nI: int, nO: int, dropout: float) -> nn.Module:
    from ..layers.dense import Projection

    return Projection(width_in=nI, width_out=nO, dropout=dropout)


def chain_layers(first: EmbedModel, second: RaggedModel) -> EmbedModel:
    """Return Thinc's `chain` of an embedder and an encoder, as a layer of this package."""
    name, dims = f"{first.name}>>{second.name}", {"nO": None}
    model: EmbedModel = own_layer(name, _compute_chain, init=_init_chain, dims=dims, layers=[first, second])
    _set_widths(model)
    return model


def _compute_chain(model: EmbedModel, own: HostRun, docs: list[Doc]) -> Rows:
    first, second = model.layers
    return own(second, own(first, docs))


def _init_chain(model: EmbedModel, X: list[Doc] | None = None, Y: list[Floats2d] | None = None) -> None:
    first, second = model.layers
    first.initialize(X=X)
    second.initialize(X=first.predict(X[:1]) if X and second.has_dim("nI") is None else None, Y=Y)
    _set_widths(model)


def _set_widths(model: EmbedModel) -> None:
    first, second = model.layers
    if first.has_dim("nO") and second.has_dim("nI") is None:
        second.set_dim("nI", first.get_dim("nO"))
    if second.has_dim("nO"):
        model.set_dim("nO", second.get_dim("nO"))
