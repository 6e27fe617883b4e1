"""Layers of this package, and the back ends that compute them: NumPy here, torch in `backend_torch`.

Layers exchange rows: those of all tokens or words of a batch, joined. They are arrays in NumPy, and tensors with their
graph in torch, so that a training step is one graph however many layers a model has. The input of embedders is a
`TokenBatch`. Layers of other libraries are called as Thinc calls them, with Docs and arrays.
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

COMPONENT_MODEL = "model"
"""Name of the file with a component's model, in the component's folder."""
Rows = Any
"""Rows of all tokens or words of a batch: an array or a tensor. *Shape:* (units, width)"""


Batch = TokenBatch | Sequence[Floats2d]
"""The input of a model for a batch of texts: their tokens or, for a model without an embedder, an array for each text.
*Shape:* (tokens, width)"""


class Indices(NamedTuple):
    """Indices that a module needs on its own device. Other arrays stay on the host."""

    array: IntArray


class Layer(Model[Any, Any], ABC):
    """A layer of this package: a Thinc model that a back end computes, as one with the layers around it.

    Its forward function in Thinc is `forward` of `nn/run.py`, by which layers of other libraries call it.
    """

    __slots__ = ()

    @abstractmethod
    def compute(self, inputs: Any, backend: Backend) -> Any:
        """Return the layer's rows for a `TokenBatch`, or for the rows of the layer below."""

    @property
    def shim(self) -> TorchShim:
        """The layer's module, and its form in NumPy."""
        return torch_shim(self)

    @property
    def packages(self) -> Sequence[str]:
        """Packages that a pipeline with this layer requires, beside this one."""
        return ()

    @property
    def encoders(self) -> Sequence[Pretrained]:
        """Pretrained encoders of this layer."""
        return ()

    def select_pieces(self, read: Callable[[], Iterable[str]]) -> None:
        """Keep the word pieces of a multilingual encoder that the training texts need.

        read (Callable[[], Iterable[str]]): Returns the training texts.
        """

    def to_disk(self, path: Path | str) -> None:
        """Save the model; what the model of a component needs goes to the meta.json of the component's pipeline."""
        super().to_disk(path)
        if Path(path).name == COMPONENT_MODEL:
            save_requirements(Path(path).parent, self.walk())

    def _copy(self, seen: dict[int, Model[Any, Any] | Shim] | None = None) -> Layer:
        # Thinc copies every layer as a plain `Model`.
        copied = super()._copy(seen)
        copied.__class__ = type(self)
        return copied


class Backend(Protocol):
    """What layers ask of the library that computes them."""

    ops: Ops
    lengths: list[int]
    """Tokens of each text."""
    training: bool

    def run(self, model: Model[Any, Any], batch: Batch) -> Any:
        """Return a model's rows for a batch."""

    def compute(self, layer: Model[Any, Any], inputs: Any) -> Any:
        """Return the rows of a layer, of this package or another one, for a `TokenBatch` or rows."""

    def call(self, layer: Layer, *inputs: Any) -> Rows:
        """Call a layer's module with rows, with `Indices`, and with what it reads on the host."""

    def join(self, arrays: Sequence[Floats2d], *, learn: bool = True) -> Rows:
        """Return the rows of all texts.

        learn (bool): Whether their gradient is computed in training.
        """

    def split(self, rows: Rows) -> list[Floats2d]:
        """Return one array for each text."""

    def concatenate_columns(self, parts: Sequence[Rows]) -> Rows:
        """Return wider rows, with the columns of all parts."""

    def replace_by_means(self, rows: Rows, start: int, sizes: IntArray, order: IntArray) -> Rows:
        """Replace the rows from `start` on by means of groups, which pass on no gradient.

        sizes (IntArray): Rows of each group. *Shape:* (groups,)
        order (IntArray): The rows of the result, by index: first the rows before `start`, then the means.
        """


class NumpyBackend:
    """Predictions on the CPU, by the NumPy forms of the layers' modules."""

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
    """Return the input of a model as Thinc passes it, Docs or arrays, as this package's layers take it."""
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
    """Return the input of a layer of another library, which takes Docs instead of a `TokenBatch`."""
    return inputs.docs if isinstance(inputs, TokenBatch) else inputs


def join_rows(ops: Ops, arrays: Sequence[Floats2d]) -> Floats2d:
    """Join the arrays of a batch. *Shape:* (tokens, width) for each text, to (all tokens, width)"""
    # A transformer's listener does not know how wide the rows of an empty text are.
    filled = [array for array in arrays if len(array)] or list(arrays[:1])
    # Contiguous, since torch crashes on an array with negative strides.
    joined = ops.xp.ascontiguousarray(filled[0]) if len(filled) == 1 else ops.xp.concatenate(filled, axis=0)
    return cast(Floats2d, joined)


def split_rows(array: Floats2d, lengths: Sequence[int]) -> list[Floats2d]:
    """Undo `join_rows`, by views."""
    return [array[end - length : end] for end, length in zip(itertools.accumulate(lengths), lengths, strict=True)]


def is_out_of_memory(error: Exception) -> bool:
    """Return True for a GPU's out-of-memory error. torch and CuPy both name it OutOfMemoryError."""
    return any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__)
