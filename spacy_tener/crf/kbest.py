"""The k best paths of every sequence: list Viterbi in numpy.

Each tag keeps the k best ways to reach it instead of one; a way is named by the tag before it and the rank there.
"""

from __future__ import annotations

import numpy as np

from ..batching.packing import Packing
from ..tagging import TagLayout
from ..types import AnyFloats, IntArray
from .transitions import Transitions, inside_scores

ScoredPath = tuple[float, IntArray]
"""The score of a path and its tags."""


def ranked(candidates: AnyFloats, k: int) -> tuple[AnyFloats, IntArray]:
    """The k largest along the last axis, best first, and where they stood: among equals the first.

    *Shape* [..., m] to [..., k] twice
    """
    order = np.argsort(-candidates, axis=-1, kind="stable")[..., :k]
    return np.take_along_axis(candidates, order, -1), order


def next_ways(ways: AnyFloats, outside: AnyFloats, inside: AnyFloats, layout: TagLayout) -> tuple[AnyFloats, IntArray]:
    """From the k best ways to each tag of a token to those of the next, without its emissions.

    outside, inside: transitions from the k ways to each closer, and within entities.
    *Shape* [n, K, k] to [n, K, k] twice: scores, and where each came from, as `tag * k + rank`
    """
    n, _, k = ways.shape
    opened, closer = ranked(ways[:, layout.closers].reshape(n, 1, -1) + outside, k)
    parts = ways[:, None, layout.begin] + inside[0], ways[:, None, layout.inside] + inside[1]
    continued, choice = ranked(np.concatenate(parts, -1), k)
    label = np.arange(layout.n_labels)[:, None]
    source = np.where(choice < k, label * k + choice, (layout.inside.start + label) * k + choice - k)
    shape = (n, 2 * layout.n_labels, k)
    sources = [closer + layout.closers.start * k, source.reshape(shape)]
    return np.concatenate([opened, continued.reshape(shape)], 1), np.concatenate(sources, 1)


def forward_kbest(
    emissions: AnyFloats, transitions: Transitions, packing: Packing, k: int
) -> tuple[AnyFloats, IntArray]:
    """The k best ways to each sequence's end in each tag, and every token's sources.

    *Shape* [N, K] to [n_filled, K, k] and [N, K, k], packed
    """
    n_rows, n_tags = emissions.shape
    ways = np.full((packing.order.size, n_tags, k), -np.inf, emissions.dtype)
    ways[:, :, 0] = emissions[: packing.sizes[0]] + transitions.start
    sources = np.zeros((n_rows, n_tags, k), np.int64 if n_tags * k > np.iinfo(np.int32).max else np.int32)
    layout = transitions.layout
    outside = np.repeat(transitions.table[layout.closers, layout.openers].T, k, axis=1)
    inside = inside_scores(transitions.table, layout)[..., None]
    for begin, end in packing.steps[1:]:
        values, sources[begin:end] = next_ways(ways[: end - begin], outside, inside, layout)
        ways[: end - begin] = values + emissions[begin:end, :, None]
    return ways, sources


def backtrace_kbest(sources: IntArray, packing: Packing, last: IntArray) -> IntArray:
    """Walk every path back from its last `tag * k + rank`. *Shape* [N, K, k] and [n_filled, k] to [N, k]"""
    k = sources.shape[-1]
    points: IntArray = np.empty((sources.shape[0], k), np.int64)
    came_from = sources.reshape(sources.shape[0], -1)
    current = last.copy()
    for step in range(len(packing.steps) - 1, -1, -1):
        begin, end = packing.steps[step]
        points[begin:end] = current[: end - begin]
        if step:
            current[: end - begin] = np.take_along_axis(came_from[begin:end], points[begin:end], 1)
    points //= k
    return points


def list_viterbi(emissions: AnyFloats, transitions: Transitions, packing: Packing, k: int) -> list[list[ScoredPath]]:
    """Up to k paths of each sequence, best first. *Shape* [N, K]; -inf in emissions bars a tag"""
    empty: ScoredPath = (0.0, np.empty(0, np.int64))
    readings: list[list[ScoredPath]] = [[] if length else [empty] for length in packing.lengths.tolist()]
    if not packing.steps:
        return readings
    ways, sources = forward_kbest(emissions[packing.forward], transitions, packing, k)
    values, last = ranked((ways + transitions.end[:, None]).reshape(len(ways), -1), k)
    paths = np.empty((len(emissions), k), np.int64)
    paths[packing.forward] = backtrace_kbest(sources, packing, last)
    for sequence, scores in zip(packing.order.tolist(), values.tolist(), strict=True):
        begin = packing.offsets[sequence]
        tags = paths[begin : begin + packing.lengths[sequence]]
        found = [score for score in scores if score > -np.inf]
        readings[sequence] = [(score, tags[:, rank].copy()) for rank, score in enumerate(found)]
    return readings
