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
)
def test_cores_cover_everything_once_and_windows_keep_their_bounds(length, overlap, extra, ends):
    size = 2 * overlap + extra
    marks = no_ends(length)
    marks[[end for end in ends if end < length]] = True
    windows = cut_windows(length, marks, size=size, overlap=overlap)
    covered = [i for window in windows for i in range(window.core_start, window.core_end)]
    assert covered == list(range(length))
    for window in windows:
        assert len(window) <= size
        assert window.start == max(0, window.core_start - overlap)
        assert window.end <= min(length, window.core_end + overlap)
        assert window.end == length or window.end - window.core_end == overlap


def test_a_core_ends_at_a_sentence_end_of_its_second_half():
    ends = no_ends(100)
    ends[[3, 30]] = True
    first = cut_windows(100, ends, size=50, overlap=5)[0]
    assert (first.core_start, first.core_end) == (0, 31)


def test_without_sentence_ends_cores_are_as_long_as_they_may_be():
    windows = cut_windows(100, no_ends(100), size=50, overlap=5)
    assert windows[0] == Window(0, 50, 0, 45)
    assert windows[1] == Window(40, 90, 45, 85)
    assert windows[-1].core_end == 100


def test_sentence_ends_too_early_in_the_window_are_passed_over():
    ends = no_ends(100)
    ends[3] = True
    assert cut_windows(100, ends, size=50, overlap=5)[0].core_end == 45


def test_the_core_is_counted_from_the_windows_start():
    assert Window(40, 90, 45, 85).core == slice(5, 45)


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
