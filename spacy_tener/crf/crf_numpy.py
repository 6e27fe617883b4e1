"""Inference with a CRF in NumPy, without torch, and the last part of a tagger, its head.

`PathScorer` gives access to the algorithms of `decode` and `forward`:

    scorer = PathScorer((start, end, outside, inside))
    tags = scorer.decode(emissions, lengths)                # the best tag sequence of each text, concatenated
    candidates = scorer.k_best(emissions, lengths, k=5)     # the k best with their scores, for each text
    marginals = scorer.forward_backward(emissions, lengths).marginals()

As in `crf_torch`, the emissions of all sequences are concatenated, without padding. `allowed` is a mask of the tags
that each token may have; None allows all. *Shape:* (tokens, tags)
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

# Longer sequences, in tokens, are decoded in float64.
LONGEST_IN_FLOAT32 = 1024


@dataclass(frozen=True)
class PathScorer:
    """Inference with the weights of a CRF.

    weights (CRFArrays): The parameters start, end, outside and inside, see `crf.transitions`.
    """

    weights: CRFArrays

    @property
    def layout(self) -> TagLayout:
        """The ids of the tags."""
        return TagLayout(self.weights[-1].shape[1] // 2)

    def decode(self, emissions: AnyFloats, lengths: Lengths, allowed: BoolArray | None = None) -> IntArray:
        """Return the best tag sequence of each sequence, concatenated. *Shape:* (tokens, tags) to (tokens,)"""
        packing = packing_of(self.layout, emissions.shape, lengths)
        return viterbi(*self._decodable(emissions, packing, allowed), packing)

    def k_best(
        self, emissions: AnyFloats, lengths: Lengths, k: int, allowed: BoolArray | None = None
    ) -> list[list[ScoredPath]]:
        """Return the k best tag sequences of each sequence with their scores, best first, or all if there are fewer."""
        if k < 1:
            raise ValueError(f"k best paths need a k of 1 or more, got {k}")
        packing = packing_of(self.layout, emissions.shape, lengths)
        return list_viterbi(*self._decodable(emissions, packing, allowed), packing, k)

    def forward_backward(
        self, emissions: AnyFloats, lengths: Lengths, allowed: BoolArray | None = None, *, temperature: float = 1.0
    ) -> ForwardBackward:
        """Run the forward-backward algorithm, from whose scores `crf.marginals` computes probabilities and entropy.

        temperature (float): Divides all scores. Values above 1 make the distribution over tag sequences flatter.
        """
        # In float64: probabilities are only computed on request, and their accuracy matters more than their speed.
        scores = mask_emissions(emissions.astype(np.float64) / temperature, allowed)
        transitions = Transitions.of(*(weight.astype(np.float64) / temperature for weight in self.weights))
        packing = packing_of(self.layout, emissions.shape, lengths)
        return ForwardBackward.of(scores, transitions, packing)

    def _decodable(
        self, emissions: AnyFloats, packing: Packing, allowed: BoolArray | None
    ) -> tuple[AnyFloats, Transitions]:
        """Return masked emissions and the transitions, in float64 for long sequences. *Shape:* (tokens, tags)"""
        # The score of a path is a sum over its tokens: after 100,000 tokens, float32 cannot distinguish two paths.
        dtype = np.float64 if packing.lengths.max(initial=0) > LONGEST_IN_FLOAT32 else emissions.dtype
        transitions = self.transitions
        if transitions.table.dtype != dtype:
            transitions = Transitions.of(*(weight.astype(dtype) for weight in self.weights))
        return mask_emissions(emissions.astype(dtype, copy=False), allowed), transitions

    @cached_property
    def transitions(self) -> Transitions:
        """The transition scores, as tables over all tags."""
        return Transitions.of(*self.weights)


def packing_of(layout: TagLayout, shape: tuple[int, ...], lengths: Lengths) -> Packing:
    """Check the shape of the emissions, and return the `Packing` of the sequences."""
    if len(shape) != 2 or shape[1] != layout.n_tags:
        expected = f"(tokens, {layout.n_tags}) for {layout.n_labels} entity types"
        raise ValueError(f"emissions must have shape {expected}, got {shape}")
    return Packing.of(lengths, shape[0])


def mask_emissions(emissions: AnyFloats, allowed: BoolArray | None) -> AnyFloats:
    """Return the emissions with -inf for tags that are not allowed. *Shape:* (tokens, tags)"""
    return emissions if allowed is None else np.where(allowed, emissions, np.array(-np.inf, emissions.dtype))


class CRFHead:
    """The last part of a tagger in NumPy: a linear layer that computes the emissions, and the CRF as `scorer`."""

    def __init__(self, weights: Weights) -> None:
        self.emit = Linear(weights.part("emit"))
        # Copies, since these arrays share memory with the torch module, whose training would change a scorer in use.
        start, end, outside, inside = (weights[f"crf.{name}"].copy() for name in ("start", "end", "outside", "inside"))
        self.scorer = PathScorer((start, end, outside, inside))

    def __call__(self, tokens: FloatArray, lengths: Lengths) -> FloatArray:
        """Return the emissions. *Shape:* (tokens, width) to (tokens, tags)"""
        return self.emit(tokens)

    def write(self, tokens: Value, batch: PaddedBatch) -> Value:
        """Add the linear layer to the graph of `tokens`."""
        return self.emit.write(tokens)
