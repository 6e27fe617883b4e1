"""Test the sizes and the validation of lattices, and the concatenation of intervals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lattices import lattice_of

from spacy_tener.embedders.lattice import Lattice
from spacy_tener.sequences import ranges, starts


def numbers(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def test_lattice_counts_characters_and_words() -> None:
    lattice = lattice_of((6, [(0, 1), (2, 5)]), (0, []), (3, []))
    assert (lattice.n_characters, lattice.n_words, lattice.longest) == (9, 2, 6)


def test_lattice_of_empty_batch_has_size_zero() -> None:
    lattice = lattice_of()
    assert (lattice.n_characters, lattice.n_words, lattice.longest) == (0, 0, 0)


def test_missing_word_count_raises_error() -> None:
    with pytest.raises(ValueError, match="got 1 word counts for 2 sentences"):
        Lattice(numbers(3, 4), numbers(0), numbers(), numbers())


@pytest.mark.parametrize(("heads", "tails"), [((0,), (1, 2)), ((0, 1), (1,)), ((0,), (1,)), ((0, 0, 0), (1, 1, 1))])
def test_wrong_number_of_heads_or_tails_raises_error(heads: tuple[int, ...], tails: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=f"got {len(heads)} heads and {len(tails)} tails for 2 words"):
        Lattice(numbers(4), numbers(2), numbers(*heads), numbers(*tails))


@pytest.mark.parametrize(("head", "tail"), [(-1, 1), (2, 1), (1, 3), (3, 4)])
def test_word_outside_of_sentence_raises_error(head: int, tail: int) -> None:
    message = f"word 1 goes from {head} to {tail} in a sentence of 3 characters"
    with pytest.raises(ValueError, match=message):
        lattice_of((9, [(0, 8)]), (3, [(head, tail)]))


def test_wrong_number_of_rows_raises_error() -> None:
    lattice = lattice_of((5, [(0, 1)]))
    lattice.check_rows(characters=5, words=1)
    with pytest.raises(ValueError, match="The lattice has 5 characters, but got 4 rows"):
        lattice.check_rows(characters=4, words=1)
    with pytest.raises(ValueError, match="The lattice has 1 words, but got 3 rows"):
        lattice.check_rows(characters=5, words=3)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(-5, 20), st.integers(0, 6)), max_size=6))
def test_ranges_concatenates_intervals(intervals: list[tuple[int, int]]) -> None:
    begins, counts = (np.array([pair[i] for pair in intervals], dtype=np.int64) for i in (0, 1))
    assert ranges(begins, counts).tolist() == [n for begin, count in intervals for n in range(begin, begin + count)]
    assert starts(counts).tolist() == [int(counts[:i].sum()) for i in range(len(counts))]
