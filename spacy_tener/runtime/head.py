"""From encoded tokens to emissions of tags."""

from __future__ import annotations

from ..batching.sequences import Lengths
from ..crf.scorer import PathScorer
from ..types import FloatArray
from .dense import Linear
from .weights import Weights


class Emissions:
    """The linear layer of a CRF's head. scorer: the CRF behind it."""

    def __init__(self, weights: Weights) -> None:
        self.emit = Linear(weights.part("emit"))
        start, end, outside, inside = (weights[f"crf.{name}"] for name in ("start", "end", "outside", "inside"))
        self.scorer = PathScorer((start, end, outside, inside))

    def __call__(self, tokens: FloatArray, lengths: Lengths) -> FloatArray:
        """*Shape* [N, width] -> [N, n_tags]"""
        return self.emit(tokens)


class Projection:
    """A linear layer in the place of an encoder."""

    def __init__(self, weights: Weights) -> None:
        self.linear = Linear(weights.part("linear"))

    def __call__(self, tokens: FloatArray, lengths: Lengths) -> FloatArray:
        """*Shape* [N, width_in] -> [N, width_out]"""
        return self.linear(tokens)
