"""CRF inference in NumPy, for prediction without torch.

`CRFPredictor` decodes tag sequences and computes probabilities:

    predictor = CRFPredictor((start, end, outside, inside))
    tags = predictor.decode(emissions, lengths)                # the best tag sequence of each text, concatenated
    candidates = predictor.k_best(emissions, lengths, k=5)     # the k best tag sequences of each text, with scores
    marginals = predictor.forward_backward(emissions, lengths).marginals()

`CRFHead` contains a `CRFPredictor` and the linear layer that computes its emissions. All methods have these arguments:

emissions (AnyFloats): Score of each tag at each token. The texts in a batch are concatenated without padding. *Shape:*
    (tokens, tags)
lengths (Lengths): Number of tokens in each text. *Shape:* (texts,)
allowed (BoolArray | None): Mask of the allowed tags for each token. None allows all tags. *Shape:* (tokens, tags)
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

# Maximum sequence length in tokens that is decoded in float32. Longer sequences are decoded in float64.
LONGEST_IN_FLOAT32 = 1024


@dataclass(frozen=True)
class CRFPredictor:
    """CRF inference with trained parameters.

    weights (CRFArrays): The CRF parameters start, end, outside and inside. See `crf.transitions`.
    """

    weights: CRFArrays

    @property
    def layout(self) -> TagLayout:
        """Return the tag layout, which defines the id of each tag."""
        return TagLayout(self.weights[-1].shape[1] // 2)

    def decode(self, emissions: AnyFloats, lengths: Lengths, allowed: BoolArray | None = None) -> IntArray:
        """Return the best tag sequences for a batch, concatenated. *Shape:* (tokens, tags) to (tokens,)"""
        packing = packing_of(self.layout, emissions.shape, lengths)
        return viterbi(*self._decodable(emissions, packing, allowed), packing)

    def k_best(
        self, emissions: AnyFloats, lengths: Lengths, k: int, allowed: BoolArray | None = None
    ) -> list[list[ScoredPath]]:
        """Return the k best tag sequences for each text with their scores, best first.

        Short texts may have fewer than k tag sequences.
        """
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        packing = packing_of(self.layout, emissions.shape, lengths)
        return list_viterbi(*self._decodable(emissions, packing, allowed), packing, k)

    def forward_backward(
        self, emissions: AnyFloats, lengths: Lengths, allowed: BoolArray | None = None, *, temperature: float = 1.0
    ) -> ForwardBackward:
        """Run the forward-backward algorithm.

        The functions in `crf.marginals` compute probabilities and the entropy from the result.

        temperature (float): All scores are divided by this value. Values above 1 flatten the distribution over tag
            sequences.
        """
        # Use float64, since the accuracy of probabilities matters more than speed.
        scores = mask_emissions(emissions.astype(np.float64) / temperature, allowed)
        transitions = Transitions.of(*(weight.astype(np.float64) / temperature for weight in self.weights))
        packing = packing_of(self.layout, emissions.shape, lengths)
        return ForwardBackward.of(scores, transitions, packing)

    def _decodable(
        self, emissions: AnyFloats, packing: Packing, allowed: BoolArray | None
    ) -> tuple[AnyFloats, Transitions]:
        """Return the emissions and transition scores for decoding.

        Emissions of tags that are not allowed are -inf. If the batch contains a long sequence, all scores are float64.
        """
        # The score of a tag sequence is a sum over its tokens. In float32, the rounding error of a long sum can exceed
        # the difference between two tag sequences.
        dtype = np.float64 if packing.lengths.max(initial=0) > LONGEST_IN_FLOAT32 else emissions.dtype
        transitions = self.transitions
        if transitions.table.dtype != dtype:
            transitions = Transitions.of(*(weight.astype(dtype) for weight in self.weights))
        return mask_emissions(emissions.astype(dtype, copy=False), allowed), transitions

    @cached_property
    def transitions(self) -> Transitions:
        """Return the transition matrix between all tags, with the start and end scores."""
        return Transitions.of(*self.weights)


def packing_of(layout: TagLayout, shape: tuple[int, ...], lengths: Lengths) -> Packing:
    """Return the `Packing` for a batch. Raises a ValueError if the emissions have the wrong shape."""
    if len(shape) != 2 or shape[1] != layout.n_tags:
        expected = f"(tokens, {layout.n_tags}) for {layout.n_labels} entity types"
        raise ValueError(f"emissions must have shape {expected}, got {shape}")
    return Packing.of(lengths, shape[0])


def mask_emissions(emissions: AnyFloats, allowed: BoolArray | None) -> AnyFloats:
    """Set the emissions to -inf for all tags that are not allowed. *Shape:* (tokens, tags)"""
    return emissions if allowed is None else np.where(allowed, emissions, np.array(-np.inf, emissions.dtype))


class CRFHead:
    """NumPy implementation of a tagger's output layer: a linear layer and a CRF.

    weights (Weights): Parameters of `crf_torch.CRFHead`.
    """

    def __init__(self, weights: Weights) -> None:
        self.emit = Linear(weights.part("emit"))
        # Copy the CRF parameters, because the arrays share memory with the torch module. Further training must not
        # change them.
        start, end, outside, inside = (weights[f"crf.{name}"].copy() for name in ("start", "end", "outside", "inside"))
        self.crf = CRFPredictor((start, end, outside, inside))

    def __call__(self, tokens: FloatArray, lengths: Lengths) -> FloatArray:
        """Compute the emissions. *Shape:* (tokens, width) to (tokens, tags)"""
        return self.emit(tokens)

    def write(self, tokens: Value, batch: PaddedBatch) -> Value:
        """Add the linear layer to the ONNX graph. *Shape:* (texts, length, width) to (texts, length, tags)"""
        return self.emit.write(tokens)
