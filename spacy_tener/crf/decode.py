"""Viterbi decoding of a linear-chain CRF in NumPy, for the best tag sequence (1-best) and the k best tag sequences.

The Viterbi algorithm (Rabiner 1989, section III.B) computes the score of the best path to each tag at each token. A
path is a tag sequence.

    best[t, j] = emissions[t, j] + max_i (best[t - 1, i] + transitions[i, j])

The tags are then found by backtracking from the last token.

- `viterbi` returns the best tags. It first prunes tokens that are certainly O (see `crf.pruning`).
- `best_paths` is the Viterbi algorithm without pruning.
- `list_viterbi` returns the k best paths.

All sequences in a batch are decoded in parallel, one time step at a time. `Packing` sorts their tokens by time step.
"""

from __future__ import annotations

import numpy as np

from ..sequences import Packing
from ..tagging import TagLayout
from ..types import AnyFloats, IntArray
from .pruning import certainly_outside
from .transitions import Transitions, inside_scores


def viterbi(emissions: AnyFloats, transitions: Transitions, packing: Packing) -> IntArray:
    """Return the tags of each sequence's best path.

    If several paths have the same score, the lower tag id is preferred, beginning at the last token.

    emissions (AnyFloats): Emission scores, with -inf for forbidden tags. *Shape:* (tokens, tags)
    transitions (Transitions): Transition scores.
    packing (Packing): The sequence lengths.
    RETURNS (IntArray): The tag ids. *Shape:* (tokens,)
    """
    tags: IntArray = np.full(len(emissions), transitions.layout.outside, np.int64)
    scores = np.ascontiguousarray(emissions.T)
    uncertain = np.flatnonzero(~certainly_outside(scores, transitions, packing))
    decode_uncertain(scores, transitions.start, transitions.table, transitions.end, packing, tags, uncertain)
    return tags


def best_paths(scores: AnyFloats, table: AnyFloats, packing: Packing) -> tuple[IntArray, AnyFloats]:
    """Run the Viterbi algorithm without pruning.

    The tokens of `scores` and of the returned tags are in packed order, see `Packing`.

    scores (AnyFloats): Emission scores, plus the start scores at each first token and the end scores at each last
        token. The array is overwritten. *Shape:* (tags, tokens)
    table (AnyFloats): Transition matrix `[from, to]`. *Shape:* (tags, tags)
    packing (Packing): The sequence lengths.
    RETURNS (tuple[IntArray, AnyFloats]): Tag id of each token, *Shape:* (tokens,), and sequence scores, ordered as in
        `packing.order`, *Shape:* (sequences,).
    """
    n_sequences = packing.sizes[0]
    transitions = table[:, :, None]
    buffer = np.empty((*table.shape, n_sequences), scores.dtype)
    previous = scores[:, :n_sequences]
    for begin, end in packing.steps[1:]:
        # Packed sequences are sorted by length, longest first. Only the first `end - begin` sequences have a token at
        # this time step.
        sums = np.add(previous[:, None, : end - begin], transitions, out=buffer[..., : end - begin])
        previous = scores[:, begin:end]
        previous += sums.max(axis=0)

    # Backtracking. Recomputing the argmax along the best path is cheaper than storing a back-pointer for every tag at
    # every token. The sums are the same as in the forward pass, so rounding cannot change the result.
    tags, best = np.empty(scores.shape[1], np.int64), np.empty(n_sequences, scores.dtype)
    transitions_to = np.ascontiguousarray(table.T)
    n_later = 0  # number of sequences with a token at the next time step
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
    """Decode the uncertain tokens, whose tags are unknown, given the other tokens' tags.

    Each run of adjacent uncertain tokens is decoded like a separate sequence. The transitions from the known tag before
    the run and to the known tag after it are added as start and end scores. In this example, `?` is an uncertain token:

        token           0    1    2    3    4    5    6
        tag             O    ?    ?    O    O    O    ?
        run                  -------                  ---
        start scores         table[O, :]              table[O, :]
        end scores           table[:, O]              end

    scores (AnyFloats): Emission scores. *Shape:* (tags, tokens)
    start, end (AnyFloats): Start and end scores of each tag. *Shape:* (tags,)
    table (AnyFloats): Transition matrix `[from, to]`. *Shape:* (tags, tags)
    packing (Packing): The sequence lengths.
    tags (IntArray): Tag id of each token. The tags of uncertain tokens are overwritten with the result.
        *Shape:* (tokens,)
    uncertain (IntArray): Indices of the uncertain tokens, in ascending order. *Shape:* (uncertain tokens,)
    """
    if not uncertain.size:
        return
    # A run starts if the preceding token is not uncertain or belongs to another sequence.
    sequence = packing.sequence[uncertain]
    is_first = np.diff(uncertain, prepend=-2) > 1
    is_first[1:] |= sequence[1:] != sequence[:-1]
    first = np.flatnonzero(is_first)
    last = np.append(first[1:], uncertain.size) - 1
    runs, sequence_of_run = Packing(last - first + 1), sequence[first]

    first_token, last_token = uncertain[first], uncertain[last]
    begins_sequence = first_token == packing.offsets[sequence_of_run]
    ends_sequence = last_token + 1 == (packing.offsets + packing.lengths)[sequence_of_run]
    # np.where evaluates both alternatives, so the neighbouring tag's index must be valid even where a sequence starts
    # or ends.
    tags_before, tags_after = tags[first_token - 1], tags[np.minimum(last_token + 1, tags.size - 1)]
    scores = scores[:, uncertain]
    scores[:, first] += np.where(begins_sequence, start[:, None], table[tags_before].T)
    scores[:, last] += np.where(ends_sequence, end[:, None], table[:, tags_after])

    found, best = best_paths(scores[:, runs.forward], table, runs)
    impossible = sequence_of_run[runs.order[~(best > -np.inf)]]
    if impossible.size:
        raise ValueError(
            f"no tag sequence is possible for text(s) {np.unique(impossible).tolist()}. Check that the allowed tags of "
            "adjacent tokens are compatible, and that the emissions contain no NaN and no infinite values"
        )
    tags[uncertain[runs.forward]] = found


# A path, given by its score and its tag ids.
ScoredPath = tuple[float, IntArray]


def list_viterbi(emissions: AnyFloats, transitions: Transitions, packing: Packing, k: int) -> list[list[ScoredPath]]:
    """Return the k best paths for each sequence, best first.

    If a sequence has fewer than k possible paths, all are returned. An empty sequence has one empty path with score 0.
    The function implements the parallel list Viterbi algorithm (Seshadri and Sundberg, 1994), which stores the k best
    paths to each tag instead of only the best one.

    emissions (AnyFloats): Emission scores, with -inf for forbidden tags. *Shape:* (tokens, tags)
    transitions (Transitions): Transition scores.
    packing (Packing): The sequence lengths.
    k (int): Maximum number of paths.
    RETURNS (list[list[ScoredPath]]): The paths of each sequence, given by their scores and tag ids.
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
        # A score of -inf is a placeholder: the sequence has fewer than k possible paths.
        found = [score for score in scores if score > -np.inf]
        results[sequence] = [(score, tags[:, rank].copy()) for rank, score in enumerate(found)]
    return results


def forward_k_best(
    emissions: AnyFloats, transitions: Transitions, packing: Packing, k: int
) -> tuple[AnyFloats, IntArray]:
    """Run the forward pass of the list Viterbi algorithm.

    The tokens of `emissions` and of the back-pointers are in packed order, see `Packing`.

    emissions (AnyFloats): Emission scores. *Shape:* (tokens, tags)
    transitions (Transitions): Transition scores.
    packing (Packing): The sequence lengths.
    k (int): Number of paths to each tag.
    RETURNS (tuple[AnyFloats, IntArray]): Scores of the k best paths to each tag at the last token,
        *Shape:* (sequences, tags, k), and back-pointers, *Shape:* (tokens, tags, k).
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
    """Extend the k best paths by one token.

    The returned scores do not include the emissions of the new token. A back-pointer is `tag * k + rank`, where `tag`
    is the previous tag and `rank` selects among the k best paths to this tag. The BIOES scheme allows two transition
    types: from O, S and E to B, O and S, and from B and I to E and I with the same label.

    best (AnyFloats): Scores of the k best paths to each tag. *Shape:* (sequences, tags, k)
    outside (AnyFloats): Transition scores `[to, from]` from O, S and E to B, O and S. Each score is repeated k times.
        *Shape:* (openers, closers * k)
    inside (AnyFloats): Transition scores from B and I to E and I, see `inside_scores`. *Shape:* (2, 2, labels, 1)
    layout (TagLayout): The tag ids.
    RETURNS (tuple[AnyFloats, IntArray]): Scores and back-pointers. *Shape:* (sequences, tags, k) each
    """
    n, _, k = best.shape
    opened, closer = k_largest(best[:, layout.closers].reshape(n, 1, -1) + outside, k)
    from_begin, from_inside = best[:, None, layout.begin] + inside[0], best[:, None, layout.inside] + inside[1]
    continued, choice = k_largest(np.concatenate((from_begin, from_inside), -1), k)
    label = np.arange(layout.n_labels)[:, None]
    # `choice` indexes the k paths to B, followed by the k paths to I.
    source = np.where(choice < k, label * k + choice, (layout.inside.start + label) * k + choice - k)
    shape = (n, 2 * layout.n_labels, k)
    sources = [closer + layout.closers.start * k, source.reshape(shape)]
    return np.concatenate([opened, continued.reshape(shape)], 1), np.concatenate(sources, 1)


def backtrace_k_best(pointers: IntArray, packing: Packing, last: IntArray) -> IntArray:
    """Return the tags of the k best paths, by following the back-pointers from the last token.

    pointers (IntArray): Back-pointers in packed order, as `tag * k + rank`. *Shape:* (tokens, tags, k)
    packing (Packing): The sequence lengths.
    last (IntArray): Last tag and rank of each path, as `tag * k + rank`. *Shape:* (sequences, k)
    RETURNS (IntArray): Tag ids in packed order. *Shape:* (tokens, k)
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
    """Return the k largest values along the last axis, in descending order, and their indices.

    Equal values are sorted by index.

    candidates (AnyFloats): The values. *Shape:* (..., m)
    k (int): Number of values.
    RETURNS (tuple[AnyFloats, IntArray]): Values and indices. *Shape:* (..., min(k, m)) each
    """
    # Sorting the negative values with a stable algorithm keeps equal values ordered by index.
    order = np.argsort(-candidates, axis=-1, kind="stable")[..., :k]
    return np.take_along_axis(candidates, order, -1), order
