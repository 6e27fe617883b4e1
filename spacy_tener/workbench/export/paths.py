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


def write_viterbi(
    graph: Graph, scores: Value, lengths: Value, start: AnyFloats, end: AnyFloats, table: AnyFloats
) -> Value:
    """Write Viterbi's algorithm for a batch of texts. *Shape:* (longest, texts), the tags

    scores (Value): Emissions, -inf for tags that are not allowed. *Shape:* (longest, texts, tags)
    lengths (Value): Units of each text. *Shape:* (texts,)
    start, end (AnyFloats): Scores of the first and the last tag, in float64. *Shape:* (tags,) each
    table (AnyFloats): Scores `[from, to]` of pairs of tags. *Shape:* (tags, tags)
    """
    into = graph.value(np.ascontiguousarray(table.T))

    def advance(arriving: Value, score: Value) -> list[Value]:
        best = arriving + score
        return [graph.ReduceMax(graph.Unsqueeze(best, [1]) + into, axes=[2], keepdims=0), best]

    def go_back(leaving: Value, best: Value) -> list[Value]:
        tags = graph.ArgMax(best + leaving, axis=1, keepdims=0)
        return [into[tags], tags]

    shape = graph.shape(graph.size(lengths), len(start))
    [best] = graph.scan([graph.Expand(start, shape)], [scores], advance, 1)
    [tags] = graph.scan([graph.Expand(end, shape)], [graph.backwards(best, lengths)], go_back, 1)
    return graph.backwards(tags, lengths)


def write_forward_backward(
    graph: Graph, scores: Value, tags: Value, lengths: Value, transitions: Transitions
) -> tuple[Value, Value]:
    """Write the forward-backward algorithm, both directions at once. Returns a and b. *Shape:* (longest, texts) each

    scores (Value): As for `write_viterbi`, divided by the temperature. *Shape:* (longest, texts, tags)
    transitions (Transitions): Those of the CRF, divided by the temperature, in float64.
    """
    start, end, table = transitions.start, transitions.end, transitions.table
    factors = np.exp(np.stack([table, table.T]))

    def advance(arriving: Value, score: Value) -> list[Value]:
        sums = arriving + score
        largest = graph.ReduceMax(sums, axes=[2])
        return [graph.Log(graph.Exp(sums - largest) @ factors) + largest, sums]

    both = graph.Concat(*(graph.Unsqueeze(part, [1]) for part in (scores, graph.backwards(scores, lengths))), axis=1)
    edges = graph.Expand(np.stack([start, end])[:, None], graph.shape(2, graph.size(lengths), len(start)))
    [sums] = graph.scan([edges], [both], advance, 1)
    forward, backward = (graph.Squeeze(part, [1]) for part in graph.add("Split", sums, axis=1, outputs=2))
    backward = graph.backwards(backward, lengths)
    log_partition = graph.ReduceLogSumExp(backward[0] + start, axes=[1], keepdims=0)

    def on_path(values: Value) -> Value:
        return graph.Squeeze(graph.GatherElements(values, graph.Unsqueeze(tags, [2]), axis=2), [2])

    moves = graph.value(table.ravel())[graph.slice(tags, 0, -1) * len(start) + tags[1:]]
    emissions = on_path(scores)
    best = graph.cumulated(emissions + graph.Concat(graph.value(start)[tags[:1]], moves, axis=0))
    return on_path(forward) - best, on_path(backward) - emissions + best - log_partition
