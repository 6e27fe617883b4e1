"""Packing of concatenated sequences for recurrent layers: the rows of each time step, longest sequences first."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_tener.sequences import Packing

lists_of_lengths = st.lists(st.integers(0, 7), max_size=8)


def test_steps_contain_unfinished_sequences():
    packing = Packing.of([2, 0, 3, 1], 6)
    assert packing.sizes == [3, 2, 1]
    assert packing.steps == [(0, 3), (3, 5), (5, 6)]
    assert packing.order.tolist() == [2, 0, 3]
    assert packing.forward.tolist() == [2, 0, 5, 3, 1, 4]
    assert packing.backward.tolist() == [4, 1, 5, 3, 0, 2]


def test_packing_finds_sequence_boundaries():
    packing = Packing.of([2, 0, 3, 1], 6)
    assert packing.first.tolist() == [0, 2, 5]
    assert packing.last.tolist() == [1, 4, 5]
    assert packing.later.tolist() == [1, 3, 4]
    assert packing.filled.tolist() == [0, 2, 3]
    assert packing.sequence.tolist() == [0, 0, 2, 2, 2, 3]


@settings(max_examples=40)
@given(lists_of_lengths)
def test_packed_rows_preserve_order_in_sequence(lengths):
    packing = Packing.of(lengths, sum(lengths))
    assert sum(packing.sizes) == len(packing.forward) == len(packing.backward) == sum(lengths)
    assert all(packing.sizes)
    for index, sequence in enumerate(packing.order.tolist()):
        packed = [begin + index for begin, end in packing.steps if begin + index < end]
        tokens = np.flatnonzero(packing.sequence == sequence)
        assert packing.forward[packed].tolist() == tokens.tolist()
        assert packing.backward[packed].tolist() == tokens[::-1].tolist()


@settings(max_examples=40)
@given(lists_of_lengths)
def test_later_rows_exclude_first_rows_of_sequences(lengths):
    packing = Packing.of(lengths, sum(lengths))
    assert sorted([*packing.later.tolist(), *packing.first.tolist()]) == list(range(sum(lengths)))


def test_sequences_of_equal_length_keep_their_order():
    assert Packing.of([3, 3, 3], 9).order.tolist() == [0, 1, 2]


@pytest.mark.parametrize(("lengths", "n_tokens"), [([1, 2], 4), ([], 1), ([5], 0)])
def test_lengths_must_sum_to_number_of_tokens(lengths, n_tokens):
    with pytest.raises(ValueError, match=f"got {sum(lengths)} for {n_tokens} tokens"):
        Packing.of(lengths, n_tokens)
