"""Variants of the architectures that the papers compare in ablations, as torch modules.

    python -m research grid RUNS --systems flat-atssa-fixed-threshold --code research/variants.py ...

Each variant is registered, and replaces one part of an architecture: `relation` of GRN, `selection` of FLAT-ATSSA, or
`streams` of MECT.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from spacy.util import registry
from torch import Tensor, nn

from spacy_tener.architectures.flat.flat_config import MectConfig
from spacy_tener.architectures.flat.flat_torch import SpanEncoder, SpanLayer, SpanProjections
from spacy_tener.architectures.flat.selection_torch import SelectiveAttention
from spacy_tener.architectures.grn.grn_torch import Relation
from spacy_tener.errors import UserError
from spacy_tener.nn.attention_torch import Weighting
from spacy_tener.nn.ragged_torch import Segments


def split_texts(lengths: Sequence[int], *arrays: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Split arrays of concatenated texts, and yield the rows of each text. *Shape:* (tokens, width)"""
    return zip(*(array.split(list(lengths)) for array in arrays), strict=True)


class DirectFusion(Relation):
    """GRN's ablation DFN: the mean of r_ij without gates.

    Since `r_ij = a_i + b_j`, the mean over j is `a_i` plus the mean of all `b_j`.
    """

    def forward(self, x: Tensor, lengths: Sequence[int]) -> Tensor:
        """Encode the tokens of each text in relation to all its tokens. *Shape:* (tokens, width) to (tokens, width)"""
        texts = split_texts(lengths, self.left(x), self.right(x))
        return torch.tanh(torch.cat([a + b.mean(0) for a, b in texts]))  # equations 5 and 8


class GatedAttention(nn.Module):
    """GRN's ablation GAttN: a scalar gate for each pair of tokens, instead of one gate per channel.

    width (int): Input and output width, d in the paper.
    """

    def __init__(self, *, width: int) -> None:
        super().__init__()
        self.left = nn.Linear(width, 1)
        self.right = nn.Linear(width, 1, bias=False)
        # The same initialization as in GRN's relation layer.
        bound = math.sqrt(6.0 / (2 * width))
        for half in (self.left, self.right):
            nn.init.uniform_(half.weight, -bound, bound)
        nn.init.zeros_(self.left.bias)

    def forward(self, x: Tensor, lengths: Sequence[int]) -> Tensor:
        """Encode the tokens of each text in relation to all its tokens. *Shape:* (tokens, width) to (tokens, width)"""
        texts = split_texts(lengths, self.left(x), self.right(x), x)
        fused = [torch.sigmoid(a + b.T) @ rows / max(len(rows), 1) for a, b, rows in texts]  # equation 7
        return torch.tanh(torch.cat(fused))  # equation 8


class FixedThreshold(SelectiveAttention):
    """FLAT-ATSSA's ablation "- DT": the threshold is 0 for all queries and heads."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        del self.threshold

    def thresholds(self, x: Tensor, sentences: Segments) -> Tensor:
        """Return the threshold T for each query and head. *Shape:* (tokens, width) to (tokens, heads)"""
        return x.new_zeros(len(x), self.n_heads)


class LargestKeys(FixedThreshold):
    """The explicit sparse transformer (Zhao et al., 2019): attention to the k largest keys only, without sampling."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        if not self.selection.k:
            raise UserError("k must be at least 1 where the k largest keys are kept", "Set k = 3.")

    def thresholds(self, x: Tensor, sentences: Segments) -> Tensor:
        """Return thresholds above all scores. Equation 8 applies the minimum of T and the k-th largest score, which is
        then always the k-th largest score."""
        # The largest finite number, since padding multiplies thresholds by 0, and infinity would result in NaN.
        return x.new_full((len(x), self.n_heads), torch.finfo(x.dtype).max)

    def weighting(self, *, sampled: bool) -> Weighting:
        return self.selection.decide


class SingleStream(SpanEncoder):
    """MECT's experiment A: one self-attention stream over the concatenated embeddings of characters and radicals."""

    def __init__(self, config: MectConfig, characters: int, radicals: int, words: int) -> None:
        super().__init__(config, characters + radicals, words)

    def forward(self, characters: Tensor, radicals: Tensor, *words: Any) -> Tensor:
        """Encode characters and radicals. *Shape:* (characters, width) and (characters, radical width) to (characters,
        width)"""
        return super().forward(torch.cat((characters, radicals), dim=1), *words)


class ParallelLayer(SpanLayer):
    """A layer of two streams with self-attention, instead of cross-attention between the streams."""

    def project(self, queries: Sequence[Tensor], *inputs: Any) -> list[SpanProjections]:
        return super().project(queries[::-1], *inputs)


class ParallelStreams(SpanEncoder):
    """MECT's experiment B: two streams with self-attention, which are fused at the end."""

    def __init__(self, config: MectConfig, *widths: int) -> None:
        super().__init__(config, *widths)
        self.layers = nn.ModuleList(ParallelLayer(config, len(self.inputs)) for _ in self.layers)


def direct_fusion() -> type[nn.Module]:
    """Use equation 5 of GRN's paper as `relation` of GRN."""
    return DirectFusion


def gated_attention() -> type[nn.Module]:
    """Use equation 7 of GRN's paper as `relation` of GRN."""
    return GatedAttention


def fixed_threshold() -> type[nn.Module]:
    """Use a threshold of 0 as `selection` of FLAT-ATSSA."""
    return FixedThreshold


def largest_keys() -> type[nn.Module]:
    """Attend to the k largest keys only as `selection` of FLAT-ATSSA."""
    return LargestKeys


def single_stream() -> type[nn.Module]:
    """Use the single stream of experiment A as `streams` of MECT."""
    return SingleStream


def parallel_streams() -> type[nn.Module]:
    """Use the parallel streams of experiment B as `streams` of MECT."""
    return ParallelStreams


registry.misc.register("research.DFN.v1", func=direct_fusion)
registry.misc.register("research.GAttN.v1", func=gated_attention)
registry.misc.register("research.FixedThreshold.v1", func=fixed_threshold)
registry.misc.register("research.LargestKeys.v1", func=largest_keys)
registry.misc.register("research.SingleStream.v1", func=single_stream)
registry.misc.register("research.ParallelStreams.v1", func=parallel_streams)
