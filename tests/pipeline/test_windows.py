"""Split long texts into windows, and group windows into batches."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spacy_tener.pipeline.windows import Window, batch_by_size, cut_windows


def no_sentence_ends(length):
    return np.zeros(length, dtype=bool)


@given(
    length=st.integers(1, 400),
    overlap=st.integers(1, 10),
    extra=st.integers(1, 40),
    ends=st.lists(st.integers(0, 399), max_size=40),
    sentences=st.none() | st.integers(1, 4),
)
def test_kept_parts_partition_text_and_windows_respect_size(length, overlap, extra, ends, sentences):
    size = 2 * overlap + extra
    sentence_ends = no_sentence_ends(length)
    sentence_ends[[end for end in ends if end < length]] = True
    windows = cut_windows(length, sentence_ends, size=size, overlap=overlap, sentences=sentences)
    covered = [i for window in windows for i in range(window.keep_start, window.keep_end)]
    assert covered == list(range(length))
    boundaries = {0, length, *(np.flatnonzero(sentence_ends) + 1).tolist()}
    for window in windows:
        assert len(window) <= size
        # Windows have context only if a sentence is split.
        assert window.keep_start - window.start == overlap * (window.keep_start not in boundaries)
        assert window.end - window.keep_end == overlap * (window.keep_end not in boundaries)
        if sentences and length > size:
            assert sentence_ends[window.keep_start : window.keep_end - 1].sum() < sentences
        # Sentences that fit into a window are not split.
        if window.keep_end not in boundaries:
            assert not {*range(window.keep_start + 1, window.start + size + 1)} & boundaries


def test_window_contains_as_many_sentences_as_fit():
    ends = no_sentence_ends(100)
    ends[[3, 30, 60]] = True
    windows = cut_windows(100, ends, size=50, overlap=5)
    assert windows == [Window(0, 31, 0, 31), Window(31, 61, 31, 61), Window(61, 100, 61, 100)]


def test_window_respects_maximum_number_of_sentences():
    ends = no_sentence_ends(60)
    ends[[9, 19, 29, 59]] = True
    offsets = [(window.start, window.end) for window in cut_windows(60, ends, size=50, overlap=5, sentences=2)]
    assert offsets == [(0, 20), (20, 60)]
    assert cut_windows(50, ends[:50], size=50, overlap=5, sentences=2) == [Window(0, 50, 0, 50)]


def test_long_sentence_is_split_with_context():
    windows = cut_windows(100, no_sentence_ends(100), size=50, overlap=5)
    assert windows == [Window(0, 50, 0, 45), Window(40, 90, 45, 85), Window(80, 100, 85, 100)]


def test_short_sentence_before_long_sentence_is_separate_window():
    ends = no_sentence_ends(100)
    ends[3] = True
    assert cut_windows(100, ends, size=50, overlap=5)[:2] == [Window(0, 4, 0, 4), Window(4, 54, 4, 49)]


def test_kept_slice_is_relative_to_window_start():
    assert Window(40, 90, 45, 85).kept_slice == slice(5, 45)


def test_empty_text_has_no_windows():
    assert cut_windows(0, no_sentence_ends(0), size=50, overlap=5) == []


@given(st.lists(st.integers(0, 30), max_size=30), st.integers(1, 40))
def test_batches_respect_size_limit_and_order(sizes, limit):
    items = [range(size) for size in sizes]
    batches = list(batch_by_size(items, limit))
    assert [item for batch in batches for item in batch] == items
    for batch in batches:
        assert batch
        assert len(batch) == 1 or sum(map(len, batch)) <= limit


@pytest.mark.parametrize("limit", [1, 3])
def test_batches_are_filled_to_limit(limit):
    assert [len(batch) for batch in batch_by_size(["a"] * 6, limit)] == [limit] * (6 // limit)
