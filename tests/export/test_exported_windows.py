"""Test that an exported graph splits texts into the same windows as the pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import spacy
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnxruntime import InferenceSession, SessionOptions

from spacy_tener.export.code_points import read_units, sentence_ends
from spacy_tener.export.window_batches import Windows, cut_at_sentences, cut_evenly
from spacy_tener.features.subwords import overlapping_windows
from spacy_tener.nn.graph import Graph, Value
from spacy_tener.pipeline.units import view_of
from spacy_tener.pipeline.windows import Window, cut_windows

LENGTHS = st.lists(st.integers(0, 150), min_size=1, max_size=60)


def windows_of_graph(
    cut: Callable[[Graph, Value, Value, Value], Windows], lengths: Sequence[int], is_end: NDArray[np.bool_]
) -> list[Window]:
    """Return the windows over concatenated texts that a graph computes, in the order of the parts that are kept.

    cut (Callable): Adds the windows to a graph, from the starts and ends of texts and the mask of sentence ends.
    """
    graph = Graph()
    text_lengths, mask = graph.input("lengths", np.int64, "texts"), graph.input("is_end", np.bool_, "units")
    starts = graph.starts(text_lengths)
    windows = cut(graph, starts, starts + text_lengths, mask)
    outputs = {f"part_{i}": (part, np.int64, ["windows"]) for i, part in enumerate(windows)}
    options = SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3  # Without warnings about loops with no iteration.
    session = InferenceSession(graph.model(outputs).SerializeToString(), options, providers=["CPUExecutionProvider"])
    parts = session.run(None, {"lengths": np.array(lengths, dtype=np.int64), "is_end": is_end})
    found = [Window(*row) for row in np.stack(parts, axis=1).tolist()]
    return sorted((window for window in found if window.keep_start < window.keep_end), key=lambda w: w.keep_start)


def concatenate_windows(windows_of_texts: Sequence[Sequence[Window]], lengths: Sequence[int]) -> list[Window]:
    """Return the windows of texts as windows over the concatenated texts."""
    starts = np.cumsum([0, *lengths]).tolist()
    return [
        Window(*(start + edge for edge in (window.start, window.end, window.keep_start, window.keep_end)))
        for start, windows in zip(starts, windows_of_texts, strict=False)
        for window in windows
    ]


@settings(deadline=None, max_examples=60)
@given(
    lengths=LENGTHS,
    overlap=st.integers(0, 10),
    extra=st.integers(1, 40),
    sentences=st.none() | st.integers(1, 4),
    frequency=st.sampled_from([0.0, 0.01, 0.05, 0.2, 0.9]),
    seed=st.integers(0, 1000),
)
def test_graph_and_pipeline_cut_texts_at_the_same_sentences(lengths, overlap, extra, sentences, frequency, seed):
    rules = {"size": 2 * overlap + extra, "overlap": overlap, "sentences": sentences}
    is_end = np.random.default_rng(seed).random(sum(lengths)) < frequency
    texts = np.split(is_end, np.cumsum(lengths)[:-1])
    expected = concatenate_windows([cut_windows(len(ends), ends, **rules) for ends in texts], lengths)
    assert windows_of_graph(lambda *inputs: cut_at_sentences(*inputs, **rules), lengths, is_end) == expected


@settings(deadline=None, max_examples=60)
@given(lengths=LENGTHS, overlap=st.integers(0, 10), extra=st.integers(1, 40))
def test_graph_and_pipeline_cut_evenly_at_the_same_positions(lengths, overlap, extra):
    size = 2 * overlap + extra
    expected = []
    for length in lengths:
        starts, window_of_unit = overlapping_windows(length, size=size, overlap=overlap)
        edges = np.searchsorted(window_of_unit, range(len(starts) + 1)).tolist()
        expected.append(
            [
                Window(start, min(start + size, length), edges[i], edges[i + 1])
                for i, start in enumerate(starts.tolist())
            ]
        )
    found = windows_of_graph(
        lambda graph, starts, ends, _: cut_evenly(graph, starts, ends, size=size, overlap=overlap),
        lengths,
        np.zeros(0, dtype=bool),
    )
    assert found == concatenate_windows(expected, lengths)


@settings(deadline=None, max_examples=60)
@given(texts=st.lists(st.text(st.sampled_from("aé.9９ \n\t。京;"), max_size=12), min_size=1, max_size=5))
def test_graph_and_pipeline_find_the_same_sentence_ends(texts: list[str]) -> None:
    nlp = spacy.blank("zh")
    for view in ("tokens", "characters"):
        views = [view_of(nlp(text), view) for text in texts]
        graph = Graph()
        codes, lengths = graph.input("codes", np.int64, "characters"), graph.input("lengths", np.int64, "texts")
        ends = sentence_ends(graph, read_units(graph, codes, lengths, view))
        options = SessionOptions()
        options.intra_op_num_threads = 1
        model = graph.model({"ends": (ends, np.bool_, ["units"])}).SerializeToString()
        session = InferenceSession(model, options, providers=["CPUExecutionProvider"])
        inputs = {
            "codes": np.array(list(map(ord, "".join(texts))), dtype=np.int64),
            "lengths": np.array(list(map(len, texts)), dtype=np.int64),
        }
        [found] = session.run(None, inputs)
        expected = [is_end for one in views for is_end in (one.sentence_ends() if len(one) else ())]
        assert found.tolist() == expected
