"""Viterbi decoding in numpy: the best path of every sequence, and the k best (list Viterbi).

A time step is a handful of operations on a few hundred numbers, where numpy's calls cost a third of torch's.
`best_paths` advances all sequences together, with a row for each tag, so that a step works on neighbouring columns. It
keeps no back-pointers: going back, it computes those of the best path anew, by the very same sums.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..batching.sequences import Packing
from ..tagging import TagLayout
from ..types import AnyFloats, IntArray
from .transitions import Transitions, inside_scores

Advance = Callable[[AnyFloats], AnyFloats]
"""From the scores of the best path to each tag to those of the next token, without its emissions. *Shape:* (tags,
sequences) twice"""


def best_paths(scores: AnyFloats, table: AnyFloats, advance: Advance, packing: Packing) -> tuple[IntArray, AnyFloats]:
    """Return the tags of the best path of each sequence, packed, and the paths' scores. It overwrites the emissions.

    scores (AnyFloats): Packed emissions. *Shape:* (tags, units)
    table (AnyFloats): Scores of pairs of tags, `[from, to]`. *Shape:* (tags, tags)
    advance (Advance): A step of the recursion over these pairs.
    RETURNS (tuple[IntArray, AnyFloats]): *Shape:* (units,) and (sequences with units,)
    """
    previous = scores[:, : packing.sizes[0]]
    for begin, end in packing.steps[1:]:
        before, previous = previous[:, : end - begin], scores[:, begin:end]
        previous += advance(before)
    tags, into = np.empty(scores.shape[1], np.int64), np.ascontiguousarray(table.T)
    best, sizes = np.empty(packing.sizes[0], scores.dtype), [*packing.sizes, 0]
    for step in range(len(packing.steps) - 1, -1, -1):
        begin, end = packing.steps[step]
        running = sizes[step + 1]
        arriving = into[tags[end : end + running]]
        arriving += scores[:, begin : begin + running].T
        arriving.argmax(1, out=tags[begin : begin + running])
        ended = scores[:, begin + running : end]
        ended.argmax(0, out=tags[begin + running : end])
        best[running : end - begin] = ended.max(0)
    return tags, best


def viterbi(emissions: AnyFloats, transitions: Transitions, packing: Packing) -> IntArray:
    """Return the best path of each sequence; of equal ones, the one with the lowest tag at the last token that differs.

    emissions (AnyFloats): -inf forbids a tag. *Shape:* (units, tags)
    RETURNS (IntArray): *Shape:* (units,)
    """
    tags: IntArray = np.empty(len(emissions), np.int64)
    if not packing.steps:
        return tags
    layout, table = transitions.layout, transitions.table
    between = table[layout.closers, layout.openers, None]
    from_begin, from_inside = inside_scores(table, layout)[..., None]

    def advance(best: AnyFloats) -> AnyFloats:
        # Only closers precede openers, and only B and I of a type its E and I: a quarter of all pairs of tags.
        opened = (best[layout.closers, None] + between).max(axis=0)
        continued = np.maximum(best[layout.begin] + from_begin, best[layout.inside] + from_inside)
        return np.concatenate([opened, continued.reshape(2 * layout.n_labels, best.shape[1])])

    scores = emissions.copy()
    scores[packing.first] += transitions.start
    scores[packing.last] += transitions.end
    scores = np.ascontiguousarray(scores[packing.forward].T)
    tags[packing.forward], best = best_paths(scores, table, advance, packing)
    impossible = packing.order[~(best > -np.inf)]
    if impossible.size:
        raise ValueError(
            f"no path of allowed tags with a finite score for sequence(s) {sorted(impossible.tolist())}: the tags "
            "allowed for neighbouring tokens contradict each other, or the emissions are not finite"
        )
    return tags


ScoredPath = tuple[float, IntArray]
"""The score of a path and its tags."""


def k_largest(candidates: AnyFloats, k: int) -> tuple[AnyFloats, IntArray]:
    """Return the k largest along the last axis, largest first, and their indices. Of equal ones, the first comes first.

    *Shape:* (..., m) to (..., k) twice
    """
    order = np.argsort(-candidates, axis=-1, kind="stable")[..., :k]
    return np.take_along_axis(candidates, order, -1), order


def advance_k_best(
    best: AnyFloats, outside: AnyFloats, inside: AnyFloats, layout: TagLayout
) -> tuple[AnyFloats, IntArray]:
    """Return the scores of the k best paths to each tag of the next token, without its emissions; and back-pointers.

    best (AnyFloats): scores of the k best paths to each tag.
    outside (AnyFloats): transitions from each closer, k times.
    inside (AnyFloats): transitions in entities.
    *Shape:* (n, tags, k) to (n, tags, k) twice. A back-pointer is `tag * k + rank` at the token before.
    """
    n, _, k = best.shape
    opened, closer = k_largest(best[:, layout.closers].reshape(n, 1, -1) + outside, k)
    parts = best[:, None, layout.begin] + inside[0], best[:, None, layout.inside] + inside[1]
    continued, choice = k_largest(np.concatenate(parts, -1), k)
    label = np.arange(layout.n_labels)[:, None]
    source = np.where(choice < k, label * k + choice, (layout.inside.start + label) * k + choice - k)
    shape = (n, 2 * layout.n_labels, k)
    sources = [closer + layout.closers.start * k, source.reshape(shape)]
    return np.concatenate([opened, continued.reshape(shape)], 1), np.concatenate(sources, 1)


def forward_k_best(
    emissions: AnyFloats, transitions: Transitions, packing: Packing, k: int
) -> tuple[AnyFloats, IntArray]:
    """Return the scores of the k best paths that end in each tag of each sequence, and back-pointers of all tokens.

    *Shape:* (units, tags) to (sequences, tags, k) and (units, tags, k), packed
    """
    n_rows, n_tags = emissions.shape
    best = np.full((packing.order.size, n_tags, k), -np.inf, emissions.dtype)
    best[:, :, 0] = emissions[: packing.sizes[0]] + transitions.start
    pointers = np.zeros((n_rows, n_tags, k), np.int64 if n_tags * k > np.iinfo(np.int32).max else np.int32)
    layout = transitions.layout
    outside = np.repeat(transitions.table[layout.closers, layout.openers].T, k, axis=1)
    inside = inside_scores(transitions.table, layout)[..., None]
    for begin, end in packing.steps[1:]:
        values, pointers[begin:end] = advance_k_best(best[: end - begin], outside, inside, layout)
        best[: end - begin] = values + emissions[begin:end, :, None]
    return best, pointers


def backtrace_k_best(pointers: IntArray, packing: Packing, last: IntArray) -> IntArray:
    """Return the tags of the paths that end in `last`, each `tag * k + rank`.

    *Shape:* (units, tags, k) and (sequences, k) to (units, k)
    """
    k = pointers.shape[-1]
    points: IntArray = np.empty((pointers.shape[0], k), np.int64)
    pointers = pointers.reshape(pointers.shape[0], -1)
    current = last.copy()
    for step in range(len(packing.steps) - 1, -1, -1):
        begin, end = packing.steps[step]
        points[begin:end] = current[: end - begin]
        if step:
            current[: end - begin] = np.take_along_axis(pointers[begin:end], points[begin:end], 1)
    points //= k
    return points


def list_viterbi(emissions: AnyFloats, transitions: Transitions, packing: Packing, k: int) -> list[list[ScoredPath]]:
    """Return up to k paths of each sequence, best first. *Shape:* (units, tags); -inf in emissions forbids a tag

    Each tag keeps the k best paths to it, not only one; a back-pointer is the tag before and the path's rank there.
    """
    empty: ScoredPath = (0.0, np.empty(0, np.int64))
    results: list[list[ScoredPath]] = [[] if length else [empty] for length in packing.lengths.tolist()]
    if not packing.steps:
        return results
    best, pointers = forward_k_best(emissions[packing.forward], transitions, packing, k)
    values, last = k_largest((best + transitions.end[:, None]).reshape(len(best), -1), k)
    paths = np.empty((len(emissions), k), np.int64)
    paths[packing.forward] = backtrace_k_best(pointers, packing, last)
    for sequence, scores in zip(packing.order.tolist(), values.tolist(), strict=True):
        begin = packing.offsets[sequence]
        tags = paths[begin : begin + packing.lengths[sequence]]
        found = [score for score in scores if score > -np.inf]
        results[sequence] = [(score, tags[:, rank].copy()) for rank, score in enumerate(found)]
    return results
