"""Write the CRF to an ONNX graph: the Viterbi algorithm, and the probabilities of entities on the best path.

The probability of an entity from unit i to unit j is the sum over all paths that agree with the best path y from i to
j, divided by Z. With the forward scores alpha, the backward scores beta, the log-partition function log Z, and the
score S_t of the best path up to unit t, it factorizes into two numbers for each unit:

    a_t = alpha_t(y_t) - S_t
    b_t = beta_t(y_t) + S_t - log Z
    p(entity from i to j) = exp(a_i + b_j)

If entities can be nested, each depth has a best path. The probability of an entity at any depth is computed from a and
b of its path with the forward and backward scores of each depth. `crf.decode` and `crf.forward` are the same in NumPy.
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
    """Write the Viterbi algorithm for a batch of texts. Return the tags of the best paths. *Shape:* (longest, texts)

    scores (Value): Emissions, which are -inf for tags that are not allowed. *Shape:* (longest, texts, tags)
    lengths (Value): Number of units in each text. *Shape:* (texts,)
    start, end (AnyFloats): Scores of the first and the last tag, in float64. *Shape:* (tags,) each
    table (AnyFloats): Scores of transitions, `table[from, to]`. *Shape:* (tags, tags)
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
    tags = graph.scan([graph.Expand(end, shape)], [graph.reverse_sequences(best, lengths)], go_back)
    return graph.reverse_sequences(tags, lengths)


def write_forward_backward(
    graph: Graph, scores: Value, paths: Value, lengths: Value, transitions: Transitions
) -> tuple[Value, Value]:
    """Write the forward-backward algorithm. Return a and b of each path (see above).

    Both directions are computed in the same loop, with the reversed sequences for the backward direction.
    *Shape:* (longest, sequences, paths) each

    scores (Value): Emissions as in `write_viterbi`, divided by the temperature. *Shape:* (longest, sequences, tags)
    paths (Value): The tags of one or more paths for each sequence. *Shape:* (longest, sequences, paths)
    lengths (Value): Number of units in each sequence. *Shape:* (sequences,)
    transitions (Transitions): Transition scores of the CRF, divided by the temperature, in float64.
    """
    start, end, table = transitions.start, transitions.end, transitions.table
    factors = np.exp(np.stack([table, table.T]))

    def advance(arriving: Value, score: Value) -> list[Value]:
        sums = arriving + score
        largest = graph.ReduceMax(sums, axes=[2])
        return [graph.Log(graph.Exp(sums - largest) @ factors) + largest, sums]

    both = graph.Concat(
        *(graph.Unsqueeze(part, [1]) for part in (scores, graph.reverse_sequences(scores, lengths))), axis=1
    )
    edges = graph.Expand(np.stack([start, end])[:, None], graph.shape(2, graph.size(lengths), len(start)))
    sums = graph.scan([edges], [both], advance)
    forward, backward = (graph.Squeeze(part, [1]) for part in graph.add("Split", sums, axis=1, outputs=2))
    backward = graph.reverse_sequences(backward, lengths)
    log_partition = graph.ReduceLogSumExp(backward[0] + start, axes=[1])
    before, emissions, after = (graph.GatherElements(part, paths, axis=2) for part in (forward, scores, backward))
    moves = graph.value(table.ravel())[graph.slice(paths, 0, -1) * len(start) + paths[1:]]
    path_scores = graph.CumSum(emissions + graph.Concat(graph.value(start)[paths[:1]], moves, axis=0), 0)
    return before - path_scores, after - emissions + path_scores - log_partition


def write_probabilities(graph: Graph, tags: Value, a: Value, b: Value, layout: TagLayout, depth: int) -> Value:
    """Write the probability of each entity on the best paths, which is the probability that it is found at any depth.

    The probability is stored at the last unit of the entity. It is 0 at all other units. *Shape:* (depth, units)

    tags (Value): The best path of each depth. *Shape:* (depth, units)
    a, b (Value): a and b of each path, with the scores of each depth. *Shape:* (units, depth * depth)
    layout (TagLayout): The tags.
    depth (int): The maximum nesting depth.
    """
    opens, closes = np.zeros((2, layout.n_tags), dtype=bool)
    opens[layout.begin] = opens[layout.single] = closes[layout.single] = closes[layout.end] = True
    joined = graph.Reshape(tags, [-1])
    a, b = (graph.Transpose(graph.Reshape(part, [-1, depth, depth]), perm=[1, 0, 2]) for part in (a, b))
    a, b = (graph.Reshape(part, [-1, depth]) for part in (a, b))
    is_open = graph.value(opens)[joined]
    # Units before the first entity get the index -1, whose values are not used.
    begins = graph.Concat(graph.where_true(is_open), [0], axis=0)
    first = begins[graph.CumSum(is_open.to(np.int64), 0) - 1]
    at_no_depth = graph.ReduceProd(graph.Sub(1.0, graph.Exp(graph.Min(a[first] + b, 0.0))), axes=[1], keepdims=0)
    at_any = graph.Sub(1.0, at_no_depth)
    return graph.Reshape(graph.Where(graph.value(closes)[joined], at_any, 0.0), [depth, -1])
