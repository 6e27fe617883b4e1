"""Windows over long texts in an exported graph, and batches of windows.

The exported graph splits texts into windows at run time, like the pipeline, and runs the model on batches of windows of
similar length. `onnx_model` uses this module for the tagger, and `layers` for pretrained encoders.

Values are graph values, not arrays. A text or window is a range of indices into the units (tokens or characters) of all
texts, concatenated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..nn.graph import Graph, PaddedBatch, Value

# The number of units in a batch. The arrays of 1,024 units fit into the cache of a CPU core, which makes the graph 1.15
# times as fast as with 2,048 units. Small batches also need little padding.
UNITS_AT_ONCE = 1 << 10
# A function that adds a computation to the graph and returns a row for each position of a padded batch.
# *Shape:* (windows, longest, width)
Compute = Callable[["WindowBatch"], Value]


class Windows(NamedTuple):
    """Windows over concatenated sequences. *Shape:* (windows,) each

    The kept parts of all windows cover the sequences without gap or overlap. A window whose kept part is empty is
    ignored.

    starts, ends (Value): The range of each window, which is the model's input.
    keep_starts, keep_ends (Value): The range within each window whose predictions are kept.
    """

    starts: Value
    ends: Value
    keep_starts: Value
    keep_ends: Value


@dataclass(frozen=True)
class WindowBatch(PaddedBatch):
    """A padded batch of windows.

    windows (Windows): The windows.
    indices (Value): The index of the unit at each position. At padding, it is the index of the window's first unit.
        *Shape:* (windows, longest)
    """

    windows: Windows
    indices: Value


def make_batch(graph: Graph, windows: Windows) -> WindowBatch:
    """Return a padded batch of all windows."""
    lengths = windows.ends - windows.starts
    longest = graph.ReduceMax(lengths, keepdims=0)
    positions = graph.Range(0, longest, 1)
    is_real = positions < graph.Unsqueeze(lengths, [1])
    indices = graph.Unsqueeze(windows.starts, [1]) + graph.Where(is_real, positions, 0)
    return WindowBatch(lengths, longest, is_real, windows, indices)


def kept_rows(graph: Graph, batch: WindowBatch, values: Value) -> tuple[Value, Value]:
    """Return the rows of the kept parts of a batch, and the indices of their units.

    *Shape:* (units, width) and (units,)

    values (Value): A row for each position of the batch. *Shape:* (windows, longest, width)
    """
    starts, ends = (graph.Unsqueeze(part, [1]) for part in (batch.windows.keep_starts, batch.windows.keep_ends))
    indices = graph.Transpose(graph.NonZero(batch.is_real & (starts <= batch.indices) & (batch.indices < ends)))
    return graph.GatherND(values, indices), graph.GatherND(batch.indices, indices)


def cut_at_sentences(
    graph: Graph, starts: Value, ends: Value, is_end: Value, *, size: int, overlap: int, sentences: int | None
) -> Windows:
    """Split texts into windows at sentence ends.

    The rule is specified by `pipeline.windows.cut_windows`. An exported graph runs without Python, so it cannot call
    that function, and it splits all texts at once instead of one: each iteration of the loop adds one window to every
    text. tests/export/test_exported_windows.py compares both functions on random texts.

    starts, ends (Value): The range of each text. The texts follow each other without gaps. *Shape:* (texts,)
    is_end (Value): Mask of units that are sentence ends. *Shape:* (units,)
    size (int): Maximum number of units in a window.
    overlap (int): Number of units of context on both sides of a split within a sentence.
    sentences (Optional[int]): Maximum number of sentences in a window of a text that is longer than `size`.
    """
    # A boundary is a position before the first unit, after a sentence, or after a text.
    is_boundary = graph.Concat([True], is_end, axis=0) | (graph.count_indices(ends, graph.size(is_end) + 1) > 0)
    boundaries = graph.where_true(is_boundary)
    # For each position, the index of the last boundary at or before it.
    last_boundary = graph.CumSum(is_boundary.to(np.int64), 0) - 1
    # A text that fits into one window is not split, however many sentences it has. It has at most `size` sentences.
    max_sentences = size if sentences is None else graph.Where(ends - starts <= size, size, sentences)

    def cut(keep_starts: Value, before: Value) -> list[Value]:
        """Return the state for the next windows, and the ranges of the present ones.

        A text that is already covered gets a window whose kept part is empty, until all texts are covered.

        before (Value): The number of units of context before each kept part.
        """
        limit = graph.Min(keep_starts - before + size, ends)
        last = graph.Min(last_boundary[limit], last_boundary[keep_starts] + max_sentences)
        is_cut = graph.Equal(last, last_boundary[keep_starts]) & (keep_starts < ends)
        keep_ends = graph.Where(is_cut, limit - overlap, boundaries[last])
        after = graph.Where(is_cut, overlap, 0)
        return [keep_ends, after, keep_starts - before, keep_ends + after, keep_starts, keep_ends]

    def is_unfinished(keep_starts: Value, before: Value) -> Value:
        return graph.ReduceSum((keep_starts < ends).to(np.int64), keepdims=0) > 0

    _, _, *parts = graph.loop([starts, starts * 0], is_unfinished, cut, n_rows=4)
    return Windows(*(graph.Reshape(part, [-1]) for part in parts))


def cut_evenly(graph: Graph, starts: Value, ends: Value, *, size: int, overlap: int) -> Windows:
    """Split sequences into windows of `size` units with `overlap` units of context on both sides of their kept parts.

    The rule is specified by `features.subwords.overlapping_windows`, which splits texts for pretrained encoders in the
    pipeline. tests/export/test_exported_windows.py compares both functions. A sequence of at most `size` units is one
    window.

    starts, ends (Value): The range of each sequence. *Shape:* (sequences,)
    """
    step, lengths = size - 2 * overlap, ends - starts
    counts = graph.Where(lengths > 0, graph.Max((lengths - (2 * overlap + 1)) / step + 1, 1), 0)
    first_windows, total = graph.starts(counts), graph.ReduceSum(counts, keepdims=0)
    sequence_index = graph.sequence_index(first_windows, total)
    numbers = graph.Range(0, total, 1) - first_windows[sequence_index]
    starts, ends = starts[sequence_index], ends[sequence_index]
    window_starts = graph.Min(starts + numbers * step, graph.Max(starts, ends - size))
    keep_starts = graph.Where(numbers > 0, starts + numbers * step + overlap, starts)
    is_last = graph.Equal(numbers + 1, counts[sequence_index])
    keep_ends = graph.Where(is_last, ends, starts + (numbers + 1) * step + overlap)
    return Windows(window_starts, graph.Min(window_starts + size, ends), keep_starts, keep_ends)


def compute_in_batches(
    graph: Graph, windows: Windows, n_units: Value, width: int, compute: Compute, dtype: Any = np.float32
) -> Value:
    """Compute a row for each unit, in batches of windows of similar length. *Shape:* (units, width)

    A unit gets its row from the window that keeps its predictions. Windows are sorted by length, so that batches need
    little padding. A batch has at most `UNITS_AT_ONCE` units, but at least one window.

    n_units (Value): The number of units of all texts.
    width (int): The width of the rows.
    compute (Compute): Adds the computation for a batch to the graph.
    dtype (Any): The NumPy type of the rows.
    """
    lengths = graph.Where(windows.keep_starts < windows.keep_ends, windows.ends - windows.starts, 0)
    count = graph.ReduceSum((lengths > 0).to(np.int64), keepdims=0)
    _, order = graph.add("TopK", lengths, graph.shape(graph.size(lengths)), outputs=2)

    def add_batch(first: Value, rows: Value, positions: Value) -> list[Value]:
        behind = graph.Min(first + graph.Max(graph.Div(UNITS_AT_ONCE, lengths[order[first]]), 1), count)
        chosen = graph.slice(order, first, behind)
        batch = make_batch(graph, Windows(*(part[chosen] for part in windows)))
        new_rows, new_positions = kept_rows(graph, batch, compute(batch))
        return [behind, graph.SequenceInsert(rows, new_rows), graph.SequenceInsert(positions, new_positions)]

    # ONNX infers the type of a sequence from its first element, and cannot concatenate an empty sequence (no texts).
    nothing = graph.full(dtype(0), 0, width), graph.full(0, 0)
    _, rows, positions = graph.loop(
        [graph.value(np.int64(0)), *(graph.SequenceConstruct(part) for part in nothing)],
        lambda first, *_: first < count,
        add_batch,
    )
    rows, positions = (graph.ConcatFromSequence(parts, axis=0) for parts in (rows, positions))
    zeros = graph.full(dtype(0), n_units, width)
    return graph.ScatterND(zeros, graph.Unsqueeze(positions, [1]), rows)
