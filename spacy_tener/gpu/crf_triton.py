"""Forward-backward algorithm of the CRF on a GPU: one Triton kernel for each direction, a program for each sequence.

With emissions `e` and transitions `T`, -inf for forbidden ones:

    a_1 = start + e_1        a_t[j] = e_t[j] + log sum_i exp(a_(t-1)[i] + T[i, j])
    b_n = end                b_t[i] = log sum_j exp(T[i, j] + e_(t+1)[j] + b_(t+1)[j])
                             log Z = log sum_j exp(a_n[j] + end[j])

`a_t` and `b_t` are kept relative to their maximum. The sum of these maxima, in float64, is only added to log Z, at the
end. The gradients of log Z are probabilities, which a common shift of all scores does not change:

    d log Z / d e_t[j]   =       softmax over j of      a_t[j] + b_t[j]
    d log Z / d T[i, j]  = sum_t softmax over i and j of a_(t-1)[i] + T[i, j] + e_t[j] + b_t[j]

so their errors do not grow with the length of a text. A program holds `T` in registers, its tags padded to a power of
two, and each sequence adds up its own counts of transitions: nothing depends on the order in which programs run.

`layers.crf` does everything else, on the CPU: training without Triton, decoding, and scores of single paths.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..batching.sequences import Packing
from ..crf.transitions import parameter_of_score
from ..tagging import TagLayout
from .devices import all_on_device

MOST_TAGS = 128
"""Maximum number of tags whose table fits into a program's registers."""


@triton.jit
def _finite_max(x, axis: tl.constexpr):
    """The maximum along an axis, or 0 where that is -inf, so that it can be subtracted."""
    largest = tl.max(x, axis)
    return tl.where(largest == float("-inf"), 0.0, largest)


@triton.jit
def _row(table, row, tag, K, real):
    """A row of a [N, K] table in float32; -inf for tags that are padding."""
    return tl.load(table + row * K + tag, mask=real, other=float("-inf")).to(tl.float32)


@triton.jit
def _emitted(emissions, allowed, row, tag, K, real, MASKED: tl.constexpr):
    """The emissions of a token, -inf where a tag is not allowed."""
    scores = _row(emissions, row, tag, K, real)
    if MASKED:
        scores = tl.where(tl.load(allowed + row * K + tag, mask=real, other=0) != 0, scores, float("-inf"))
    return scores


@triton.jit
def _table(spread, tag, K, real):
    """The transitions, `[from, to]`. *Shape:* (tags, tags)"""
    both = real[:, None] & real[None, :]
    return tl.load(spread + 2 * K + tag[:, None] * K + tag[None, :], mask=both, other=float("-inf"))


@triton.jit
def forward_kernel(
    emissions, allowed, tags, begins, lengths, spread, alpha, sums, K, P: tl.constexpr, MASKED: tl.constexpr,
    TAGGED: tl.constexpr,
):  # fmt: skip
    """Write a_t of each token, and log Z of each sequence, minus the score of its tags if given."""
    sequence = tl.program_id(0)
    begin, length = tl.load(begins + sequence), tl.load(lengths + sequence)
    tag = tl.arange(0, P)
    real = tag < K
    table = _table(spread, tag, K, real)
    end = _row(spread, 1, tag, K, real)
    ways = _row(spread, 0, tag, K, real)
    # A sequence without tokens has one path, of score 0.
    ended = tl.where(tag == 0, 0.0, float("-inf"))
    total = tl.full((), 0.0, tl.float64)
    previous = tl.full((), 0, tl.int64)
    for t in range(length):
        row = begin + t
        ways += _emitted(emissions, allowed, row, tag, K, real, MASKED)
        largest = _finite_max(ways, 0)
        ways -= largest
        total += largest.to(tl.float64)
        tl.store(alpha + row * K + tag, ways, mask=real)
        ended = ways + end
        if TAGGED:
            current = tl.load(tags + row)
            came = tl.where(t == 0, current, 2 * K + previous * K + current)
            total -= tl.load(emissions + row * K + current).to(tl.float64) + tl.load(spread + came).to(tl.float64)
            previous = current
        joint = ways[:, None] + table
        top = _finite_max(joint, 0)
        ways = top + tl.log(tl.sum(tl.exp(joint - top[None, :]), 0))
    largest = _finite_max(ended, 0)
    total += (largest + tl.log(tl.sum(tl.exp(ended - largest), 0))).to(tl.float64)
    if TAGGED:
        total -= tl.load(spread + K + previous, mask=length > 0, other=0.0).to(tl.float64)
    tl.store(sums + sequence, total)


@triton.jit
def backward_kernel(
    emissions, allowed, tags, begins, lengths, spread, alpha, weights, d_emissions, d_spread, K, P: tl.constexpr,
    MASKED: tl.constexpr, TAGGED: tl.constexpr,
):  # fmt: skip
    """Write the gradients of emissions, and those of start, end and transitions for each sequence."""
    sequence = tl.program_id(0)
    begin, length = tl.load(begins + sequence), tl.load(lengths + sequence)
    weight = tl.load(weights + sequence).to(tl.float32)
    tag = tl.arange(0, P)
    real = tag < K
    table = _table(spread, tag, K, real)
    behind = _row(spread, 1, tag, K, real)
    # Kahan summation of the counts: `lost` is the rounding error of the last addition.
    moves = tl.zeros((P, P), tl.float32)
    lost = tl.zeros((P, P), tl.float32)
    first = tl.zeros((P,), tl.float32)
    last = tl.zeros((P,), tl.float32)
    for back in range(length):
        t = length - 1 - back
        row = begin + t
        through = _row(alpha, row, tag, K, real) + behind
        likely = tl.exp(through - _finite_max(through, 0))
        whole = tl.sum(likely, 0)
        first = likely * (weight / tl.where(whole == 0.0, 1.0, whole))
        if TAGGED:
            current = tl.load(tags + row)
            first -= tl.where(tag == current, weight, 0.0)
        tl.store(d_emissions + row * K + tag, first, mask=real)
        last = tl.where(back == 0, first, last)
        onward = table + (_emitted(emissions, allowed, row, tag, K, real, MASKED) + behind)[None, :]
        before = _row(alpha, row - 1, tag, K, real & (t > 0))
        joint = before[:, None] + onward
        likely_moves = tl.exp(joint - _finite_max(tl.max(joint, 1), 0))
        whole = tl.sum(tl.sum(likely_moves, 1), 0)
        added = likely_moves * (weight / tl.where(whole == 0.0, 1.0, whole))
        if TAGGED:
            came = tl.load(tags + row - 1, mask=t > 0, other=-1)
            added -= tl.where((tag[:, None] == came) & (tag[None, :] == current), weight, 0.0)
        added -= lost
        counted = moves + added
        lost = (counted - moves) - added
        moves = counted
        top = _finite_max(onward, 1)
        behind = top + tl.log(tl.sum(tl.exp(onward - top[:, None]), 1))
        behind -= _finite_max(behind, 0)
    own = d_spread + sequence * (2 * K + K * K)
    tl.store(own + tag, first, mask=real)
    tl.store(own + K + tag, last, mask=real)
    tl.store(own + 2 * K + tag[:, None] * K + tag[None, :], moves, mask=real[:, None] & real[None, :])


@dataclass(frozen=True)
class Batch:
    """Sequences of a batch on a device.

    begins, lengths: *Shape:* (sequences,)
    allowed: a mask of tags. *Shape:* (units, tags)
    tags: one path of each sequence. *Shape:* (units,)
    """

    layout: TagLayout
    begins: Tensor
    lengths: Tensor
    allowed: Tensor | None
    tags: Tensor | None

    @classmethod
    def of(
        cls, layout: TagLayout, packing: Packing, allowed: Tensor | None, tags: Tensor | None, device: torch.device
    ) -> Batch:
        arrays = packing.offsets, packing.lengths, None if allowed is None else allowed.cpu(), tags
        return cls(layout, *all_on_device(arrays, device))

    def launch(self, kernel: Any, emissions: Tensor, spread: Tensor, alpha: Tensor, *others: Tensor) -> None:
        n_tags = self.layout.n_tags
        padded = max(16, triton.next_power_of_2(n_tags))
        # Placeholders for absent tensors, which the kernels do not read.
        allowed = self.begins if self.allowed is None else self.allowed
        tags = self.begins if self.tags is None else self.tags
        inputs = emissions, allowed, tags, self.begins, self.lengths, spread, alpha
        kernel[(len(self.begins),)](
            *inputs,
            *others,
            n_tags,
            P=padded,
            MASKED=self.allowed is not None,
            TAGGED=self.tags is not None,
            num_warps=max(padded // 8, 1),
        )


class _LogLikelihood(torch.autograd.Function):
    """log Z of each sequence over the paths of allowed tags, minus the score of the batch's tags if it has some."""

    @staticmethod
    def forward(ctx: Any, emissions: Tensor, batch: Batch, *weights: Tensor) -> Tensor:
        emissions = emissions.contiguous()
        index, _ = _spread_indices(batch.layout, emissions.device)
        forbidden = emissions.new_full((1,), -torch.inf, dtype=torch.float32)
        spread = torch.cat([*(weight.flatten() for weight in weights), forbidden]).index_select(0, index)
        alpha = torch.empty_like(emissions, dtype=torch.float32)
        sums = torch.empty(len(batch.begins), dtype=torch.float64, device=emissions.device)
        batch.launch(forward_kernel, emissions, spread, alpha, sums)
        ctx.batch, ctx.shapes = batch, [weight.shape for weight in weights]
        ctx.save_for_backward(emissions, spread, alpha)
        return sums

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        emissions, spread, alpha = ctx.saved_tensors
        batch: Batch = ctx.batch
        d_emissions = torch.empty_like(alpha)
        d_spread = alpha.new_empty(len(batch.begins), len(spread))
        batch.launch(backward_kernel, emissions, spread, alpha, gradients[0].contiguous(), d_emissions, d_spread)
        _, order = _spread_indices(batch.layout, emissions.device)
        sizes = [shape.numel() for shape in ctx.shapes]
        parts = d_spread.sum(0).index_select(0, order[: sum(sizes)]).split(sizes)
        d_weights = (part.view(shape) for part, shape in zip(parts, ctx.shapes, strict=True))
        return d_emissions.to(emissions.dtype), None, *d_weights


def log_likelihood(
    emissions: Tensor,
    weights: Sequence[Tensor],
    packing: Packing,
    allowed: Tensor | None = None,
    tags: Tensor | None = None,
) -> Tensor:
    """Return log Z of each sequence over the paths of allowed tags, minus the score of `tags` if given.

    *Shape:* emissions, allowed: (units, tags); tags: (units,); result: (sequences,), in float64
    """
    layout = TagLayout(weights[-1].shape[1] // 2)
    batch = Batch.of(layout, packing, allowed, tags, emissions.device)
    sums: Tensor = _LogLikelihood.apply(emissions, batch, *weights)
    return sums


@functools.lru_cache(maxsize=64)
def _spread_indices(layout: TagLayout, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the parameter of each score, and the scores in the order of their parameters, the forbidden ones last.

    *Shape:* (2 tags + tags squared,) each
    """
    index = parameter_of_score(layout)
    there, order = all_on_device([index, np.argsort(index, kind="stable")], device)
    return there, order
