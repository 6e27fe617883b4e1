"""Viterbi decoding in numpy: the best path of every sequence, and the k best (list Viterbi).

A time step is a handful of operations on a few hundred numbers, where numpy's calls cost a third of torch's.
`best_paths` advances all sequences together, with a row for each tag, `[K, n]`, so that a step works on neighbouring
columns. It keeps no back-pointers: going back, it computes those of the best path anew, by the very same sums.
"""

from __future__ import annotations

import numpy as np

from ..sequences import Packing
from ..tagging import TagLayout
from ..types import AnyFloats, IntArray
from .pruning import certainly_outside
from .transitions import Transitions, inside_scores


def best_paths(scores: AnyFloats, table: AnyFloats, packing: Packing) -> tuple[IntArray, AnyFloats]:
    """Return the best path of each sequence, packed, and their scores. It overwrites the emissions.

    scores (AnyFloats): Packed emissions. *Shape:* (tags, tokens)
    table (AnyFloats): Scores of pairs of tags, `[from, to]`. *Shape:* (tags, tags)
    """
    pairs, space = table[:, :, None], np.empty((*table.shape, packing.sizes[0]), scores.dtype)
    previous = scores[:, : packing.sizes[0]]
    for begin, end in packing.steps[1:]:
        sums = np.add(previous[:, None, : end - begin], pairs, out=space[..., : end - begin])
        previous = scores[:, begin:end]
        previous += sums.max(axis=0)
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


def decode_uncertain(
    scores: AnyFloats,
    start: AnyFloats,
    table: AnyFloats,
    end: AnyFloats,
    packing: Packing,
    tags: IntArray,
    uncertain: IntArray,
) -> None:
    """Write the tags of the best path for the uncertain tokens, where those of all others are known.

    scores (AnyFloats): Emissions. *Shape:* (tags, tokens)
    tags (IntArray): Tags of all tokens. *Shape:* (tokens,)
    uncertain (IntArray): Indices of tokens. *Shape:* (uncertain tokens,)
    """
    if not uncertain.size:
        return
    # A stretch ends where the next uncertain token is not its neighbour, or is another sequence's.
    sequence = packing.sequence[uncertain]
    opens = np.diff(uncertain, prepend=-2) > 1
    opens[1:] |= sequence[1:] != sequence[:-1]
    first = np.flatnonzero(opens)
    last = np.append(first[1:], uncertain.size) - 1
    stretches, owner = Packing(last - first + 1), sequence[first]
    begins, ends = uncertain[first], uncertain[last] + 1
    at_start, at_end = packing.offsets[owner] == begins, (packing.offsets + packing.lengths)[owner] == ends
    scores = scores[:, uncertain]
    scores[:, first] += np.where(at_start, start[:, None], table[tags[begins - 1]].T)
    scores[:, last] += np.where(at_end, end[:, None], table[:, tags[np.minimum(ends, tags.size - 1)]])
    found, best = best_paths(scores[:, stretches.forward], table, stretches)
    impossible = owner[stretches.order[~(best > -np.inf)]]
    if impossible.size:
        raise ValueError(
            f"no path of allowed tags with a finite score for sequence(s) {np.unique(impossible).tolist()}: the tags "
            "allowed for neighbouring tokens contradict each other, or the emissions are not finite"
        )
    tags[uncertain[stretches.forward]] = found


def viterbi(emissions: AnyFloats, transitions: Transitions, packing: Packing) -> IntArray:
    """Return the best path of each sequence; of equal ones, the one with the lowest tag at the last token that differs.

    *Shape:* (tokens, tags) to (tokens,); -inf in emissions forbids a tag
    """
    tags: IntArray = np.full(len(emissions), transitions.layout.outside, np.int64)
    scores = np.ascontiguousarray(emissions.T)
    uncertain = np.flatnonzero(~certainly_outside(scores, transitions, packing))
    decode_uncertain(scores, transitions.start, transitions.table, transitions.end, packing, tags, uncertain)
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

    A back-pointer is `tag * k + rank` at the token before.

    best (AnyFloats): Scores of the k best paths to each tag. *Shape:* (sequences, tags, k)
    outside (AnyFloats): Transitions from each closer, k times, to each opener.
    inside (AnyFloats): Transitions in entities, as of `inside_scores`.
    RETURNS (tuple[AnyFloats, IntArray]): *Shape:* (sequences, tags, k) each
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
