"""The CRF in NumPy, and the head of a tagger: best paths, k best paths, marginals and probabilities of entities.

`allowed` is always a mask of the tags that each token may have; None allows all. *Shape:* (units, tags)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..nn.graph import PaddedBatch, Value
from ..nn.layers_numpy import Linear, Weights
from ..processes import cached_property
from ..sequences import Lengths, Packing
from ..tagging import TagLayout
from ..types import AnyFloats, BoolArray, FloatArray, IntArray
from .decode import ScoredPath, list_viterbi, viterbi
from .forward import ForwardBackward
from .transitions import CRFArrays, Transitions

LONGEST_IN_FLOAT32 = 1024
"""Sequences of more tokens are decoded in float64."""


@dataclass(frozen=True)
class PathScorer:
    """Inference with the weights of a CRF.

    weights (CRFArrays): The arrays start, end, outside and inside: see `Transitions`.
    """

    weights: CRFArrays

    @property
    def layout(self) -> TagLayout:
        return TagLayout(self.weights[-1].shape[1] // 2)

    def decode(self, emissions: AnyFloats, lengths: Lengths, allowed: BoolArray | None = None) -> IntArray:
        """Return the best path of each sequence, joined. *Shape:* (units, tags) to (units,)"""
        packing = packing_of(self.layout, emissions.shape, lengths)
        return viterbi(*self._decodable(emissions, packing, allowed), packing)

    def k_best(
        self, emissions: AnyFloats, lengths: Lengths, k: int, allowed: BoolArray | None = None
    ) -> list[list[ScoredPath]]:
        """Return the k best paths of each sequence with their scores, best first; fewer where fewer exist."""
        if k < 1:
            raise ValueError(f"k best paths need a k of 1 or more, got {k}")
        packing = packing_of(self.layout, emissions.shape, lengths)
        return list_viterbi(*self._decodable(emissions, packing, allowed), packing, k)

    def passes(
        self, emissions: AnyFloats, lengths: Lengths, allowed: BoolArray | None = None, *, temperature: float = 1.0
    ) -> ForwardBackward:
        """Run the forward-backward algorithm, from which marginals, spans' probabilities and entropy are computed.

        temperature (float): Divides all scores. Above 1, the distribution over paths is flatter.
        """
        # In float64: marginals are computed rarely, and their accuracy matters more than their speed.
        scores = mask_emissions(emissions.astype(np.float64) / temperature, allowed)
        transitions = Transitions.of(*(weight.astype(np.float64) / temperature for weight in self.weights))
        packing = packing_of(self.layout, emissions.shape, lengths)
        return ForwardBackward.of(scores, transitions, packing)

    def _decodable(
        self, emissions: AnyFloats, packing: Packing, allowed: BoolArray | None
    ) -> tuple[AnyFloats, Transitions]:
        """Return masked emissions and the transitions, both in float64 for long sequences. *Shape:* (units, tags)"""
        # Scores of paths add up: over a hundred thousand tokens, float32 would not tell two paths apart.
        dtype = np.float64 if packing.lengths.max(initial=0) > LONGEST_IN_FLOAT32 else emissions.dtype
        transitions = self.transitions
        if transitions.table.dtype != dtype:
            transitions = Transitions.of(*(weight.astype(dtype) for weight in self.weights))
        return mask_emissions(emissions.astype(dtype, copy=False), allowed), transitions

    @cached_property
    def transitions(self) -> Transitions:
        return Transitions.of(*self.weights)


def packing_of(layout: TagLayout, shape: tuple[int, ...], lengths: Lengths) -> Packing:
    """Check the shape of emissions and return their packing."""
    if len(shape) != 2 or shape[1] != layout.n_tags:
        expected = f"(tokens, {layout.n_tags}) for {layout.n_labels} entity types"
        raise ValueError(f"emissions must have shape {expected}, got {shape}")
    return Packing.of(lengths, shape[0])


def mask_emissions(emissions: AnyFloats, allowed: BoolArray | None) -> AnyFloats:
    """Return the emissions with -inf for tags that are not allowed. *Shape:* (units, tags)"""
    return emissions if allowed is None else np.where(allowed, emissions, np.array(-np.inf, emissions.dtype))


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
