"""Baidu's LAC in a graph: the entities of the component `lac`, which have no probabilities."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...nn.graph import Graph, Value
from ...onnx.lac_tagger import BREAKS, FORBIDDEN, LacTagger
from ...pipeline.units import TEXT
from ...tagging import TagLayout
from .code_points import joined_letters, read_kinds
from .layers import prepare_encoder
from .paths import write_viterbi
from .window_batches import WindowBatch, Windows, compute_in_batches, cut_evenly


def write_lac(graph: Graph, codes: Value, lengths: Value, tagger: LacTagger, labels: Sequence[str]) -> Value:
    """Write a `lac`, as `LacTagger.divide` and `trim_words` compute it. Returns the tag of each character.

    *Shape:* (characters,)

    codes (Value): Code points of all texts, joined. *Shape:* (characters,)
    lengths (Value): Characters of each text. *Shape:* (texts,)
    """
    size = graph.size(codes)
    is_break = graph.lookup(codes, dict.fromkeys(BREAKS.tolist(), 1), 0) > 0
    opens = (graph.marks(graph.starts(lengths), size) > 0) | graph.shifted(is_break, False)
    begins = graph.where_true(opens)
    stops = graph.Concat(begins, graph.shape(size), axis=0)[1:]
    ends = stops - is_break[stops - 1].to(np.int64)
    # No word begins within a Latin word. A text may begin behind one of another text.
    joined = joined_letters(graph, codes) & ~opens
    tags = _tags_of_lines(graph, codes, Windows(begins, ends, begins, ends), joined.to(np.int64), tagger)
    # A word begins where LAC says so, and at the edges of lines. It has the label of its first character.
    is_first = opens | is_break | graph.Equal(graph.Mod(tags, 2), 0)
    words = graph.CumSum(is_first.to(np.int64), 0) - 1
    n_labels = len(labels)
    label_of_tag = [labels.index(label) if label in labels else n_labels for label in tagger.labels for _ in "BI"]
    found = graph.Where(is_break, n_labels, graph.value(np.array(label_of_tag))[tags])
    found = found[graph.where_true(is_first)][words]
    # Its edges are characters of text.
    inner = graph.where_true(graph.Equal(read_kinds(graph, codes), TEXT))
    owners = words[inner]
    neighbours = graph.shifted(owners, -1), graph.Concat(owners[1:], [-1], axis=0)
    first, last = (
        graph.marks(inner[graph.where_true(~graph.Equal(owners, neighbour))], size) for neighbour in neighbours
    )
    is_within = graph.CumSum(first, 0) - graph.CumSum(last, 0) + last > 0
    tag_of = _tags_by_position(TagLayout(n_labels))
    tags = graph.value(tag_of.ravel())[(first + last * 2) * (n_labels + 1) + found]
    return graph.Where(is_within, tags, tag_of[0, -1])


def _tags_of_lines(graph: Graph, codes: Value, lines: Windows, joined: Value, tagger: LacTagger) -> Value:
    """Return LAC's tag of each character, B or I of a label. *Shape:* (characters,)

    joined (Value): 1 where no word begins. *Shape:* (characters,)
    """
    encoder, transitions = tagger.encoder, tagger.transitions.astype(np.float64)
    n_tags, size = len(transitions), graph.size(codes)
    write_encoder = prepare_encoder(graph, encoder, codes)
    windows = cut_evenly(graph, lines.begins, lines.ends, size=encoder.window, overlap=encoder.overlap)
    scores = compute_in_batches(
        graph, windows, size, n_tags, lambda batch: graph.slice(write_encoder(batch), 0, n_tags, axis=2)
    )

    begins_word = np.arange(n_tags) % 2 == 0
    penalties = graph.value(np.outer([0, 1], np.where(begins_word, FORBIDDEN, 0)).astype(np.float32))

    def decode(batch: WindowBatch) -> Value:
        steps = (scores[batch.slots] + penalties[joined[batch.slots]]).to(np.float64)
        steps = graph.Transpose(steps, perm=[1, 0, 2])
        tags = write_viterbi(graph, steps, batch.lengths, np.zeros(n_tags), np.zeros(n_tags), transitions)
        return graph.Unsqueeze(graph.Transpose(tags), [2])

    columns = compute_in_batches(graph, lines, size, 1, decode, np.int64)
    return graph.Squeeze(columns, [1])


def _tags_by_position(layout: TagLayout) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Return tags by position (inside, first, last, both) and label; O for no label. *Shape:* (4, labels + 1)"""
    blocks = (layout.inside, layout.begin, layout.end, layout.single)
    return np.array([[*range(block.start, block.stop), layout.outside] for block in blocks])
