"""How undecided the CRF is about a sequence as a whole."""

from __future__ import annotations

import torch
from torch import Tensor

from .forward import ForwardBackward


def entropy(passes: ForwardBackward) -> Tensor:
    """Entropy of the distribution over all paths of each sequence, in nats: log Z less the expected score.

    *Shape* [n_sequences], in float64
    """
    return (passes.log_partition() - expected_score(passes)).clamp_(min=0.0)


def expected_score(passes: ForwardBackward) -> Tensor:
    """The mean score of all paths of each sequence, by their probabilities. *Shape* [n_sequences], in float64"""
    packing, transitions = passes.packing, passes.transitions
    paths, total = passes.through()
    tags = paths.sub_(total).exp_()
    first, last, later = (torch.from_numpy(index) for index in (packing.first, packing.last, packing.later))
    steps = (tags * finite(passes.emissions)).sum(1, dtype=torch.float64)
    steps[first] += (tags[first] * finite(transitions.start)).sum(1)
    steps[last] += (tags[last] * finite(transitions.end)).sum(1)
    steps[later] += expected_moves(passes, total)
    return steps.new_zeros(packing.n_sequences).index_add_(0, torch.from_numpy(packing.sequence), steps)


def expected_moves(passes: ForwardBackward, total: Tensor) -> Tensor:
    """The mean score of the transition into each `later` token. *Shape* [n_later]"""
    table = passes.transitions.table
    source, target = passes.moves(total)
    if passes.transitions.moderate:
        return (source.exp_() @ (table.exp() * finite(table)) * target.exp_()).sum(1)
    scores = source.new_zeros(len(source))
    for tag, row in zip(source.t(), table, strict=True):
        scores += ((tag[:, None] + row + target).exp() * finite(row)).sum(1)
    return scores


def finite(scores: Tensor) -> Tensor:
    """Zero for what is no path: its probability is zero, and so is its part of the mean."""
    return scores.masked_fill(scores == -torch.inf, 0.0)
