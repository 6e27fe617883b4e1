"""Variants that the papers compare with their architectures, in torch alone: each takes the place of one part.

    python -m research grid RUNS --systems flat-atssa-fixed-threshold --code research/variants.py ...

A setting of the architecture names the variant: `relation` of GRN, `selection` of FLAT-ATSSA, `streams` of MECT.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from spacy.util import registry
from torch import Tensor, nn

from spacy_tener.architectures.flat.flat_config import MectConfig
from spacy_tener.architectures.flat.flat_torch import SpanEncoder, SpanHeads, SpanLayer
from spacy_tener.architectures.flat.selection_torch import SelectiveAttention
from spacy_tener.architectures.grn.grn_torch import Relation
from spacy_tener.errors import RemedyError
from spacy_tener.nn.attention_torch import Weighting
from spacy_tener.nn.ragged_torch import Segments


def split_texts(lengths: Sequence[int], *arrays: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield the rows of each text. *Shape:* (tokens, width) each"""
    return zip(*(array.split(list(lengths)) for array in arrays), strict=True)


class DirectFusion(Relation):
    """DFN: the mean of r_ij, without gates. `r_ij = a_i + b_j`, so it is `a_i` and the mean of `b_j`."""

    def forward(self, x: Tensor, lengths: Sequence[int]) -> Tensor:
        """Relate the tokens of each sequence. *Shape:* (tokens, width) to (tokens, width)"""
        texts = split_texts(lengths, self.left(x), self.right(x))
        return torch.tanh(torch.cat([a + b.mean(0) for a, b in texts]))  # eq. 5 and 8


class GatedAttention(nn.Module):
    """GAttN: one gate for each pair of tokens, not one for each of its channels.

    width (int): d, of input and output.
    """

    def __init__(self, *, width: int) -> None:
        super().__init__()
        self.left = nn.Linear(width, 1)
        self.right = nn.Linear(width, 1, bias=False)
        # As in GRN's relation layer.
        bound = math.sqrt(6.0 / (2 * width))
        for half in (self.left, self.right):
            nn.init.uniform_(half.weight, -bound, bound)
        nn.init.zeros_(self.left.bias)

    def forward(self, x: Tensor, lengths: Sequence[int]) -> Tensor:
        """Relate the tokens of each sequence. *Shape:* (tokens, width) to (tokens, width)"""
        texts = split_texts(lengths, self.left(x), self.right(x), x)
        fused = [torch.sigmoid(a + b.T) @ rows / max(len(rows), 1) for a, b, rows in texts]  # eq. 7
        return torch.tanh(torch.cat(fused))  # eq. 8


class FixedThreshold(SelectiveAttention):
    """FLAT-ATSSA's "- DT": the threshold 0 for every query of every head."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        del self.threshold

    def thresholds(self, x: Tensor, sentences: Segments) -> Tensor:
        """Return T. *Shape:* (tokens, width) to (tokens, heads)"""
        return x.new_zeros(len(x), self.n_heads)


class LargestKeys(FixedThreshold):
    """The explicit sparse transformer (Zhao et al., 2019): the k largest keys alone, and nothing is drawn."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        if not self.selection.k:
            raise RemedyError("k must be at least 1 where the k largest keys are kept", "Set k = 3.")

    def thresholds(self, x: Tensor, sentences: Segments) -> Tensor:
        """Return T, above all scores: the smaller of it and the k-th largest score counts (eq. 8)."""
        # Not infinity, which padding would multiply by 0.
        return x.new_full((len(x), self.n_heads), torch.finfo(x.dtype).max)

    def weighting(self, *, sampled: bool) -> Weighting:
        return self.selection.decide


class SingleStream(SpanEncoder):
    """MECT's experiment A: one stream of characters joined with their radicals, which asks itself."""

    def __init__(self, config: MectConfig, characters: int, radicals: int, words: int) -> None:
        super().__init__(config, characters + radicals, words)

    def forward(self, characters: Tensor, radicals: Tensor, *words: Any) -> Tensor:
        """Encode characters. *Shape:* (characters, width) and (characters, radical width), to (characters, width)"""
        return super().forward(torch.cat((characters, radicals), dim=1), *words)


class ParallelLayer(SpanLayer):
    """A layer of two streams, each of which asks itself."""

    def heads(self, queries: Sequence[Tensor], *inputs: Any) -> list[SpanHeads]:
        return super().heads(queries[::-1], *inputs)


class ParallelStreams(SpanEncoder):
    """MECT's experiment B: two streams, each of which asks itself, and their fusion."""

    def __init__(self, config: MectConfig, *widths: int) -> None:
        super().__init__(config, *widths)
        self.layers = nn.ModuleList(ParallelLayer(config, len(self.inputs)) for _ in self.layers)


def direct_fusion() -> type[nn.Module]:
    """Equation 5 of GRN's paper, as GRN's `relation`."""
    return DirectFusion


def gated_attention() -> type[nn.Module]:
    """Equation 7 of GRN's paper, as GRN's `relation`."""
    return GatedAttention


def fixed_threshold() -> type[nn.Module]:
    """The threshold 0, as FLAT-ATSSA's `selection`."""
    return FixedThreshold


def largest_keys() -> type[nn.Module]:
    """The k largest keys alone, as FLAT-ATSSA's `selection`."""
    return LargestKeys


def single_stream() -> type[nn.Module]:
    """Experiment A, as MECT's `streams`."""
    return SingleStream


def parallel_streams() -> type[nn.Module]:
    """Experiment B, as MECT's `streams`."""
    return ParallelStreams


registry.misc.register("research.DFN.v1", func=direct_fusion)
registry.misc.register("research.GAttN.v1", func=gated_attention)
registry.misc.register("research.FixedThreshold.v1", func=fixed_threshold)
registry.misc.register("research.LargestKeys.v1", func=largest_keys)
registry.misc.register("research.SingleStream.v1", func=single_stream)
registry.misc.register("research.ParallelStreams.v1", func=parallel_streams)
