"""Best paths and probabilities of a CRF in a graph, over whole texts, as `crf.decode` and `crf.forward` compute them.

Two numbers for each unit t suffice for the entities of the best path y. With forward sums alpha, backward sums beta,
log Z, and S_t the score of the best path up to t, they are a_t = alpha_t(y_t) - S_t and
b_t = beta_t(y_t) + S_t - log Z. An entity from i to j has the probability exp(a_i + b_j).
"""

from __future__ import annotations

import numpy as np

from ...crf.transitions import Transitions
from ...types import AnyFloats
from .graph import Graph, Value
from .windows import WindowBatch


def write_viterbi(
    graph: Graph, scores: Value, batch: WindowBatch, start: AnyFloats, end: AnyFloats, table: AnyFloats
) -> Value:
    """Write Viterbi's algorithm for a batch of texts. *Shape:* (longest, texts), the tags

    scores (Value): Emissions, -inf for tags that are not allowed. *Shape:* (longest, texts, tags)
    start, end (AnyFloats): Scores of the first and the last tag, in float64. *Shape:* (tags,) each
    table (AnyFloats): Scores `[from, to]` of pairs of tags. *Shape:* (tags, tags)
    """
    into = graph.value(np.ascontiguousarray(table.T))

    def advance(best: Value, score: Value, is_first: Value) -> list[Value]:
        reached = graph.ReduceMax(graph.Unsqueeze(best, [1]) + into, axes=[2], keepdims=0)
        best = graph.Where(is_first, start, reached) + score
        return [best, best]

    def go_back(tags: Value, best: Value, is_last: Value) -> list[Value]:
        arriving = graph.Where(is_last, end, into[tags])
        tags = graph.ArgMax(best + arriving, axis=1, keepdims=0)
        return [tags, tags]

    is_first, is_last = edges(graph, batch)
    n_texts = graph.size(batch.lengths)
    [best] = graph.scan([graph.full(np.float64(0), n_texts, len(start))], [scores, is_first], advance, 1)
    [tags] = graph.scan([graph.full(0, n_texts)], [best, is_last], go_back, 1, backward=True)
    return tags


def edges(graph: Graph, batch: WindowBatch) -> tuple[Value, Value]:
    """Return masks of the first and of the last unit of each text. *Shape:* (longest, 1, 1), (longest, texts, 1)"""
    places = graph.Unsqueeze(graph.Range(0, batch.longest, 1), [1, 2])
    return graph.Equal(places, 0), graph.Equal(places, graph.Unsqueeze(batch.lengths - 1, [0, 2]))


def write_forward_backward(
    graph: Graph, scores: Value, tags: Value, batch: WindowBatch, transitions: Transitions
) -> tuple[Value, Value]:
    """Write the forward-backward algorithm. Returns a and b. *Shape:* (longest, texts) each

    scores (Value): As for `write_viterbi`, divided by the temperature. *Shape:* (longest, texts, tags)
    transitions (Transitions): Those of the CRF, divided by the temperature, in float64.
    """
    start, end, table = transitions.start, transitions.end, transitions.table
    factors = np.exp(table)

    def log_product(sums: Value, table: AnyFloats) -> Value:
        """Return the logarithm of a product of exponentials."""
        largest = graph.ReduceMax(sums, axes=[1])
        return graph.Log(graph.Exp(sums - largest) @ table) + largest

    def advance(sums: Value, score: Value, is_first: Value) -> list[Value]:
        sums = graph.Where(is_first, start, log_product(sums, factors)) + score
        return [sums, sums]

    def go_back(sums: Value, score: Value, is_last: Value) -> list[Value]:
        behind = graph.Where(is_last, end, log_product(sums, np.ascontiguousarray(factors.T)))
        return [behind + score, behind]

    is_first, is_last = edges(graph, batch)
    zeros = graph.full(np.float64(0), graph.size(batch.lengths), len(start))
    [forward] = graph.scan([zeros], [scores, is_first], advance, 1)
    [backward] = graph.scan([zeros], [scores, is_last], go_back, 1, backward=True)
    log_partition = graph.ReduceLogSumExp(forward[0] + backward[0], axes=[1], keepdims=0)

    def on_path(values: Value) -> Value:
        return graph.Squeeze(graph.GatherElements(values, graph.Unsqueeze(tags, [2]), axis=2), [2])

    moves = graph.value(table.ravel())[graph.slice(tags, 0, -1) * len(start) + tags[1:]]
    steps = on_path(scores) + graph.Concat(graph.value(start)[tags[:1]], moves, axis=0)
    best = graph.cumulated(steps)
    return on_path(forward) - best, on_path(backward) + best - log_partition
