"""Windows over long documents."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spacy_tener.pipeline.windows import Window, batch_by_size, cut_windows


def no_ends(length):
    return np.zeros(length, dtype=bool)


@given(
    length=st.integers(1, 400),
    overlap=st.integers(1, 10),
    extra=st.integers(1, 40),
    ends=st.lists(st.integers(0, 399), max_size=40),
    sentences=st.none() | st.integers(1, 4),
)
def test_cores_cover_everything_once_and_windows_keep_their_bounds(length, overlap, extra, ends, sentences):
    size = 2 * overlap + extra
    marks = no_ends(length)
    marks[[end for end in ends if end < length]] = True
    windows = cut_windows(length, marks, size=size, overlap=overlap, sentences=sentences)
    covered = [i for window in windows for i in range(window.keep_start, window.keep_end)]
    assert covered == list(range(length))
    behind_ends = {0, length, *(np.flatnonzero(marks) + 1).tolist()}
    for window in windows:
        assert len(window) <= size
        # Context is read where a sentence is cut, and nowhere else.
        assert window.keep_start - window.start == overlap * (window.keep_start not in behind_ends)
        assert window.end - window.keep_end == overlap * (window.keep_end not in behind_ends)
        if sentences and length > size:
            assert marks[window.keep_start : window.keep_end - 1].sum() < sentences
        # A sentence that would fit is not cut.
        if window.keep_end not in behind_ends:
            assert not {*range(window.keep_start + 1, window.start + size + 1)} & behind_ends


def test_a_window_has_as_many_whole_sentences_as_fit():
    ends = no_ends(100)
    ends[[3, 30, 60]] = True
    windows = cut_windows(100, ends, size=50, overlap=5)
    assert windows == [Window(0, 31, 0, 31), Window(31, 61, 31, 61), Window(61, 100, 61, 100)]


def test_a_window_has_no_more_sentences_than_training_texts_had():
    ends = no_ends(60)
    ends[[9, 19, 29, 59]] = True
    cores = [(each.start, each.end) for each in cut_windows(60, ends, size=50, overlap=5, sentences=2)]
    assert cores == [(0, 20), (20, 60)]
    assert cut_windows(50, ends[:50], size=50, overlap=5, sentences=2) == [Window(0, 50, 0, 50)]


def test_a_sentence_that_is_too_long_is_cut_with_context_on_both_sides():
    windows = cut_windows(100, no_ends(100), size=50, overlap=5)
    assert windows == [Window(0, 50, 0, 45), Window(40, 90, 45, 85), Window(80, 100, 85, 100)]


def test_a_short_sentence_before_a_long_one_is_a_window():
    ends = no_ends(100)
    ends[3] = True
    assert cut_windows(100, ends, size=50, overlap=5)[:2] == [Window(0, 4, 0, 4), Window(4, 54, 4, 49)]


def test_the_core_is_counted_from_the_windows_start():
    assert Window(40, 90, 45, 85).kept_slice == slice(5, 45)


def test_nothing_has_no_windows():
    assert cut_windows(0, no_ends(0), size=50, overlap=5) == []


@given(st.lists(st.integers(0, 30), max_size=30), st.integers(1, 40))
def test_batches_hold_at_most_the_limit_and_keep_the_order(sizes, limit):
    items = [range(size) for size in sizes]
    batches = list(batch_by_size(items, limit))
    assert [item for batch in batches for item in batch] == items
    for batch in batches:
        assert batch
        assert len(batch) == 1 or sum(map(len, batch)) <= limit


@pytest.mark.parametrize("limit", [1, 3])
def test_batches_are_filled_before_a_new_one_begins(limit):
    assert [len(batch) for batch in batch_by_size(["a"] * 6, limit)] == [limit] * (6 // limit)
