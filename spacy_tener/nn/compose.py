"""Thinc layers that this package builds its models from: a layer with a torch module, a chain, and a concatenation."""

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
    """A layer whose module transforms the tokens of all texts, concatenated, and returns a row for each."""

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
    """Build a Thinc layer from a torch module, which gets the rows and the length of each text. *Shape:* (tokens, nI)
    to (tokens, nO)

    name (str): Layer name.
    build (Callable): Function that builds the module, called with the arguments `nI` and `nO`. It must be picklable.
    make_predictor (Callable): Function that builds the NumPy implementation from the `Weights`. None if there is none.
    width_in (int): Input width. None to set it when the layer is initialized or chained.
    width_out (int): Output width. None to infer it from sample output.
    RETURNS (Model[List[Floats2d], List[Floats2d]]): The layer.
    """
    dims = {"nI": width_in, "nO": width_out}
    return RaggedLayer(name, forward, init=_init_ragged, dims=dims, shims=[TorchShim(build, make_predictor)])


def _init_ragged(layer: RaggedLayer, X: list[Floats2d] | None = None, Y: list[Floats2d] | None = None) -> None:
    """Set missing widths from sample data, and build the module if both are known."""
    if X and layer.has_dim("nI") is None:
        layer.set_dim("nI", X[0].shape[1])
    if Y and layer.has_dim("nO") is None:
        layer.set_dim("nO", Y[0].shape[1])
    if layer.has_dim("nI") and layer.has_dim("nO"):
        layer.shim.build(nI=layer.get_dim("nI"), nO=layer.get_dim("nO"))


def projection(width: int, dropout: float = 0.0) -> RaggedModel:
    """Build a linear layer between two parts of a model with different widths."""
    return ragged_layer("project", partial(_build_projection, dropout=dropout), Projection, width_out=width)


def _build_projection(*, nI: int, nO: int, dropout: float) -> nn.Module:
    """Build the torch module."""
    from .layers_torch import Projection

    return Projection(width_in=nI, width_out=nO, dropout=dropout)


class Chain(Layer):
    """An embedder, followed by an encoder."""

    __slots__ = ()

    def compute(self, inputs: TokenBatch, backend: Backend) -> Rows:
        embed, encode = self.layers
        return backend.compute(encode, backend.compute(embed, inputs))

    def infer_widths(self) -> None:
        """Set widths that follow from the widths of the embedder and of the encoder."""
        embed, encode = self.layers
        if embed.has_dim("nO") and encode.has_dim("nI") is None:
            encode.set_dim("nI", embed.get_dim("nO"))
        if encode.has_dim("nO"):
            self.set_dim("nO", encode.get_dim("nO"))


def chain_layers(embed: EmbedModel, encode: RaggedModel) -> EmbedModel:
    """Combine an embedder and an encoder to one layer, as Thinc's `chain` does."""
    chain = Chain(f"{embed.name}>>{encode.name}", forward, init=_init_chain, dims={"nO": None}, layers=[embed, encode])
    chain.infer_widths()
    return chain


def _init_chain(chain: Chain, X: list[Doc] | None = None, Y: list[Floats2d] | None = None) -> None:
    """Initialize the embedder, and then the encoder, with a sample of the embedder's output if its input width is
    unknown.
    """
    embed, encode = chain.layers
    embed.initialize(X=X)
    encode.initialize(X=embed.predict(X[:1]) if X and encode.has_dim("nI") is None else None, Y=Y)
    chain.infer_widths()


class JoinedEmbedders(Layer):
    """Several embedders whose outputs are concatenated along the last dimension."""

    __slots__ = ()

    def compute(self, inputs: TokenBatch, backend: Backend) -> Rows:
        return backend.concatenate_columns([backend.compute(embedder, inputs) for embedder in self.layers])

    def infer_width(self) -> None:
        """Set the output width if the widths of all embedders are known."""
        if all(embedder.has_dim("nO") for embedder in self.layers):
            self.set_dim("nO", sum(embedder.get_dim("nO") for embedder in self.layers))


def join_embedders(*embedders: EmbedModel) -> EmbedModel:
    """Concatenate the outputs of several embedders, as Thinc's `concatenate` does."""
    name = "|".join(embedder.name for embedder in embedders)
    model = JoinedEmbedders(name, forward, init=_init_joined, dims={"nO": None}, layers=embedders)
    model.infer_width()
    return model


def _init_joined(model: JoinedEmbedders, X: list[Doc] | None = None, Y: Any = None) -> None:
    """Initialize all embedders, and set the width."""
    for embedder in model.layers:
        embedder.initialize(X)
    model.infer_width()
