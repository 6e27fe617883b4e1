"""Sums over all paths of a linear-chain CRF, forwards and backwards in one go.

The recursion stays in log-space. Every tag is reached either from the closers or from the B and I of one type; each
such group of sources is shifted by its own largest score, so exponentials never underflow as a whole, and the step to
all next tags is one product with the exponentiated transitions. Scores are kept relative to the step's shift, which
keeps float32 accurate however long the text.

Both directions run as one batch (the backward one over mirrored tags), so a loss with its gradient costs one pass
over the time steps and no autograd graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from ...plans.packing import Packing
from ...tagging import TagLayout
from .transitions import MODERATE, Transitions, mirror


class ForwardStep:
    """One step of the recursion for `width` sequences in each of `D` directions, with its buffers and their views.

    *Shape* scores before and after are [D, width, K]
    """

    def __init__(self, layout: TagLayout, like: Tensor, width: int) -> None:
        n_labels, n_tags = layout.n_labels, layout.n_tags
        leading = (like.size(0), width)
        self.layout = layout
        self.shift = like.new_empty(*leading, 1)
        self.extra = like.new_empty(*leading, 1, n_labels)
        self.relative, self.reached = like.new_empty(*leading, n_tags), like.new_empty(*leading, n_tags)
        begin, inside = self.relative[..., layout.begin], self.relative[..., layout.inside]
        self.begin, self.inside = begin.unsqueeze(-2), inside.unsqueeze(-2)
        stride = (width * n_tags, n_tags, layout.inside.start, 1)
        self.sources = self.relative.as_strided((*leading, 2, n_labels), stride)
        self.continued = torch.unflatten(self.reached[..., layout.continuers], -1, (2, n_labels))

    def shifted(self, scores: Tensor, *, guarded: bool) -> Tensor:
        """Scores relative to the largest of their group of sources.

        `shift` is the closers' maximum, `extra` what the larger of B and I of a type lies above it. A group that is
        all -inf is not shifted; without -inf in the emissions there is none, and nothing to guard against.
        """
        torch.amax(scores[..., self.layout.closers], -1, keepdim=True, out=self.shift)
        if guarded:
            self.shift.nan_to_num_(nan=torch.nan, neginf=0.0)
        torch.sub(scores, self.shift, out=self.relative)
        torch.maximum(self.begin, self.inside, out=self.extra)
        if guarded:
            self.extra.nan_to_num_(nan=torch.nan, neginf=0.0)
        self.sources.sub_(self.extra)
        return self.relative

    def __call__(self, previous: Tensor, current: Tensor, spread: LogMatmul, *, guarded: bool) -> None:
        """Add to the emissions in `current` the sums over all ways there."""
        spread(self.shifted(previous, guarded=guarded), self.reached)
        self.continued.add_(self.extra)
        current.add_(self.reached)


LogMatmul = Callable[[Tensor, Tensor], object]
"""Sums shifted scores (which it overwrites) into those of all next tags (its second argument), in log-space."""


def log_matmul(table: Tensor, *, moderate: bool) -> LogMatmul:
    """*Shape* `table` is [D, K, K], `[from, to]`"""
    if not moderate:
        return lambda relative, out: torch.logsumexp(relative.unsqueeze(-1) + table.unsqueeze(1), -2, out=out)
    exponentiated = table.exp()
    return lambda relative, out: torch.bmm(relative.exp_(), exponentiated, out=out).log_()


def forward_sums(scores: Tensor, start: Tensor, spread: LogMatmul, packing: Packing) -> Tensor:
    """Log-sums of the paths that end in each tag of each packed row, relative to the shifts of the steps before.

    *Shape* `scores` is [D, N, K] and is overwritten; `start` is [D, K]
    """
    if not packing.sizes:
        return scores
    guarded = bool(scores.amin().isneginf())
    steps = torch.split(scores, packing.sizes, dim=1)
    steps[0].add_(start.unsqueeze(1))
    layout, width, step = TagLayout(scores.size(-1) // 4), 0, None
    for (previous, current), running in zip(pairwise(steps), packing.sizes[1:], strict=True):
        if step is None or running != width:
            step, width = ForwardStep(layout, scores, running), running
        step(previous[:, :width], current, spread, guarded=guarded)
    return scores


@dataclass(frozen=True)
class ForwardBackward:
    """The log-sums of all paths through each tag of each token, in flat rows.

    `alpha` counts what lies before a token, `beta` what lies behind it, both with the token's own emission.
    """

    packing: Packing
    transitions: Transitions
    emissions: Tensor
    """Masked: -inf where a tag is not allowed. *Shape* [N, K]"""
    alpha: Tensor
    """*Shape* [N, K]"""
    beta: Tensor | None
    """*Shape* [N, K]; none where only the sums over all paths were wanted."""

    @classmethod
    def of(cls, emissions: Tensor, transitions: Transitions, packing: Packing, *, backward: bool) -> ForwardBackward:
        ahead = torch.from_numpy(packing.forward)
        flat = torch.empty_like(emissions)
        if not backward:
            spread = log_matmul(transitions.table[None], moderate=transitions.moderate)
            packed = forward_sums(emissions[ahead].unsqueeze(0), transitions.start[None], spread, packing)
            flat[ahead] = packed[0]
            return cls(packing, transitions, emissions, flat, None)
        behind, swap = torch.from_numpy(packing.backward), torch.from_numpy(mirror(transitions.layout))
        start, table = transitions.both_ways()
        spread = log_matmul(table, moderate=transitions.moderate)
        packed = forward_sums(torch.stack([emissions[ahead], emissions[behind][:, swap]]), start, spread, packing)
        flat[ahead] = packed[0]
        beta = torch.empty_like(emissions)
        beta[behind] = packed[1][:, swap]
        return cls(packing, transitions, emissions, flat, beta)

    def shifts(self) -> Tensor:
        """What `alpha` leaves out from each token to the next of its sequence. *Shape* [N]"""
        shifts = self.alpha[:, self.transitions.layout.closers].amax(-1).nan_to_num_(nan=torch.nan, neginf=0.0)
        shifts[torch.from_numpy(self.packing.last)] = 0.0
        return shifts.double()

    def log_partition(self) -> Tensor:
        """*Shape* [n_sequences], in float64"""
        sums = self.alpha.new_zeros(self.packing.n_sequences, dtype=torch.float64)
        sums.index_add_(0, torch.from_numpy(self.packing.sequence), self.shifts())
        ends = self.alpha[torch.from_numpy(self.packing.last)] + self.transitions.end
        sums[torch.from_numpy(self.packing.filled)] += ends.logsumexp(-1)
        return sums

    def through(self) -> tuple[Tensor, Tensor]:
        """Log-sums of the paths through each tag, and over all tags of a token, both relative to its shifts.

        *Shape* [N, K] and [N, 1]
        """
        assert self.beta is not None
        paths = self.alpha + self.beta - self.emissions
        paths.masked_fill_(self.emissions == -torch.inf, -torch.inf)
        return paths, paths.logsumexp(-1, keepdim=True).nan_to_num_(nan=torch.nan, neginf=0.0)

    def marginals(self) -> Tensor:
        """Probability of each tag of each token. *Shape* [N, K]"""
        paths, total = self.through()
        return paths.sub_(total).exp_()

    def moves(self, total: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probability of each transition into each `later` token, in two parts: with the score of the transition,
        `source[t, i] + table[i, j] + target[t, j]` is that of tag i before the token and j at it.

        *Shape* [N, 1] to [n_later, K] twice
        """
        assert self.beta is not None
        layout = self.transitions.layout
        later = torch.from_numpy(self.packing.later)
        step = ForwardStep(layout, self.alpha[None], later.size(0))
        source = step.shifted(self.alpha[None, later - 1], guarded=True)[0]
        target = self.beta[later] - total[later]
        torch.unflatten(target[:, layout.continuers], -1, (2, layout.n_labels)).add_(step.extra[0])
        if self.transitions.moderate:
            # Above the bound lie only tags that nothing reaches: infinity times zero would not be a number.
            target.clamp_(max=MODERATE + 1)
        return source, target

    def expected_transitions(self, total: Tensor, weight: Tensor) -> Tensor:
        """Expected transitions, each sequence counted `weight` times. *Shape* [N, 1], [N, 1] to [K, K]"""
        table = self.transitions.table
        source, target = self.moves(total)
        weight = weight[torch.from_numpy(self.packing.later)]
        if self.transitions.moderate:
            return table.exp() * (source.exp_().t() @ target.exp_().mul_(weight))
        # One row of the table at a time: the scores of a transition must meet before they may be exponentiated.
        counts = [(tag[:, None] + scores + target).exp() for tag, scores in zip(source.t(), table, strict=True)]
        return torch.stack([(count * weight).sum(0) for count in counts])
