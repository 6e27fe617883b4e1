"""Add the CRF to an ONNX graph: the Viterbi algorithm, and the marginal probabilities of the predicted entities.

The marginal probability of an entity from position i to position j is computed by constrained forward-backward (Culotta
and McCallum 2004). It is the sum over all tag sequences that agree with the best path y from i to j, divided by the
partition function Z.

This probability is the product of two factors, exp(a_i) and exp(b_j). They are computed from the forward scores alpha,
the backward scores beta, and the score S_t of the best path up to position t:

    a_t = alpha_t(y_t) - S_t
    b_t = beta_t(y_t) + S_t - log Z
    p(entity from i to j) = exp(a_i + b_j)

A model for nested entities has separate emissions, and therefore a separate best path, for each nesting depth. An
entity on the best path for one depth can also occur at the other depths. Therefore a and b are computed for each path
with the scores of each depth.

`crf/decode.py` and `crf/forward.py` implement the same algorithms in NumPy.
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
    """Add the Viterbi algorithm to an ONNX graph. Return the best tag sequences. *Shape:* (longest, texts)

    scores (Value): Emission scores, -inf for tags that are not allowed. *Shape:* (longest, texts, tags)
    lengths (Value): Text lengths. *Shape:* (texts,)
    start, end (AnyFloats): Start and end scores of the tags, in float64. *Shape:* (tags,) each
    table (AnyFloats): Transition matrix, `table[from, to]`. *Shape:* (tags, tags)
    """
    into = graph.value(np.ascontiguousarray(table.T))

    def advance(arriving: Value, score: Value) -> list[Value]:
        best = arriving + score
        return [graph.ReduceMax(graph.Unsqueeze(best, [1]) + into, axes=[2], keepdims=0), best]

    # Compute the best predecessor again instead of storing back-pointers.
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
    """Add the forward-backward algorithm to an ONNX graph. Return the terms a and b for each position in each path.

    The sum of the terms a and b is an entity's log probability: see the equations in the module docstring.
    *Shape:* (longest, sequences, paths) each

    scores (Value): Emission scores, divided by the temperature. *Shape:* (longest, sequences, tags)
    paths (Value): One or more tag sequences for each sequence of emissions. *Shape:* (longest, sequences, paths)
    lengths (Value): Sequence lengths. *Shape:* (sequences,)
    transitions (Transitions): Transition scores, divided by the temperature, in float64.
    """
    start, end, table = transitions.start, transitions.end, transitions.table
    factors = np.exp(np.stack([table, table.T]))

    def advance(arriving: Value, score: Value) -> list[Value]:
        sums = arriving + score
        # logsumexp: subtracting the maximum prevents an overflow, and the sum over previous tags becomes a matrix
        # product.
        largest = graph.ReduceMax(sums, axes=[2])
        return [graph.Log(graph.Exp(sums - largest) @ factors) + largest, sums]

    # A single loop computes both directions. The backward direction uses the reversed sequences and transposed
    # transitions.
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
    """Add ONNX nodes that compute marginal probabilities, for the entities on the best paths.

    The result is the probability that an entity occurs at any nesting depth. It is stored at the entity's last
    position, and is 0 at all other positions. *Shape:* (depth, units)

    tags (Value): The best path at each nesting depth. *Shape:* (depth, units)
    a, b (Value): The terms from `write_forward_backward`, for each combination of a path and a depth.
        *Shape:* (units, depth * depth)
    layout (TagLayout): The tags.
    depth (int): The maximum nesting depth.
    """
    opens, closes = np.zeros((2, layout.n_tags), dtype=bool)
    opens[layout.begin] = opens[layout.single] = closes[layout.single] = closes[layout.end] = True
    joined = graph.Reshape(tags, [-1])
    a, b = (graph.Transpose(graph.Reshape(part, [-1, depth, depth]), perm=[1, 0, 2]) for part in (a, b))
    a, b = (graph.Reshape(part, [-1, depth]) for part in (a, b))
    is_open = graph.value(opens)[joined]
    # Positions before the first entity get the index -1. Their probabilities are not used, since no entity ends there.
    begins = graph.Concat(graph.where_true(is_open), [0], axis=0)
    first = begins[graph.CumSum(is_open.to(np.int64), 0) - 1]
    # The depths are independent sequences: p(any depth) = 1 - product over depths of (1 - p(depth)).
    at_no_depth = graph.ReduceProd(graph.Sub(1.0, graph.Exp(graph.Min(a[first] + b, 0.0))), axes=[1], keepdims=0)
    at_any = graph.Sub(1.0, at_no_depth)
    return graph.Reshape(graph.Where(graph.value(closes)[joined], at_any, 0.0), [depth, -1])
