"""What training differentiates: sums over all paths of a CRF, and scores of one path.

Sums are float64, because a loss is a small difference of large ones. The gradient of the loss is expected less actual
counts of tags and transitions, written down instead of being traced back through the recursion, which is numpy's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ...batching.packing import Packing
from ...crf.forward import ForwardBackward
from ...crf.scorer import masked
from ...crf.transitions import Transitions, weight_gradients
from ...types import AnyFloats, BoolArray, IntArray

Gradients = tuple[Tensor | None, ...]


def upcast(emissions: Tensor) -> Tensor:
    """At least float32, whatever precision the encoder runs in."""
    return emissions.to(torch.promote_types(emissions.dtype, torch.float32))


def as_arrays(like: Tensor, *tensors: Tensor) -> tuple[AnyFloats, ...]:
    """Tensors of the host as arrays of one precision."""
    return tuple(tensor.detach().to(like.dtype).numpy() for tensor in tensors)


def as_mask(allowed: Tensor | None) -> BoolArray | None:
    return None if allowed is None else allowed.cpu().numpy()


def path_score(emissions: AnyFloats, transitions: Transitions, packing: Packing, tags: IntArray) -> AnyFloats:
    """The score of one given path of each sequence, -inf where it is no path. *Shape* [n_sequences], float64"""
    steps = np.take_along_axis(emissions, tags[:, None], axis=1)[:, 0].astype(np.float64)
    later = packing.later
    steps[later] += transitions.table[tags[later - 1], tags[later]]
    steps[packing.first] += transitions.start[tags[packing.first]]
    steps[packing.last] += transitions.end[tags[packing.last]]
    return packing.sums(steps)


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
        like = upcast(emissions)
        scores, *weights = as_arrays(like, emissions, start, end, outside, inside)
        transitions, backward = Transitions.of(*weights), gradient and any(ctx.needs_input_grad)
        passes = ForwardBackward.of(masked(scores, as_mask(allowed)), transitions, packing, backward=backward)
        sums = passes.log_partition()
        ctx.passes, ctx.tags, ctx.dtype = passes, None if tags is None else tags.numpy(), emissions.dtype
        if tags is not None:
            sums -= path_score(scores, transitions, packing, ctx.tags)
        return torch.from_numpy(sums)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, weight: Tensor) -> Gradients:
        passes: ForwardBackward = ctx.passes
        packing = passes.packing
        weights = weight.numpy().astype(passes.alpha.dtype)[packing.sequence, None]
        paths, total = passes.through()
        paths -= total
        counts = np.exp(paths, out=paths)
        counts *= weights
        moves = passes.expected_transitions(total, weights)
        if ctx.tags is not None:
            subtract_path(counts, moves, ctx.tags, weights, packing)
        return *_gradients(passes.transitions, packing, counts, moves, ctx.dtype), None, None, None, None


class PathScore(torch.autograd.Function):
    """The score of one given path of each sequence."""

    @staticmethod
    def forward(
        ctx: Any,
        emissions: Tensor,
        start: Tensor,
        end: Tensor,
        outside: Tensor,
        inside: Tensor,
        packing: Packing,
        tags: Tensor,
    ) -> Tensor:
        scores, *weights = as_arrays(upcast(emissions), emissions, start, end, outside, inside)
        ctx.transitions, ctx.packing, ctx.tags = Transitions.of(*weights), packing, tags.numpy()
        ctx.shape, ctx.dtype = scores.shape, emissions.dtype
        return torch.from_numpy(path_score(scores, ctx.transitions, packing, ctx.tags))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, weight: Tensor) -> Gradients:
        table = ctx.transitions.table
        counts, moves = np.zeros(ctx.shape, table.dtype), np.zeros_like(table)
        weights = -weight.numpy().astype(table.dtype)[ctx.packing.sequence, None]
        subtract_path(counts, moves, ctx.tags, weights, ctx.packing)
        return *_gradients(ctx.transitions, ctx.packing, counts, moves, ctx.dtype), None, None


def _gradients(
    transitions: Transitions, packing: Packing, counts: AnyFloats, moves: AnyFloats, dtype: torch.dtype
) -> Gradients:
    """Those of emissions and weights, by the counts of tags and of transitions. *Shape* [N, K], [K, K]"""
    start, end = (counts[index].sum(axis=0) for index in (packing.first, packing.last))
    parameters = weight_gradients(transitions.layout, start, end, moves)
    gradients = (torch.from_numpy(np.ascontiguousarray(part)) for part in (counts, *parameters))
    return next(gradients).to(dtype), *gradients


def subtract_path(counts: AnyFloats, moves: AnyFloats, tags: IntArray, weights: AnyFloats, packing: Packing) -> None:
    """Take the counts of one path from the expected ones, in place. *Shape* [N, K], [K, K], [N], [N, 1]"""
    counts[np.arange(len(tags)), tags] -= weights[:, 0]
    later = packing.later
    np.subtract.at(moves, (tags[later - 1], tags[later]), weights[later, 0])
