"""Runs of models over batches: all layers of this package as one computation, in numpy or as one graph of torch.

A layer of this package is a Thinc model whose attribute `compute` is a function of the layer, the run, and the Docs or
the rows that it reads. Rows are those of all tokens of the batch, joined: an array of numpy, or a tensor. Layers of
other libraries are called with Docs, as Thinc calls them: gradients pass on to them when the graph's are computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from spacy.tokens import Doc
from thinc.api import Model, Ops
from thinc.types import Floats2d

from ..batching.sequences import starts
from ..types import IntArray
from .batches import Indices, join_rows, split_rows
from .bridge import torch_shim

Rows = Any
"""Rows of all tokens or words of a batch: an array of numpy, or a tensor. *Shape* [N, width]"""
COMPUTE = "compute"


class HostRun:
    """A prediction in numpy, by the predictors of the layers' modules; of modules without one in torch, on the CPU.

    model: The model, of this package's layers or others.
    batch: Docs, or the rows of each text for an encoder.
    """

    training = False

    def __init__(self, model: Model[Any, Any], batch: Sequence[Any]) -> None:
        self.ops: Ops = model.ops
        self.lengths = [len(text) for text in batch]
        self.batch = batch
        self.output = self._compute(model)

    def _compute(self, model: Model[Any, Any]) -> Any:
        return self(model, self.batch if isinstance(self.batch[0], Doc) else self.rows(self.batch))

    def __call__(self, layer: Model[Any, Any], read: Any) -> Any:
        """Return the output of a layer for what it reads, Docs or rows."""
        compute = layer.attrs.get(COMPUTE)
        return compute(layer, self, read) if compute else self.foreign(layer, read)

    def foreign(self, layer: Model[Any, Any], docs: Sequence[Doc]) -> Rows:
        """Return the rows of another library's layer for Docs."""
        return self.rows(layer.predict(docs))

    def module(self, layer: Model[Any, Any], *inputs: Any) -> Rows:
        """Call a layer's module with rows, with `Indices`, and with what it reads on the host."""
        given = [own.array if isinstance(own, Indices) else own for own in inputs]
        return torch_shim(layer).predictor()(*given)

    def rows(self, arrays: Sequence[Floats2d], *, learn: bool = True) -> Rows:
        """Return the joined rows of all texts. learn: Compute their gradient in training."""
        return join_rows(self.ops, arrays).astype("f", copy=False)

    def beside(self, parts: Sequence[Rows]) -> Rows:
        """Join the columns of rows."""
        return np.concatenate(parts, axis=1)

    def with_means(self, rows: Rows, n_own: int, sizes: IntArray, places: IntArray) -> Rows:
        """Replace the rows after the first `n_own` by means of groups of the given sizes, which pass on no gradient.

        Return the result's rows at some places.
        """
        means = np.add.reduceat(rows[n_own:], starts(sizes), axis=0) / sizes[:, None].astype("f")
        return np.concatenate([rows[:n_own], means])[places]

    def split(self) -> list[Floats2d]:
        """Return the output as Thinc's layers do: an array for each text."""
        return split_rows(self.output, self.lengths)

    def backprop(self, gradient: list[Floats2d]) -> Sequence[Any]:
        raise ValueError("Cannot backpropagate through a prediction. Call begin_update() instead of predict().")
