"""The head of a tagger in NumPy: from vectors to emissions, and the CRF."""

from __future__ import annotations

from ..nn.graph import PaddedBatch, Value
from ..nn.layers_numpy import Linear, Weights
from ..sequences import Lengths
from ..types import FloatArray
from .scorer import PathScorer


class CRFHead:
    """Linear layer from tokens to the emissions of a CRF, and the CRF, its `scorer`."""

    def __init__(self, weights: Weights) -> None:
        self.emit = Linear(weights.part("emit"))
        # Copies: a decoding keeps its weights, and training changes those in the memory of a torch module.
        start, end, outside, inside = (weights[f"crf.{name}"].copy() for name in ("start", "end", "outside", "inside"))
        self.scorer = PathScorer((start, end, outside, inside))

    def __call__(self, tokens: FloatArray, lengths: Lengths) -> FloatArray:
        """Return the emissions. *Shape:* (tokens, width) to (tokens, tags)"""
        return self.emit(tokens)

    def write(self, tokens: Value, batch: PaddedBatch) -> Value:
        return self.emit.write(tokens)
