"""What training differentiates: sums over all paths of a CRF, and scores of one path.

Sums are float64, because a loss is a small difference of large ones. The gradient of the loss is expected less actual
counts of tags and transitions, written down instead of being traced back through the recursion.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ...plans.packing import Packing
from .forward import ForwardBackward
from .transitions import BARRED, Transitions, weight_gradients

Gradients = tuple[Tensor | None, ...]


def upcast(emissions: Tensor) -> Tensor:
    """At least float32, whatever precision the encoder runs in."""
    return emissions.to(torch.promote_types(emissions.dtype, torch.float32))


def full_precision() -> torch.autocast:
    """Mixed precision is for the encoder: it ends here."""
    return torch.autocast("cpu", enabled=False)


def masked(emissions: Tensor, allowed: Tensor | None) -> Tensor:
    return emissions if allowed is None else emissions.masked_fill(~allowed.cpu(), BARRED)


def path_score(emissions: Tensor, transitions: Transitions, packing: Packing, tags: Tensor) -> Tensor:
    """The score of one given path of each sequence, -inf where it is no path. *Shape* [n_sequences], float64"""
    first, last, later = (torch.from_numpy(index) for index in (packing.first, packing.last, packing.later))
    steps = emissions.gather(1, tags.unsqueeze(1)).squeeze(1).double()
    sums = steps.new_zeros(packing.n_sequences).index_add(0, torch.from_numpy(packing.sequence), steps)
    moves = transitions.table[tags[later - 1], tags[later]].double()
    sums = sums.index_add(0, torch.from_numpy(packing.sequence[packing.later]), moves)
    edges = transitions.start[tags[first]].double() + transitions.end[tags[last]]
    return sums.index_add(0, torch.from_numpy(packing.filled), edges)


class LogLikelihood(torch.autograd.Function):
    """log Z of each sequence over the paths of allowed tags, less the score of one path if `tags` names it."""

    @staticmethod
    def forward(
        ctx: Any,
        emissions: Tensor,
        start: Tensor,
        end: Tensor,
        outside: Tensor,
        inside: Tensor,
        packing: Packing,
        allowed: Tensor | None,
        tags: Tensor | None,
        gradient: bool,
    ) -> Tensor:
        scores = masked(upcast(emissions), allowed)
        transitions = Transitions.of(*(weight.detach().to(scores) for weight in (start, end, outside, inside)))
        with full_precision():
            passes = ForwardBackward.of(scores, transitions, packing, backward=gradient and any(ctx.needs_input_grad))
        ctx.passes, ctx.tags, ctx.dtype = passes, tags, emissions.dtype
        sums = passes.log_partition()
        return sums if tags is None else sums - path_score(upcast(emissions), transitions, packing, tags)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, weight: Tensor) -> Gradients:
        passes: ForwardBackward = ctx.passes
        packing = passes.packing
        weights = weight.to(passes.alpha)[torch.from_numpy(packing.sequence)].unsqueeze(1)
        paths, total = passes.through()
        counts = paths.sub_(total).exp_().mul_(weights)
        with full_precision():
            moves = passes.expected_transitions(total, weights)
        if ctx.tags is not None:
            subtract_path(counts, moves, ctx.tags, weights, packing)
        start, end = (counts[torch.from_numpy(index)].sum(0) for index in (packing.first, packing.last))
        parameters = weight_gradients(passes.transitions.layout, start, end, moves)
        return counts.to(ctx.dtype), *parameters, None, None, None, None


def subtract_path(counts: Tensor, moves: Tensor, tags: Tensor, weights: Tensor, packing: Packing) -> None:
    """Take the counts of one path from the expected ones, in place. *Shape* [N, K], [K, K], [N], [N, 1]"""
    counts.scatter_add_(1, tags.unsqueeze(1), -weights)
    later = torch.from_numpy(packing.later)
    move = tags[later - 1] * moves.size(1) + tags[later]
    moves.view(-1).index_add_(0, move, weights[later, 0], alpha=-1)
