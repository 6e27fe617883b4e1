"""Layers from rows to rows, and layers that combine others: a chain, and embedders side by side."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from spacy.tokens import Doc
from thinc.types import Floats2d

from ..features.tokens import TokenBatch
from .backends import Backend, Layer, Rows
from .layers_numpy import Projection
from .run import forward
from .shim import EmbedModel, RaggedModel, TorchShim

if TYPE_CHECKING:
    from torch import nn


class RaggedLayer(Layer):
    """A module from the tokens of all texts, joined, to as many rows."""

    __slots__ = ()

    def compute(self, inputs: Rows, backend: Backend) -> Rows:
        return backend.call(self, inputs, backend.lengths)


def ragged_layer(
    name: str,
    build: Callable[..., Any],
    make_predictor: Callable[..., Any] | None = None,
    *,
    width_in: int | None = None,
    width_out: int | None = None,
) -> RaggedModel:
    """Return a module from rows to rows as a layer.

    build (Callable): Takes `nI` and `nO` and returns a module. The module takes the tokens of all texts joined and the
        texts' lengths. *Shape:* (tokens, nI) to (tokens, nO)
    make_predictor (Callable): Makes the module's form in NumPy; None for a module that only torch can run.
    width_out (int): The module's width; None to infer it from sample output.
    """
    dims = {"nI": width_in, "nO": width_out}
    return RaggedLayer(name, forward, init=_init_ragged, dims=dims, shims=[TorchShim(build, make_predictor)])


def _init_ragged(layer: RaggedLayer, X: list[Floats2d] | None = None, Y: list[Floats2d] | None = None) -> None:
    if X and layer.has_dim("nI") is None:
        layer.set_dim("nI", X[0].shape[1])
    if Y and layer.has_dim("nO") is None:
        layer.set_dim("nO", Y[0].shape[1])
    if layer.has_dim("nI") and layer.has_dim("nO"):
        layer.shim.build(nI=layer.get_dim("nI"), nO=layer.get_dim("nO"))


def projection(width: int, dropout: float = 0.0) -> RaggedModel:
    """Return a linear layer between two parts of a model that differ in width."""
    return ragged_layer("project", partial(_build_projection, dropout=dropout), Projection, width_out=width)


def _build_projection(*, nI: int, nO: int, dropout: float) -> nn.Module:
    from .layers_torch import Projection

    return Projection(width_in=nI, width_out=nO, dropout=dropout)


class Chain(Layer):
    """An embedder, and an encoder over its rows."""

    __slots__ = ()

    def compute(self, inputs: TokenBatch, backend: Backend) -> Rows:
        embed, encode = self.layers
        return backend.compute(encode, backend.compute(embed, inputs))

    def infer_widths(self) -> None:
        """Set the widths that follow from those of the parts."""
        embed, encode = self.layers
        if embed.has_dim("nO") and encode.has_dim("nI") is None:
            encode.set_dim("nI", embed.get_dim("nO"))
        if encode.has_dim("nO"):
            self.set_dim("nO", encode.get_dim("nO"))


def chain_layers(embed: EmbedModel, encode: RaggedModel) -> EmbedModel:
    """Return an embedder and an encoder as one layer, as Thinc's `chain` does."""
    chain = Chain(f"{embed.name}>>{encode.name}", forward, init=_init_chain, dims={"nO": None}, layers=[embed, encode])
    chain.infer_widths()
    return chain


def _init_chain(chain: Chain, X: list[Doc] | None = None, Y: list[Floats2d] | None = None) -> None:
    embed, encode = chain.layers
    embed.initialize(X=X)
    encode.initialize(X=embed.predict(X[:1]) if X and encode.has_dim("nI") is None else None, Y=Y)
    chain.infer_widths()


class JoinedEmbedders(Layer):
    """Embedders side by side: the columns of all of them."""

    __slots__ = ()

    def compute(self, inputs: TokenBatch, backend: Backend) -> Rows:
        return backend.concatenate_columns([backend.compute(embedder, inputs) for embedder in self.layers])

    def infer_width(self) -> None:
        """Set the width if those of all embedders are known."""
        if all(embedder.has_dim("nO") for embedder in self.layers):
            self.set_dim("nO", sum(embedder.get_dim("nO") for embedder in self.layers))


def join_embedders(*embedders: EmbedModel) -> EmbedModel:
    """Concatenate the rows of embedders."""
    name = "|".join(embedder.name for embedder in embedders)
    model = JoinedEmbedders(name, forward, init=_init_joined, dims={"nO": None}, layers=embedders)
    model.infer_width()
    return model


def _init_joined(model: JoinedEmbedders, X: list[Doc] | None = None, Y: Any = None) -> None:
    for embedder in model.layers:
        embedder.initialize(X)
    model.infer_width()
