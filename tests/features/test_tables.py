"""Rows of strings, keys of pairs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spacy.strings import get_string_id

from spacy_tener.features.normalise import Normaliser
from spacy_tener.features.tables import (
    END_MARK,
    StringTable,
    bigram_key_array,
    pair_keys,
    unigram_key_array,
)

NORMALISER = Normaliser()
END = NORMALISER.key(END_MARK)
LARGEST = 2**64 - 1

keys_of = st.one_of(st.integers(0, 40), st.integers(0, LARGEST))
batches_of_keys = st.lists(st.lists(keys_of, max_size=15), max_size=8)


def keys(*values):
    return np.array(values, dtype=np.uint64)


def pairs(*texts, end=END):
    """Keys of the pairs of texts that are given as lists of strings."""
    joined = unigram_key_array(itertools.chain(*texts), NORMALISER)
    return pair_keys(joined, np.array([len(text) for text in texts]), end)


def test_a_new_table_has_the_unknown_row_alone():
    table = StringTable()
    assert len(table) == 1
    assert table.keys.tolist() == []
    assert table.rows(keys(0, 7, LARGEST)).tolist() == [0] * 3


def test_rows_are_given_in_the_order_of_arrival():
    table = StringTable(keys(9, 3, 9, LARGEST, 0))
    assert table.rows(keys(9, 3, LARGEST, 0, 5)).tolist() == [1, 2, 3, 4, 0]
    assert table.keys.tolist() == [9, 3, LARGEST, 0]
    assert len(table) == 5


def test_adding_says_how_many_were_new_and_keeps_earlier_rows():
    table = StringTable()
    assert table.add(keys(5, 2, 5)) == 2
    assert table.add(keys(2, 5)) == 0
    assert table.add(keys()) == 0
    assert table.add(keys(1, 5, 1, 8)) == 2
    assert table.rows(keys(5, 2, 1, 8)).tolist() == [1, 2, 3, 4]


def test_a_lookup_adds_nothing():
    table = StringTable(keys(5))
    table.rows(keys(6, 7))
    assert len(table) == 2


def test_no_keys_have_no_rows():
    for table in (StringTable(), StringTable(keys(1))):
        assert table.rows(keys()).shape == (0,)
        assert table.rows(keys()).dtype == np.int64


@settings(max_examples=150)
@given(batches_of_keys, st.lists(keys_of))
def test_it_is_a_dictionary_that_numbers_its_keys(batches, looked_up):
    table, expected = StringTable(), {}
    for batch in batches:
        n_before = len(expected)
        for key in batch:
            expected.setdefault(key, len(expected) + 1)
        assert table.add(keys(*batch)) == len(expected) - n_before
        assert len(table) == len(expected) + 1
    assert table.keys.tolist() == list(expected)
    wanted = [*looked_up, *expected]
    assert table.rows(keys(*wanted)).tolist() == [expected.get(key, 0) for key in wanted]


@given(batches_of_keys)
def test_a_table_made_from_another_s_keys_is_the_same(batches):
    table = StringTable()
    for batch in batches:
        table.add(keys(*batch))
    again = StringTable(table.keys)
    assert again.keys.tolist() == table.keys.tolist()
    assert again.rows(table.keys).tolist() == list(range(1, len(table)))


def test_pairs_do_not_cross_the_ends_of_texts():
    joined = pairs(["中", "国"], ["人"])
    assert joined.tolist() == [*pairs(["中", "国"]), *pairs(["人"])]
    assert joined[1] != pairs(["国", "人"])[0]


def test_texts_of_no_tokens_may_stand_anywhere():
    expected = [*pairs(["中", "国"]), *pairs(["人"])]
    assert pairs([], ["中", "国"], [], [], ["人"], []).tolist() == expected
    assert pairs([], []).tolist() == []


def test_the_order_in_a_pair_matters():
    assert pairs(["中", "国"])[0] != pairs(["国", "中"])[0]
    assert pairs(["中", "中"])[0] != pairs(["国", "国"])[0]


def test_the_last_token_is_paired_with_the_end_mark():
    assert pairs(["中", "国"])[1] == pairs(["国", END_MARK])[0]
    assert pairs(["国"])[0] == bigram_key_array(["国" + END_MARK], NORMALISER)[0]


def test_all_pairs_of_many_strings_have_keys_of_their_own():
    # Symbols of spaCy have small ids, hashes large ones: mixing must part both.
    words = [chr(0x4E00 + i) for i in range(300)] + ["PERSON", "nsubj", "ORG", "LANG", "a", "1", END_MARK]
    first = unigram_key_array([a for a, _ in itertools.product(words, words)], NORMALISER)
    second = unigram_key_array([b for _, b in itertools.product(words, words)], NORMALISER)
    joined = np.column_stack([first, second]).ravel()
    seen = pair_keys(joined, np.full(first.size, 2), END)[::2]
    assert np.unique(seen).size == len(words) ** 2


def test_keys_of_a_file_s_bigrams_are_those_of_the_texts_that_contain_them():
    expected = pairs(["中", "国"], ["A", "1"], ["𠮷", "野"])[::2].tolist()
    assert bigram_key_array(["中国", "A7", "𠮷野"], NORMALISER).tolist() == expected


@given(st.lists(st.text(alphabet="中国aA19２", min_size=1, max_size=1), min_size=1, max_size=20), st.booleans())
def test_bigram_keys_equal_pair_keys_for_any_text(text, lower):
    normaliser = Normaliser(digits=True, lower=lower)
    unigrams = unigram_key_array(text, normaliser)
    from_text = pair_keys(unigrams, np.array([len(text)]), normaliser.key(END_MARK))
    bigrams = [first + second for first, second in itertools.pairwise([*text, END_MARK])]
    assert bigram_key_array(bigrams, normaliser).tolist() == from_text.tolist()


@pytest.mark.parametrize("string", ["中", "中国人", "", END_MARK, "中国" + END_MARK])
def test_a_string_that_is_no_bigram_has_the_key_of_no_pair(string):
    key = bigram_key_array([string], NORMALISER)[0]
    tokens = ["中", "国", "人", "中国", string or "x", END_MARK]
    assert key not in pairs(*([a, b] for a, b in itertools.product(tokens, tokens)))


def test_unigram_keys_are_normalised_and_may_be_none():
    assert unigram_key_array(["a7"], NORMALISER).tolist() == [get_string_id("a0")]
    assert unigram_key_array([], NORMALISER).shape == (0,)
    assert bigram_key_array([], NORMALISER).shape == (0,)
