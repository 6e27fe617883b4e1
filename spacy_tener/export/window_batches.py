"""Split long texts into windows in an exported ONNX graph, and compute layers on batches of windows.

The graph performs the same steps as `pipeline/windows.py` at run time. A batch contains windows of similar length to
avoid padding. `onnx_model.py` uses this module for the model, and `layers.py` for pretrained encoders.

All texts are concatenated. Windows are ranges of units, which are tokens or characters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..nn.graph import Graph, PaddedBatch, Value

# Maximum number of tokens or characters in a batch. The arrays for 1,024 tokens fit into a CPU core's cache, which
# makes the graph 1.15 times as fast as with 2,048 tokens.
UNITS_AT_ONCE = 1 << 10
# A function that adds ONNX nodes for a batch. The nodes compute a vector for each position in the padded batch.
# *Shape:* (windows, longest, width)
Compute = Callable[["WindowBatch"], Value]


class Windows(NamedTuple):
    """Overlapping windows over concatenated sequences. *Shape:* (windows,) each

    A window can have context on both sides, for which predictions are discarded. Predictions are kept for the part in
    the middle. The kept parts cover the sequences without gaps or overlaps. Windows with an empty kept part are
    ignored.

    starts, ends (Value): Start and end of each window, the input of the model.
    keep_starts, keep_ends (Value): Start and end of the part whose predictions are kept.
    """

    starts: Value
    ends: Value
    keep_starts: Value
    keep_ends: Value


@dataclass(frozen=True)
class WindowBatch(PaddedBatch):
    """A padded batch of windows.

    windows (Windows): The windows.
    indices (Value): Gather index for every position in the batch: the index of the token or character among all texts.
        Padding has the index of the window's first token. *Shape:* (windows, longest)
    """

    windows: Windows
    indices: Value


def make_batch(graph: Graph, windows: Windows) -> WindowBatch:
    """Add ONNX nodes that combine windows into a padded batch."""
    lengths = windows.ends - windows.starts
    longest = graph.ReduceMax(lengths, keepdims=0)
    positions = graph.Range(0, longest, 1)
    is_real = positions < graph.Unsqueeze(lengths, [1])
    indices = graph.Unsqueeze(windows.starts, [1]) + graph.Where(is_real, positions, 0)
    return WindowBatch(lengths, longest, is_real, windows, indices)


def kept_rows(graph: Graph, batch: WindowBatch, values: Value) -> tuple[Value, Value]:
    """Add ONNX nodes that remove padding and context from a batch.

    Return the remaining vectors, and the index of the token or character for each vector. *Shape:* (units, width) and
    (units,)

    values (Value): A vector for each position in the batch. *Shape:* (windows, longest, width)
    """
    starts, ends = (graph.Unsqueeze(part, [1]) for part in (batch.windows.keep_starts, batch.windows.keep_ends))
    indices = graph.Transpose(graph.NonZero(batch.is_real & (starts <= batch.indices) & (batch.indices < ends)))
    return graph.GatherND(values, indices), graph.GatherND(batch.indices, indices)


def cut_at_sentences(
    graph: Graph, starts: Value, ends: Value, is_end: Value, *, size: int, overlap: int, sentences: int | None
) -> Windows:
    """Add ONNX nodes that split texts into windows at sentence ends.

    The windows are the same as those from `pipeline.windows.cut_windows`, which tests/export/test_exported_windows.py
    verifies. All texts are split at once: each iteration of the loop adds one window to every text.

    starts, ends (Value): Start and end of each text. *Shape:* (texts,)
    is_end (Value): Mask of units (tokens or characters) that are sentence ends. *Shape:* (units,)
    size (int): Maximum number of units in a window.
    overlap (int): Number of context units on both sides of a cut within a sentence.
    sentences (Optional[int]): Maximum number of sentences in a window. Not used for texts that fit into one window.
    """
    # Windows are cut at boundaries: the start of the first text, sentence ends, and text ends.
    is_boundary = graph.Concat([True], is_end, axis=0) | (graph.count_indices(ends, graph.size(is_end) + 1) > 0)
    boundaries = graph.where_true(is_boundary)
    # Lookup table with the index of the last boundary at or before each position.
    last_boundary = graph.CumSum(is_boundary.to(np.int64), 0) - 1
    # The number of sentences is not limited for texts that fit into one window. These have at most `size` sentences.
    max_sentences = size if sentences is None else graph.Where(ends - starts <= size, size, sentences)

    def cut(keep_starts: Value, before: Value) -> list[Value]:
        """Cut the next window of each text. Return the loop state, followed by the windows.

        If a text has been processed completely, its window has an empty kept part.

        keep_starts (Value): Start of the next kept part in each text. *Shape:* (texts,)
        before (Value): Number of context units before the next kept part. *Shape:* (texts,)
        """
        limit = graph.Min(keep_starts - before + size, ends)
        last = graph.Min(last_boundary[limit], last_boundary[keep_starts] + max_sentences)
        # If no boundary fits into the window, the sentence is split, with context on both sides of the cut.
        is_cut = graph.Equal(last, last_boundary[keep_starts]) & (keep_starts < ends)
        keep_ends = graph.Where(is_cut, limit - overlap, boundaries[last])
        after = graph.Where(is_cut, overlap, 0)
        return [keep_ends, after, keep_starts - before, keep_ends + after, keep_starts, keep_ends]

    def is_unfinished(keep_starts: Value, before: Value) -> Value:
        return graph.ReduceSum((keep_starts < ends).to(np.int64), keepdims=0) > 0

    _, _, *parts = graph.loop([starts, starts * 0], is_unfinished, cut, n_rows=4)
    return Windows(*(graph.Reshape(part, [-1]) for part in parts))


def cut_evenly(graph: Graph, starts: Value, ends: Value, *, size: int, overlap: int) -> Windows:
    """Add ONNX nodes that split sequences into overlapping windows of the same size, for pretrained encoders.

    The windows are the same as those from `features.subwords.overlapping_windows`, which
    tests/export/test_exported_windows.py verifies.

    starts, ends (Value): Start and end of each sequence. *Shape:* (sequences,)
    size (int): Window length. A shorter sequence is a single window.
    overlap (int): Context length on each side of a window.
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
    """Add a loop over batches of windows, and return a vector for each unit. *Shape:* (units, width)

    A unit is a token or character. Windows are sorted by length, so that batches need little padding. A batch contains
    at most `UNITS_AT_ONCE` units, unless a single window is longer.

    n_units (Value): Number of units in all texts.
    width (int): Vector width.
    compute (Compute): Adds the nodes that compute the vectors for a batch.
    dtype (Any): The vectors' NumPy type.
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

    # The result lists start with an empty array. ONNX infers their type from it, and cannot concatenate an empty list.
    nothing = graph.full(dtype(0), 0, width), graph.full(0, 0)
    _, rows, positions = graph.loop(
        [graph.value(np.int64(0)), *(graph.SequenceConstruct(part) for part in nothing)],
        lambda first, *_: first < count,
        add_batch,
    )
    rows, positions = (graph.ConcatFromSequence(parts, axis=0) for parts in (rows, positions))
    zeros = graph.full(dtype(0), n_units, width)
    return graph.ScatterND(zeros, graph.Unsqueeze(positions, [1]), rows)
