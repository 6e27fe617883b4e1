"""The best path of every sequence (Viterbi) in numpy, looked for where a token is not outside for sure (`outside.py`).

A time step is a handful of operations on a few hundred numbers, where numpy's calls cost a third of torch's. Many
sequences go step by step viterbi_batch, tag by row, `[K, n]`, so that a step works on neighbouring columns; which
predecessor was the best is looked up again, by the very same sums, on the path that won. For a single sequence the
look-up would cost more than keeping every tag's predecessor.
"""

from __future__ import annotations

import numpy as np

from ..batching.packing import Packing
from ..types import AnyFloats, BoolArray, IntArray
from .outside import surely_outside
from .transitions import Transitions, inside_scores


def best_scores(scores: AnyFloats, transitions: Transitions, packing: Packing) -> None:
    """The best score of a path that ends in each tag, written over the packed emissions. *Shape* [K, N]"""
    layout, table, widest = transitions.layout, transitions.table, packing.sizes[0]
    outside = np.ascontiguousarray(table[layout.closers, layout.openers])[:, :, None]
    from_begin, from_inside = inside_scores(transitions.table, layout)[..., None]
    reached_space = np.empty(layout.n_tags * widest, scores.dtype)
    sums_space = np.empty(layout.n_open**2 * widest, scores.dtype)
    previous, width = scores[:, :widest], 0
    for begin, end in packing.steps[1:]:
        if end - begin != width:
            # The buffers shrink as sequences end.
            width = end - begin
            reached = reached_space[: layout.n_tags * width].reshape(layout.n_tags, width)
            sums = sums_space[: layout.n_open**2 * width].reshape(layout.n_open, layout.n_open, width)
            opened = reached[layout.openers]
            continued = reached[layout.continuers].reshape(2, layout.n_labels, width)
        previous, current = previous[:, :width], scores[:, begin:end]
        np.add(previous[layout.closers, None], outside, out=sums)
        np.maximum.reduce(sums, axis=0, out=opened)
        np.maximum(previous[layout.begin] + from_begin, previous[layout.inside] + from_inside, out=continued)
        current += reached
        previous = current


def check_paths_exist(impossible: BoolArray, packing: Packing, owner: IntArray) -> None:
    """Name the sequences that have no path. owner: the sequence of each stretch that is packed."""
    if impossible.any():
        sequences = np.unique(owner[packing.order[impossible]]).tolist()
        raise ValueError(
            f"no path of allowed tags with a finite score for sequence(s) {sequences}: the tags allowed for "
            "neighbouring tokens contradict each other, or the emissions are not finite"
        )


def backtrace(scores: AnyFloats, transitions: Transitions, packing: Packing, last: IntArray) -> IntArray:
    """Walk back from the best last tags. *Shape* [n_filled] to [N], both packed"""
    tags = np.empty(scores.shape[1], np.int64)
    into = np.ascontiguousarray(transitions.table.T)
    for step in range(len(packing.steps) - 1, -1, -1):
        begin, end = packing.steps[step]
        running = packing.sizes[step + 1] if step + 1 < len(packing.sizes) else 0
        if running:
            arriving = into[tags[end : end + running]]
            arriving += scores[:, begin : begin + running].T
            arriving.argmax(1, out=tags[begin : begin + running])
        tags[begin + running : end] = last[running : end - begin]
    return tags


def viterbi_batch(scores: AnyFloats, transitions: Transitions, packing: Packing, owner: IntArray) -> IntArray:
    """The best paths of several stretches, packed. *Shape* [K, N], which is written over, to [N]"""
    best_scores(scores, transitions, packing)
    begins = np.array([begin for begin, _ in packing.steps])
    ends = begins[packing.lengths[packing.order] - 1] + np.arange(packing.order.size)
    final = scores[:, ends]
    check_paths_exist(~(final.max(0) > -np.inf), packing, owner)
    return backtrace(scores, transitions, packing, final.argmax(0))


def viterbi_single(scores: AnyFloats, transitions: Transitions, packing: Packing, owner: IntArray) -> IntArray:
    """The best path of a single stretch. *Shape* [K, N] to [N]"""
    emissions, n_tags = np.ascontiguousarray(scores.T), transitions.layout.n_tags
    into, origin = np.ascontiguousarray(transitions.table.T), np.arange(n_tags) * n_tags
    sums, index = np.empty_like(into), np.empty_like(origin)
    pointers = np.empty(emissions.shape, np.intp)
    best = emissions[0]
    for emission, pointer in zip(emissions[1:], pointers[1:], strict=True):
        np.add(into, best, out=sums)
        sums.argmax(1, out=pointer)
        np.add(pointer, origin, out=index)
        sums.take(index, out=best, mode="clip")
        best += emission
    check_paths_exist(~(best.max(keepdims=True) > -np.inf), packing, owner)
    tags: IntArray = np.empty(len(pointers), np.int64)
    tags[-1] = tag = int(best.argmax())
    for position in range(len(pointers) - 1, 0, -1):
        tags[position - 1] = tag = pointers.item(position, tag)
    return tags


def viterbi(emissions: AnyFloats, transitions: Transitions, packing: Packing) -> IntArray:
    """The best path of each sequence; among equals, the one with the lowest tag at the last place where they differ.

    *Shape* [N, K] to [N], flat rows; -inf in emissions bars a tag
    """
    layout, table = transitions.layout, transitions.table
    tags: IntArray = np.full(len(emissions), layout.outside, np.int64)
    scores = np.ascontiguousarray(emissions.T)
    unsure = np.flatnonzero(~surely_outside(scores, transitions, packing))
    if not unsure.size:
        return tags
    # A stretch ends where the next unsure token is not its neighbour, or is another sequence's.
    sequence = packing.sequence[unsure]
    opens = np.diff(unsure, prepend=-2) > 1
    opens[1:] |= sequence[1:] != sequence[:-1]
    first = np.flatnonzero(opens)
    last = np.append(first[1:], unsure.size) - 1
    stretches, owner = Packing(last - first + 1), sequence[first]
    scores = scores[:, unsure]
    at_start, at_end = (
        packing.offsets[owner] == unsure[first],
        (packing.offsets + packing.lengths)[owner] == unsure[last] + 1,
    )
    scores[:, first] += np.where(at_start, transitions.start[:, None], table[layout.outside, :, None])
    scores[:, last] += np.where(at_end, transitions.end[:, None], table[:, layout.outside, None])
    if first.size == 1:
        tags[unsure] = viterbi_single(scores, transitions, stretches, owner)
    else:
        tags[unsure[stretches.forward]] = viterbi_batch(scores[:, stretches.forward], transitions, stretches, owner)
    return tags
