"""Viterbi decoding: the best tag sequence of each text, and the k best tag sequences.

The Viterbi algorithm (Rabiner 1989, section III.B) computes from left to right the score of the best path, that is, tag
sequence, that ends in each tag,

    best[t, j] = emissions[t, j] + max_i (best[t - 1, i] + transitions[i, j])

and follows the maxima back from the last token. `best_paths` is this algorithm. `viterbi` applies it only where
`crf.pruning` has not already found that a token is O.

All sequences of a batch advance together: a time step of all of them is a few NumPy operations. See `Packing` for the
order of their tokens.
"""

from __future__ import annotations

import numpy as np

from ..sequences import Packing
from ..tagging import TagLayout
from ..types import AnyFloats, IntArray
from .pruning import certainly_outside
from .transitions import Transitions, inside_scores


def viterbi(emissions: AnyFloats, transitions: Transitions, packing: Packing) -> IntArray:
    """Return the tags of the best path of each sequence.

    Of paths with equal scores, it returns the one with the lower tag at the last token where they differ.

    emissions (AnyFloats): -inf forbids a tag. *Shape:* (tokens, tags)
    RETURNS (IntArray): *Shape:* (tokens,)
    """
    tags: IntArray = np.full(len(emissions), transitions.layout.outside, np.int64)
    scores = np.ascontiguousarray(emissions.T)
    uncertain = np.flatnonzero(~certainly_outside(scores, transitions, packing))
    decode_uncertain(scores, transitions.start, transitions.table, transitions.end, packing, tags, uncertain)
    return tags


def best_paths(scores: AnyFloats, table: AnyFloats, packing: Packing) -> tuple[IntArray, AnyFloats]:
    """Run the Viterbi algorithm, and return the tags of the best path of each sequence, packed, and the paths' scores.

    scores (AnyFloats): Packed emissions, to which the scores of the first and the last tag have been added. They are
        overwritten by `best[t, j]`. *Shape:* (tags, tokens)
    table (AnyFloats): Transition scores `[from, to]`. *Shape:* (tags, tags)
    RETURNS (tuple[IntArray, AnyFloats]): *Shape:* (tokens,) and (sequences,), sequences in the order of `packing.order`
    """
    n_sequences = packing.sizes[0]
    transitions = table[:, :, None]
    buffer = np.empty((*table.shape, n_sequences), scores.dtype)
    previous = scores[:, :n_sequences]
    for begin, end in packing.steps[1:]:
        # The longest sequences come first: those that have a token at this step are the first `end - begin`.
        sums = np.add(previous[:, None, : end - begin], transitions, out=buffer[..., : end - begin])
        previous = scores[:, begin:end]
        previous += sums.max(axis=0)

    # Follow the maxima back. Computing them anew on the best path, as the same sums, is cheaper than storing a
    # back-pointer for every tag of every token.
    tags, best = np.empty(scores.shape[1], np.int64), np.empty(n_sequences, scores.dtype)
    transitions_to = np.ascontiguousarray(table.T)
    n_later = 0  # sequences that have a token at the next step
    for step in range(len(packing.steps) - 1, -1, -1):
        begin, end = packing.steps[step]
        arriving = transitions_to[tags[end : end + n_later]]
        arriving += scores[:, begin : begin + n_later].T
        arriving.argmax(1, out=tags[begin : begin + n_later])
        last = scores[:, begin + n_later : end]
        last.argmax(0, out=tags[begin + n_later : end])
        best[n_later : end - begin] = last.max(0)
        n_later = end - begin
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
    """Write the best tags of the uncertain tokens to `tags`, given the tags of all other tokens.

    Each stretch of neighbouring uncertain tokens is decoded as a sequence of its own, whose first and last scores
    include the transitions from and to the known tags at its sides:

        token         0    1    2    3    4    5    6
        tags          O    ?    ?    O    O    O    ?
        stretches          ------                  ---
        first score     table[O, :]             table[O, :]
        last score               table[:, O]            end

    scores (AnyFloats): Emissions. *Shape:* (tags, tokens)
    start, end (AnyFloats): Scores of the first and the last tag of a sequence. *Shape:* (tags,)
    table (AnyFloats): Transition scores `[from, to]`. *Shape:* (tags, tags)
    tags (IntArray): The known tags; any value at uncertain tokens. *Shape:* (tokens,)
    uncertain (IntArray): Indices of the uncertain tokens, in ascending order. *Shape:* (uncertain tokens,)
    """
    if not uncertain.size:
        return
    # A stretch begins where the previous uncertain token is not the neighbour, or belongs to another sequence.
    sequence = packing.sequence[uncertain]
    is_first = np.diff(uncertain, prepend=-2) > 1
    is_first[1:] |= sequence[1:] != sequence[:-1]
    first = np.flatnonzero(is_first)
    last = np.append(first[1:], uncertain.size) - 1
    stretches, sequence_of_stretch = Packing(last - first + 1), sequence[first]

    first_token, last_token = uncertain[first], uncertain[last]
    begins_sequence = first_token == packing.offsets[sequence_of_stretch]
    ends_sequence = last_token + 1 == (packing.offsets + packing.lengths)[sequence_of_stretch]
    # Where there is no tag before or after, np.where does not use the row, but its index must exist.
    tags_before, tags_after = tags[first_token - 1], tags[np.minimum(last_token + 1, tags.size - 1)]
    scores = scores[:, uncertain]
    scores[:, first] += np.where(begins_sequence, start[:, None], table[tags_before].T)
    scores[:, last] += np.where(ends_sequence, end[:, None], table[:, tags_after])

    found, best = best_paths(scores[:, stretches.forward], table, stretches)
    impossible = sequence_of_stretch[stretches.order[~(best > -np.inf)]]
    if impossible.size:
        raise ValueError(
            f"no path of allowed tags with a finite score for sequence(s) {np.unique(impossible).tolist()}: the tags "
            "allowed for neighbouring tokens contradict each other, or the emissions are not finite"
        )
    tags[uncertain[stretches.forward]] = found


# The score of a path and its tags.
ScoredPath = tuple[float, IntArray]


def list_viterbi(emissions: AnyFloats, transitions: Transitions, packing: Packing, k: int) -> list[list[ScoredPath]]:
    """Return the k best paths of each sequence, best first, or all paths if there are fewer.

    This is the parallel list Viterbi algorithm (Seshadri and Sundberg, 1994): instead of the best path to each tag, it
    keeps the k best. A back-pointer names the previous tag and the rank of the path among the k best to it.

    emissions (AnyFloats): -inf forbids a tag. *Shape:* (tokens, tags)
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
        # Fewer than k paths exist if some of the k best scores are -inf.
        found = [score for score in scores if score > -np.inf]
        results[sequence] = [(score, tags[:, rank].copy()) for rank, score in enumerate(found)]
    return results


def forward_k_best(
    emissions: AnyFloats, transitions: Transitions, packing: Packing, k: int
) -> tuple[AnyFloats, IntArray]:
    """Return the scores of the k best paths to each tag of the last token of each sequence, and all back-pointers.

    emissions (AnyFloats): Packed. *Shape:* (tokens, tags)
    RETURNS (tuple[AnyFloats, IntArray]): *Shape:* (sequences, tags, k), and packed (tokens, tags, k)
    """
    n_tokens, n_tags = emissions.shape
    best = np.full((packing.order.size, n_tags, k), -np.inf, emissions.dtype)
    best[:, :, 0] = emissions[: packing.sizes[0]] + transitions.start
    pointers = np.zeros((n_tokens, n_tags, k), np.int64 if n_tags * k > np.iinfo(np.int32).max else np.int32)
    layout = transitions.layout
    outside = np.repeat(transitions.table[layout.closers, layout.openers].T, k, axis=1)
    inside = inside_scores(transitions.table, layout)[..., None]
    for begin, end in packing.steps[1:]:
        values, pointers[begin:end] = advance_k_best(best[: end - begin], outside, inside, layout)
        best[: end - begin] = values + emissions[begin:end, :, None]
    return best, pointers


def advance_k_best(
    best: AnyFloats, outside: AnyFloats, inside: AnyFloats, layout: TagLayout
) -> tuple[AnyFloats, IntArray]:
    """Advance the k best paths by one token, whose emissions are not added yet, and return their back-pointers.

    A back-pointer is `tag * k + rank`, with the tag of the previous token. An opener (B, O, S) can follow any closer
    (O, S, E); E and I can only follow B and I of the same label.

    best (AnyFloats): Scores of the k best paths to each tag. *Shape:* (sequences, tags, k)
    outside (AnyFloats): Transition scores to each opener from each closer, each repeated k times.
        *Shape:* (openers, closers * k)
    inside (AnyFloats): Transition scores from B and I to E and I, see `inside_scores`. *Shape:* (2, 2, labels, 1)
    RETURNS (tuple[AnyFloats, IntArray]): Scores and back-pointers. *Shape:* (sequences, tags, k) each
    """
    n, _, k = best.shape
    opened, closer = k_largest(best[:, layout.closers].reshape(n, 1, -1) + outside, k)
    from_begin, from_inside = best[:, None, layout.begin] + inside[0], best[:, None, layout.inside] + inside[1]
    continued, choice = k_largest(np.concatenate((from_begin, from_inside), -1), k)
    label = np.arange(layout.n_labels)[:, None]
    source = np.where(choice < k, label * k + choice, (layout.inside.start + label) * k + choice - k)
    shape = (n, 2 * layout.n_labels, k)
    sources = [closer + layout.closers.start * k, source.reshape(shape)]
    return np.concatenate([opened, continued.reshape(shape)], 1), np.concatenate(sources, 1)


def backtrace_k_best(pointers: IntArray, packing: Packing, last: IntArray) -> IntArray:
    """Follow the back-pointers of k paths from their last tags, and return the tags of the paths.

    pointers (IntArray): *Shape:* (tokens, tags, k), packed
    last (IntArray): The last tag and rank of each path, as `tag * k + rank`. *Shape:* (sequences, k)
    RETURNS (IntArray): *Shape:* (tokens, k), packed
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


def k_largest(candidates: AnyFloats, k: int) -> tuple[AnyFloats, IntArray]:
    """Return the k largest values along the last axis, largest first, and their indices.

    Of equal values, the one with the lower index comes first. *Shape:* (..., m) to (..., min(k, m)) twice
    """
    order = np.argsort(-candidates, axis=-1, kind="stable")[..., :k]
    return np.take_along_axis(candidates, order, -1), order
