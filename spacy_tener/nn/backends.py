"""`Layer`, the base class for all Thinc layers in this package, and `Backend`, the interface of the backends that run
them.

Layers pass each other the embeddings of all tokens in a batch, concatenated to one array. `NumpyBackend` computes with
NumPy arrays. `TorchBackend` computes with torch tensors, so that autograd computes the backward pass through all layers
at once. Embedding layers take a `TokenBatch` as input. Layers from other libraries can be part of a model, too. They
get Docs or a list of arrays.

    class Chain(Layer):
        def compute(self, inputs: TokenBatch, backend: Backend) -> Rows:
            embed, encode = self.layers
            return backend.compute(encode, backend.compute(embed, inputs))
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
from spacy.tokens import Doc
from thinc.api import Model, Ops
from thinc.shims import Shim
from thinc.types import Floats2d

from ..features.tokens import TokenBatch
from ..processes import one_thread
from ..requirements import Pretrained, save_requirements
from ..sequences import starts
from ..types import IntArray
from .shim import TorchShim, torch_shim

# File name of a component's model, in the component's directory.
COMPONENT_MODEL = "model"
# Embeddings of all tokens or words in a batch, as a NumPy array or a torch tensor. *Shape:* (units, width)
Rows = Any


# The input of a model. Models with an embedding layer take a `TokenBatch`, other models an array for each text.
# *Shape:* (tokens, width) each
Batch = TokenBatch | Sequence[Floats2d]


class Indices(NamedTuple):
    """An index array that is copied to the torch module's device. Other arrays remain on the CPU."""

    array: IntArray


class Layer(Model[Any, Any], ABC):
    """Base class for all Thinc layers in this package. Subclasses implement `compute`.

    Other layers in this package call the method `compute`. Layers from other libraries call the layer as a Thinc model.
    """

    __slots__ = ()

    @abstractmethod
    def compute(self, inputs: Any, backend: Backend) -> Any:
        """Compute the layer's output.

        inputs (Any): A `TokenBatch` for embedding layers. For other layers, the output of the previous layer.
        backend (Backend): Runs sublayers and this layer's module.
        RETURNS (Any): The token embeddings. *Shape:* (tokens, width)
        """

    @property
    def shim(self) -> TorchShim:
        """The shim with this layer's torch module and NumPy implementation."""
        return torch_shim(self)

    @property
    def packages(self) -> Sequence[str]:
        """Python packages that are required to use this layer, in addition to spacy-tener."""
        return ()

    @property
    def encoders(self) -> Sequence[Pretrained]:
        """The pretrained encoders in this layer, which are listed in the pipeline's meta.json."""
        return ()

    def select_subwords(self, read: Callable[[], Iterable[str]]) -> None:
        """Remove unused subwords from a multilingual encoder's vocabulary. By default, do nothing.

        read (Callable[[], Iterable[str]]): Function that returns the training texts.
        """

    def to_disk(self, path: Path | str) -> None:
        """Save the model. For a component's model, also add the model's requirements to the pipeline's meta.json."""
        super().to_disk(path)
        if Path(path).name == COMPONENT_MODEL:
            save_requirements(Path(path).parent, self.walk())

    def _copy(self, seen: dict[int, Model[Any, Any] | Shim] | None = None) -> Layer:
        # Thinc always copies to an instance of `Model`, so the class has to be restored.
        copied = super()._copy(seen)
        copied.__class__ = type(self)
        return copied


class Backend(Protocol):
    """The common interface of all backends. A backend runs models with NumPy or torch.

    ops (Ops): The model's Thinc ops.
    lengths (list[int]): Text lengths in tokens.
    training (bool): Whether the batch is used for training.
    """

    ops: Ops
    lengths: list[int]
    training: bool

    def run(self, model: Model[Any, Any], batch: Batch) -> Any:
        """Run a model for a batch."""

    def compute(self, layer: Model[Any, Any], inputs: Any) -> Any:
        """Compute the output of a layer. Layers from other libraries are supported.

        layer (Model): The layer.
        inputs (Any): A `TokenBatch` for embedding layers. For other layers, the output of the previous layer.
        """

    def call(self, layer: Layer, *inputs: Any) -> Rows:
        """Call a layer's torch module or NumPy implementation.

        inputs (Any): The arguments: token embeddings, `Indices`, or values that the module uses on the CPU, such as
            lengths.
        """

    def join(self, arrays: Sequence[Floats2d], *, learn: bool = True) -> Rows:
        """Concatenate the arrays of all texts.

        learn (bool): Whether to compute the gradient with respect to the arrays in training.
        """

    def split(self, rows: Rows) -> list[Floats2d]:
        """Split token embeddings into an array for each text."""

    def concatenate_columns(self, parts: Sequence[Rows]) -> Rows:
        """Concatenate embeddings along the last dimension."""

    def replace_by_means(self, rows: Rows, start: int, sizes: IntArray, order: IntArray) -> Rows:
        """Replace each group of consecutive embeddings with its mean, and reorder the result.

        The means have no gradient.

        rows (Rows): The embeddings. *Shape:* (rows, width)
        start (int): Index at which the first group starts. Embeddings before this index are not changed.
        sizes (IntArray): Number of embeddings in each group. *Shape:* (groups,)
        order (IntArray): Gather index that reorders the result. The indices refer to the embeddings before `start`,
            followed by the group means. *Shape:* (result rows,)
        """


class NumpyBackend:
    """Backend that runs the NumPy implementations of layers, for predictions on a CPU.

    ops (Ops): The model's Thinc ops.
    lengths (list[int]): Text lengths in tokens.
    """

    training = False

    def __init__(self, ops: Ops, lengths: list[int]) -> None:
        self.ops = ops
        self.lengths = lengths

    def run(self, model: Model[Any, Any], batch: Batch) -> Any:
        with one_thread:
            return self.compute(model, batch if isinstance(batch, TokenBatch) else self.join(batch))

    def compute(self, layer: Model[Any, Any], inputs: Any) -> Any:
        if isinstance(layer, Layer):
            return layer.compute(inputs, self)
        return self.join(layer.predict(thinc_input(inputs)))

    def call(self, layer: Layer, *inputs: Any) -> Rows:
        return layer.shim.predictor()(*(part.array if isinstance(part, Indices) else part for part in inputs))

    def join(self, arrays: Sequence[Floats2d], *, learn: bool = True) -> Rows:
        return join_rows(self.ops, arrays).astype("f", copy=False)

    def split(self, rows: Rows) -> list[Floats2d]:
        return split_rows(rows, self.lengths)

    def concatenate_columns(self, parts: Sequence[Rows]) -> Rows:
        return np.concatenate(parts, axis=1)

    def replace_by_means(self, rows: Rows, start: int, sizes: IntArray, order: IntArray) -> Rows:
        means = np.add.reduceat(rows[start:], starts(sizes), axis=0) / sizes[:, None].astype("f")
        return np.concatenate([rows[:start], means])[order]


def as_batch(texts: Sequence[Doc] | Batch) -> Batch:
    """Convert Docs to a `TokenBatch`. Other inputs are returned unchanged."""
    if isinstance(texts, TokenBatch) or not isinstance(texts[0], Doc):
        return cast(Batch, texts)
    return TokenBatch.of(cast(Sequence[Doc], texts))


def text_lengths(batch: Batch) -> list[int]:
    """Return the number of tokens in each text."""
    if isinstance(batch, TokenBatch):
        lengths: list[int] = batch.lengths.tolist()
        return lengths
    return [len(array) for array in batch]


def thinc_input(inputs: Any) -> Any:
    """Convert a `TokenBatch` to Docs, for layers from other libraries. Other inputs are returned unchanged."""
    return inputs.docs if isinstance(inputs, TokenBatch) else inputs


def join_rows(ops: Ops, arrays: Sequence[Floats2d]) -> Floats2d:
    """Concatenate the arrays of all texts. *Shape:* (tokens in the text, width) each to (tokens, width)"""
    # Skip empty texts, since their arrays can have a wrong width if they come from a transformer listener.
    filled = [array for array in arrays if len(array)] or list(arrays[:1])
    # Make the array contiguous, since torch does not support negative strides.
    joined = ops.xp.ascontiguousarray(filled[0]) if len(filled) == 1 else ops.xp.concatenate(filled, axis=0)
    return cast(Floats2d, joined)


def split_rows(array: Floats2d, lengths: Sequence[int]) -> list[Floats2d]:
    """Split an array into a view for each text. This is the inverse of `join_rows`."""
    return [array[end - length : end] for end, length in zip(itertools.accumulate(lengths), lengths, strict=True)]


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an exception is a GPU out-of-memory error, raised by torch or by CuPy."""
    # Compare names, so that neither library has to be imported.
    return any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__)
