"""`Layer`, the base class of this package's Thinc layers, and the back ends that run them.

The layers exchange *rows*: an array or tensor with the vectors of all tokens in a batch, concatenated. `NumpyBackend`
computes with NumPy arrays, `TorchBackend` of `backend_torch` with tensors. The tensors are connected by torch's graph,
so that the backward pass of all layers is a single one. The input of embedders is a `TokenBatch`. Layers of other
libraries are called with Docs or a list of arrays, as Thinc does.

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

# Name of the file with a component's model, in the directory of the component.
COMPONENT_MODEL = "model"
# The vectors of all tokens or words in a batch, concatenated: a NumPy array or a tensor. *Shape:* (units, width)
Rows = Any


# The input of a model for a batch of texts: a `TokenBatch` or, for a model without an embedder, an array for each text.
# *Shape:* (tokens, width)
Batch = TokenBatch | Sequence[Floats2d]


class Indices(NamedTuple):
    """Indices that a torch module needs on its own device. Other arrays among a module's arguments stay on the CPU."""

    array: IntArray


class Layer(Model[Any, Any], ABC):
    """Base class of this package's Thinc layers. A back end runs it together with the layers around it.

    Its Thinc forward function is `forward` of `nn/run.py`, with which layers of other libraries can call it.
    """

    __slots__ = ()

    @abstractmethod
    def compute(self, inputs: Any, backend: Backend) -> Any:
        """Compute the output of the layer.

        inputs (Any): A `TokenBatch` for an embedder, otherwise the rows of the layer below.
        backend (Backend): Runs sublayers and the layer's module.
        RETURNS (Any): The rows.
        """

    @property
    def shim(self) -> TorchShim:
        """The layer's torch module and its NumPy implementation."""
        return torch_shim(self)

    @property
    def packages(self) -> Sequence[str]:
        """Packages that a pipeline with this layer requires, in addition to this package."""
        return ()

    @property
    def encoders(self) -> Sequence[Pretrained]:
        """The layer's pretrained encoders, for meta.json."""
        return ()

    def select_subwords(self, read: Callable[[], Iterable[str]]) -> None:
        """Reduce the vocabulary of a multilingual encoder to the word pieces that the training texts need.

        read (Callable[[], Iterable[str]]): Returns the training texts.
        """

    def to_disk(self, path: Path | str) -> None:
        """Save the model. If it is the model of a component, add its requirements to the meta.json of the pipeline."""
        super().to_disk(path)
        if Path(path).name == COMPONENT_MODEL:
            save_requirements(Path(path).parent, self.walk())

    def _copy(self, seen: dict[int, Model[Any, Any] | Shim] | None = None) -> Layer:
        # Thinc's implementation returns an instance of `Model`, whatever the class of the layer is.
        copied = super()._copy(seen)
        copied.__class__ = type(self)
        return copied


class Backend(Protocol):
    """The interface of back ends, for layers.

    ops (Ops): The model's Thinc ops.
    lengths (list[int]): Token count per text.
    training (bool): Whether the batch is for training.
    """

    ops: Ops
    lengths: list[int]
    training: bool

    def run(self, model: Model[Any, Any], batch: Batch) -> Any:
        """Compute the output of a model for a batch."""

    def compute(self, layer: Model[Any, Any], inputs: Any) -> Any:
        """Compute the output of a layer of this package or of another library, for a `TokenBatch` or rows."""

    def call(self, layer: Layer, *inputs: Any) -> Rows:
        """Call the layer's module.

        inputs (Any): Rows, `Indices`, and arguments that the module uses on the CPU, such as lengths.
        """

    def join(self, arrays: Sequence[Floats2d], *, learn: bool = True) -> Rows:
        """Concatenate the arrays of all texts to rows.

        learn (bool): Whether their gradient is computed in training.
        """

    def split(self, rows: Rows) -> list[Floats2d]:
        """Split rows into an array for each text."""

    def concatenate_columns(self, parts: Sequence[Rows]) -> Rows:
        """Concatenate rows along the last dimension."""

    def replace_by_means(self, rows: Rows, start: int, sizes: IntArray, order: IntArray) -> Rows:
        """Replace groups of rows by their means, without gradient.

        rows (Rows): The rows. The groups follow each other, beginning with the row `start`.
        start (int): Index of the first row of the first group.
        sizes (IntArray): Number of rows of each group. *Shape:* (groups,)
        order (IntArray): Order of the result, as indices of the array with the rows before `start`, followed by the
            means.
        """


class NumpyBackend:
    """Runs layers for prediction on the CPU, with their NumPy implementations.

    ops (Ops): The model's Thinc ops.
    lengths (list[int]): Token count per text.
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
    """Convert the input of a layer as Thinc passes it, Docs or arrays, to the input of this package's layers."""
    if isinstance(texts, TokenBatch) or not isinstance(texts[0], Doc):
        return cast(Batch, texts)
    return TokenBatch.of(cast(Sequence[Doc], texts))


def text_lengths(batch: Batch) -> list[int]:
    """Return the number of tokens of each text."""
    if isinstance(batch, TokenBatch):
        lengths: list[int] = batch.lengths.tolist()
        return lengths
    return [len(array) for array in batch]


def thinc_input(inputs: Any) -> Any:
    """Convert a `TokenBatch` to Docs for a layer of another library, and return other input unchanged."""
    return inputs.docs if isinstance(inputs, TokenBatch) else inputs


def join_rows(ops: Ops, arrays: Sequence[Floats2d]) -> Floats2d:
    """Concatenate the arrays of a batch. *Shape:* (tokens, width) for each text to (all tokens, width)"""
    # The arrays of empty texts are left out: a transformer's listener doesn't know their width.
    filled = [array for array in arrays if len(array)] or list(arrays[:1])
    # The array is made contiguous, since torch doesn't support negative strides.
    joined = ops.xp.ascontiguousarray(filled[0]) if len(filled) == 1 else ops.xp.concatenate(filled, axis=0)
    return cast(Floats2d, joined)


def split_rows(array: Floats2d, lengths: Sequence[int]) -> list[Floats2d]:
    """Split an array into an array for each text, as views. The inverse of `join_rows`."""
    return [array[end - length : end] for end, length in zip(itertools.accumulate(lengths), lengths, strict=True)]


def is_out_of_memory(error: Exception) -> bool:
    """Return True for an out-of-memory error of a GPU. The classes of torch and of CuPy have the same name."""
    return any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__)
