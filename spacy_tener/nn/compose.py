"""Thinc layers that wrap torch modules, and functions that combine layers."""

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
    """A Thinc layer that wraps a torch module.

    The module transforms the token embeddings of all texts, without padding.
    """

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
    """Create a Thinc layer that wraps a torch module. *Shape:* (tokens, nI) to (tokens, nO)

    The module is called with the concatenated token embeddings of all texts, and with the text lengths in tokens.

    name (str): Layer name.
    build (Callable): Function that builds the module from the widths `nI` and `nO`. It must be picklable.
    make_predictor (Callable): Function that builds the NumPy implementation from `Weights`. None if there is no NumPy
        implementation.
    width_in (int): Input width. If None, it is inferred from sample data or from the previous layer.
    width_out (int): Output width. If None, it is inferred from sample data.
    RETURNS (Model[List[Floats2d], List[Floats2d]]): The layer.
    """
    dims = {"nI": width_in, "nO": width_out}
    return RaggedLayer(name, forward, init=_init_ragged, dims=dims, shims=[TorchShim(build, make_predictor)])


def _init_ragged(layer: RaggedLayer, X: list[Floats2d] | None = None, Y: list[Floats2d] | None = None) -> None:
    """Infer missing widths from sample data. If both widths are known, build the torch module."""
    if X and layer.has_dim("nI") is None:
        layer.set_dim("nI", X[0].shape[1])
    if Y and layer.has_dim("nO") is None:
        layer.set_dim("nO", Y[0].shape[1])
    if layer.has_dim("nI") and layer.has_dim("nO"):
        layer.shim.build(nI=layer.get_dim("nI"), nO=layer.get_dim("nO"))


def projection(width: int, dropout: float = 0.0) -> RaggedModel:
    """Create a linear layer, which connects two layers with different widths.

    width (int): Output width.
    dropout (float): Dropout rate of the input.
    """
    return ragged_layer("project", partial(_build_projection, dropout=dropout), Projection, width_out=width)


def _build_projection(*, nI: int, nO: int, dropout: float) -> nn.Module:
    """Build a linear layer's torch module."""
    from .layers_torch import Projection

    return Projection(width_in=nI, width_out=nO, dropout=dropout)


class Chain(Layer):
    """A Thinc layer that passes an embedding layer's output to an encoder."""

    __slots__ = ()

    def compute(self, inputs: TokenBatch, backend: Backend) -> Rows:
        embed, encode = self.layers
        return backend.compute(encode, backend.compute(embed, inputs))

    def infer_widths(self) -> None:
        """Set the encoder's input width and the chain's output width, if they can be inferred."""
        embed, encode = self.layers
        if embed.has_dim("nO") and encode.has_dim("nI") is None:
            encode.set_dim("nI", embed.get_dim("nO"))
        if encode.has_dim("nO"):
            self.set_dim("nO", encode.get_dim("nO"))


def chain_layers(embed: EmbedModel, encode: RaggedModel) -> EmbedModel:
    """Create a layer that passes an embedding layer's output to an encoder, like Thinc's `chain`."""
    chain = Chain(f"{embed.name}>>{encode.name}", forward, init=_init_chain, dims={"nO": None}, layers=[embed, encode])
    chain.infer_widths()
    return chain


def _init_chain(chain: Chain, X: list[Doc] | None = None, Y: list[Floats2d] | None = None) -> None:
    """Initialize the embedding layer and the encoder.

    If the encoder's input width is unknown, it is inferred from the embeddings of a sample Doc.
    """
    embed, encode = chain.layers
    embed.initialize(X=X)
    encode.initialize(X=embed.predict(X[:1]) if X and encode.has_dim("nI") is None else None, Y=Y)
    chain.infer_widths()


class JoinedEmbedders(Layer):
    """A Thinc layer that concatenates the outputs of several embedding layers."""

    __slots__ = ()

    def compute(self, inputs: TokenBatch, backend: Backend) -> Rows:
        return backend.concatenate_columns([backend.compute(embedder, inputs) for embedder in self.layers])

    def infer_width(self) -> None:
        """Set the output width to the sum of all embedding layers' widths, if these are known."""
        if all(embedder.has_dim("nO") for embedder in self.layers):
            self.set_dim("nO", sum(embedder.get_dim("nO") for embedder in self.layers))


def join_embedders(*embedders: EmbedModel) -> EmbedModel:
    """Create a layer that concatenates the outputs of several embedding layers, like Thinc's `concatenate`."""
    name = "|".join(embedder.name for embedder in embedders)
    model = JoinedEmbedders(name, forward, init=_init_joined, dims={"nO": None}, layers=embedders)
    model.infer_width()
    return model


def _init_joined(model: JoinedEmbedders, X: list[Doc] | None = None, Y: Any = None) -> None:
    """Initialize all embedding layers, and set the output width."""
    for embedder in model.layers:
        embedder.initialize(X)
    model.infer_width()
