"""Keys (hashes) of strings and of pairs of strings, and the table that maps keys to embedding rows."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spacy.attrs import ORTH
from spacy.strings import StringStore, get_string_id
from spacy.tokens import Doc
from spacy.vocab import Vocab

from spacy_tener.features import keys as module
from spacy_tener.features.keys import (
    END_MARK,
    KeyCache,
    Normalizer,
    StringTable,
    bigram_key_array,
    pair_keys,
    search,
    unigram_key_array,
)

LARGEST = 2**64 - 1
NORMALISER = Normalizer()
END = NORMALISER.key(END_MARK)

keys_of = st.one_of(st.integers(0, 40), st.integers(0, LARGEST))
batches_of_keys = st.lists(st.lists(keys_of, max_size=15), max_size=8)


def keys(*values):
    return np.array(values, dtype=np.uint64)


@given(st.lists(st.integers(0, 50), unique=True), st.lists(st.integers(0, 50)))
def test_search_finds_present_keys_only(haystack, needles):
    straw = np.array(sorted(haystack), dtype=np.uint64)
    indices, found = search(straw, np.array(needles, dtype=np.uint64))
    assert found.tolist() == [needle in haystack for needle in needles]
    assert straw[indices[found]].tolist() == [needle for needle in needles if needle in haystack]


# Normalised strings

WORDS = ["京", "12", "Ab", "１２", "٣", "²", "①", "PERSON", "nsubj", "LANG", "\n", "𠮷"]
OPTIONS = [Normalizer(digits=digits, lower=lower) for digits in (True, False) for lower in (True, False)]


@pytest.fixture
def strings():
    return StringStore(WORDS)


def hashes(strings, words):
    return np.array([strings.add(word) for word in words], dtype=np.uint64)


@pytest.mark.parametrize(
    ("text", "digits", "lower"),
    [
        ("2024", "0000", "2024"),
        ("１２٣४៥𝟘", "000000", "１２٣४៥𝟘"),
        ("A1b2", "A0b0", "a1b2"),
        ("十²①Ⅷ", "十²①Ⅷ", "十²①ⅷ"),
        ("ÄbΣ京", "ÄbΣ京", "äbς京"),
        ("", "", ""),
    ],
)
def test_normalizer_replaces_digits_and_lowercases_on_request(text, digits, lower):
    assert Normalizer(digits=True)(text) == digits
    assert Normalizer(digits=False, lower=True)(text) == lower
    assert Normalizer(digits=True, lower=True)(text) == Normalizer(digits=True)(lower)
    assert Normalizer(digits=False)(text) == text


def test_key_equals_spacy_hash_of_normalised_string():
    assert Normalizer().key("A12") == StringStore().add("A00") == get_string_id("A00")


@pytest.mark.parametrize("symbol", ["PERSON", "nsubj", "LANG", "ORG", "dobj"])
def test_key_of_spacy_symbol_equals_symbol_id(symbol):
    doc = Doc(Vocab(), words=[symbol])
    orths = doc.to_array(ORTH)
    assert orths[0] < 1000, "spaCy numbers its symbols, rather than hashing them"
    for normalizer in (Normalizer(), Normalizer(digits=False), Normalizer(lower=True)):
        expected = normalizer.key(symbol)
        assert KeyCache(normalizer)(orths, [doc.vocab.strings]).tolist() == [expected]
    assert Normalizer(digits=False).key(symbol) == orths[0]


@pytest.mark.parametrize("normalizer", OPTIONS, ids=str)
def test_key_cache_agrees_with_normalizer(strings, normalizer):
    cache = KeyCache(normalizer)
    for words in (["京"], WORDS, [], WORDS[::-1] * 3):
        expected = [normalizer.key(word) for word in words]
        assert cache(hashes(strings, words), [strings]).tolist() == expected


@settings(max_examples=60, deadline=None)
@given(
    batches=st.lists(st.lists(st.text(alphabet="aA1２京", min_size=1, max_size=3), max_size=12), max_size=6),
    limit=st.integers(0, 10),
)
def test_key_cache_with_small_limit_returns_correct_keys(batches, limit):
    normalizer, strings = Normalizer(lower=True), StringStore()
    cache = KeyCache(normalizer)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MAX_STRINGS", limit)
        for words in batches:
            expected = [normalizer.key(word) for word in words]
            assert cache(hashes(strings, words), [strings]).tolist() == expected


def test_key_cache_reads_several_string_stores():
    stores = [StringStore(["a1"]), StringStore(["b2", "PERSON"])]
    words = ["b2", "a1", "PERSON"]
    orths = np.array([get_string_id(word) for word in words], dtype=np.uint64)
    assert KeyCache(Normalizer())(orths, stores).tolist() == [Normalizer().key(word) for word in words]


def test_full_key_cache_is_thread_safe(monkeypatch):
    monkeypatch.setattr(module, "_MAX_STRINGS", 20)
    cache, strings = KeyCache(Normalizer()), StringStore()
    orths = hashes(strings, [f"w{number}" for number in range(50)])
    expected = np.array([Normalizer().key(strings[orth]) for orth in orths], dtype=np.uint64)

    def look_up(seed):
        rng = np.random.default_rng(seed)
        batches = [rng.integers(0, 50, 10) for _ in range(300)]
        return all(np.array_equal(cache(orths[batch], [strings]), expected[batch]) for batch in batches)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(look_up, range(4)))


# Pairs and tables


def pairs(*texts, end=END):
    """Return the pair keys of texts, which are lists of strings."""
    joined = unigram_key_array(itertools.chain(*texts), NORMALISER)
    return pair_keys(joined, np.array([len(text) for text in texts]), end)


@settings(max_examples=150)
@given(batches_of_keys, st.lists(keys_of))
def test_string_table_numbers_keys_in_insertion_order(batches, looked_up):
    table, expected = StringTable(), {}
    for batch in batches:
        n_before = len(expected)
        for key in batch:
            expected.setdefault(key, len(expected) + 1)
        assert table.add(keys(*batch)) == len(expected) - n_before
        assert len(table) == len(expected) + 1
    assert table.keys.tolist() == list(expected)
    wanted = [*looked_up, *expected]
    rows = table.rows(keys(*wanted))
    assert (rows.tolist(), rows.dtype) == ([expected.get(key, 0) for key in wanted], np.int64)
    assert len(table) == len(expected) + 1, "a lookup adds nothing"


@given(batches_of_keys)
def test_string_table_can_be_rebuilt_from_keys(batches):
    table = StringTable()
    for batch in batches:
        table.add(keys(*batch))
    again = StringTable(table.keys)
    assert again.keys.tolist() == table.keys.tolist()
    assert again.rows(table.keys).tolist() == list(range(1, len(table)))


def test_pair_keys_skip_empty_texts():
    expected = [*pairs(["中", "国"]), *pairs(["人"])]
    assert pairs([], ["中", "国"], [], [], ["人"], []).tolist() == expected
    assert pairs([], []).tolist() == []


def test_pair_keys_have_no_collisions():
    # The ids of spaCy symbols are small and hashes are large. Neither may cause collisions.
    words = [chr(0x4E00 + i) for i in range(300)] + ["PERSON", "nsubj", "ORG", "LANG", "a", "1", END_MARK]
    first = unigram_key_array([a for a, _ in itertools.product(words, words)], NORMALISER)
    second = unigram_key_array([b for _, b in itertools.product(words, words)], NORMALISER)
    joined = np.column_stack([first, second]).ravel()
    found = pair_keys(joined, np.full(first.size, 2), END)[::2]
    assert np.unique(found).size == len(words) ** 2


@given(st.lists(st.text(alphabet="中国aA19２", min_size=1, max_size=1), min_size=1, max_size=20), st.booleans())
def test_bigram_keys_equal_pair_keys_for_any_text(text, lower):
    normalizer = Normalizer(digits=True, lower=lower)
    unigrams = unigram_key_array(text, normalizer)
    from_text = pair_keys(unigrams, np.array([len(text)]), normalizer.key(END_MARK))
    bigrams = [first + second for first, second in itertools.pairwise([*text, END_MARK])]
    assert bigram_key_array(bigrams, normalizer).tolist() == from_text.tolist()


@pytest.mark.parametrize("string", ["中", "中国人", "", END_MARK, "中国" + END_MARK])
def test_non_bigram_key_differs_from_all_pair_keys(string):
    key = bigram_key_array([string], NORMALISER)[0]
    tokens = ["中", "国", "人", "中国", string or "x", END_MARK]
    assert key not in pairs(*([a, b] for a, b in itertools.product(tokens, tokens)))


def test_unigram_keys_are_normalised_and_may_be_empty():
    assert unigram_key_array(["a7"], NORMALISER).tolist() == [get_string_id("a0")]
    assert unigram_key_array([], NORMALISER).shape == (0,)
    assert bigram_key_array([], NORMALISER).shape == (0,)
