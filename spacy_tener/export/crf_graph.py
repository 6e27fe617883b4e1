"""Best paths and probabilities of a CRF in a graph, over whole texts, as `crf.decode` and `crf.forward` compute them.

Two numbers for each unit t suffice for the entities of the best path y. With forward sums alpha, backward sums beta,
log Z, and S_t the score of the best path up to t, they are a_t = alpha_t(y_t) - S_t and
b_t = beta_t(y_t) + S_t - log Z. An entity from i to j has the probability exp(a_i + b_j). Where entities lie within
others, each depth has a best path; a and b of each path by the sums of each depth give the probability at any depth.
"""

from __future__ import annotations

import numpy as np

from ..crf.transitions import Transitions
from ..nn.graph import Graph, Value
from ..tagging import TagLayout
from ..types import AnyFloats


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
    best = graph.scan([graph.Expand(start, shape)], [scores], advance)
    tags = graph.scan([graph.Expand(end, shape)], [graph.backwards(best, lengths)], go_back)
    return graph.backwards(tags, lengths)


def write_forward_backward(
    graph: Graph, scores: Value, paths: Value, lengths: Value, transitions: Transitions
) -> tuple[Value, Value]:
    """Write the forward-backward algorithm, both directions at once. Returns a and b of paths.

    *Shape:* (longest, sequences, paths) each

    scores (Value): As for `write_viterbi`, divided by the temperature. *Shape:* (longest, sequences, tags)
    paths (Value): The tags of some paths of each sequence. *Shape:* (longest, sequences, paths)
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
    sums = graph.scan([edges], [both], advance)
    forward, backward = (graph.Squeeze(part, [1]) for part in graph.add("Split", sums, axis=1, outputs=2))
    backward = graph.backwards(backward, lengths)
    log_partition = graph.ReduceLogSumExp(backward[0] + start, axes=[1])
    before, emissions, after = (graph.GatherElements(part, paths, axis=2) for part in (forward, scores, backward))
    moves = graph.value(table.ravel())[graph.slice(paths, 0, -1) * len(start) + paths[1:]]
    path_scores = graph.CumSum(emissions + graph.Concat(graph.value(start)[paths[:1]], moves, axis=0), 0)
    return before - path_scores, after - emissions + path_scores - log_partition


def write_probabilities(graph: Graph, tags: Value, a: Value, b: Value, layout: TagLayout, depth: int) -> Value:
    """Write the probability of the entity that ends at each unit of a path: that it is one at any depth.

    *Shape:* (depth, units), 0 where none ends

    tags (Value): The best path of each depth. *Shape:* (depth, units)
    a, b (Value): Of each path, by the sums of each depth. *Shape:* (units, depth * depth)
    """
    opens, closes = np.zeros((2, layout.n_tags), dtype=bool)
    opens[layout.begin] = opens[layout.single] = closes[layout.single] = closes[layout.end] = True
    joined = graph.Reshape(tags, [-1])
    a, b = (graph.Transpose(graph.Reshape(part, [-1, depth, depth]), perm=[1, 0, 2]) for part in (a, b))
    a, b = (graph.Reshape(part, [-1, depth]) for part in (a, b))
    is_open = graph.value(opens)[joined]
    # Before the first entity, the number is -1: any unit will do.
    begins = graph.Concat(graph.where_true(is_open), [0], axis=0)
    first = begins[graph.CumSum(is_open.to(np.int64), 0) - 1]
    at_no_depth = graph.ReduceProd(graph.Sub(1.0, graph.Exp(graph.Min(a[first] + b, 0.0))), axes=[1], keepdims=0)
    at_any = graph.Sub(1.0, at_no_depth)
    return graph.Reshape(graph.Where(graph.value(closes)[joined], at_any, 0.0), [depth, -1])
