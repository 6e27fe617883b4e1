"""How undecided the CRF is about a sequence as a whole."""

from __future__ import annotations

import numpy as np

from ..types import AnyFloats
from .forward import ForwardBackward, unbarred


def entropy(passes: ForwardBackward) -> AnyFloats:
    """Entropy of the distribution over all paths of each sequence, in nats: log Z less the expected score.

    *Shape* [n_sequences], in float64
    """
    return np.maximum(passes.log_partition() - expected_score(passes), 0.0)


def expected_score(passes: ForwardBackward) -> AnyFloats:
    """The mean score of all paths of each sequence, by their probabilities. *Shape* [n_sequences], in float64"""
    packing, transitions = passes.packing, passes.transitions
    paths, total = passes.through()
    tags = np.exp(paths - total)
    first, last = packing.first, packing.last
    steps = (tags * finite(passes.emissions)).sum(axis=1, dtype=np.float64)
    steps[first] += (tags[first] * finite(transitions.start)).sum(axis=1)
    steps[last] += (tags[last] * finite(transitions.end)).sum(axis=1)
    steps[packing.later] += expected_moves(passes, total)
    return packing.sums(steps)


def expected_moves(passes: ForwardBackward, total: AnyFloats) -> AnyFloats:
    """The mean score of the transition into each `later` token. *Shape* [n_later]"""
    table = passes.transitions.table
    source, target = passes.moves(total)
    if passes.transitions.moderate:
        expected: AnyFloats = (np.exp(source) @ (np.exp(table) * finite(table)) * np.exp(target)).sum(axis=1)
        return expected
    scores = np.zeros(len(source), source.dtype)
    for tag, row in zip(source.T, table, strict=True):
        scores += (np.exp(tag[:, None] + row + target) * finite(row)).sum(axis=1)
    return scores


def finite(scores: AnyFloats) -> AnyFloats:
    """Zero for what is no path: its probability is zero, and so is its part of the mean."""
    return unbarred(scores.copy())
