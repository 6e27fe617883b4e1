"""Keys of strings and pairs, and their rows: found as in a dictionary, and cheap to add."""

from __future__ import annotations

import itertools

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
    KeyMap,
    Normaliser,
    StringTable,
    bigram_key_array,
    pair_keys,
    search,
    unigram_key_array,
)

LARGEST = 2**64 - 1
NORMALISER = Normaliser()
END = NORMALISER.key(END_MARK)

keys_of = st.one_of(st.integers(0, 40), st.integers(0, LARGEST))
batches_of_keys = st.lists(st.lists(keys_of, max_size=15), max_size=8)


def keys(*values):
    return np.array(values, dtype=np.uint64)


# Maps


@given(st.lists(st.integers(0, 50), unique=True), st.lists(st.integers(0, 50)))
def test_search_finds_what_is_there_and_nothing_else(haystack, needles):
    straw = np.array(sorted(haystack), dtype=np.uint64)
    places, known = search(straw, np.array(needles, dtype=np.uint64))
    assert known.tolist() == [needle in haystack for needle in needles]
    assert straw[places[known]].tolist() == [needle for needle in needles if needle in haystack]


@given(
    st.lists(st.dictionaries(st.integers(0, 60) | st.just(LARGEST), st.integers(0, LARGEST), max_size=9), max_size=9)
)
def test_a_map_is_a_dictionary_and_never_changes(batches):
    expected, maps = {}, [KeyMap()]
    for batch in batches:
        new = {key: value for key, value in batch.items() if key not in expected}
        maps.append(maps[-1].joined(keys(*new), keys(*new.values())))
        expected.update(new)
    wanted = [*range(62), LARGEST]
    values, found = maps[-1].get(keys(*wanted))
    assert found.tolist() == [key in expected for key in wanted]
    assert values[found].tolist() == [expected[key] for key in wanted if key in expected]
    assert [len(each) for each in maps] == sorted(len(each) for each in maps)
    assert not maps[0].get(keys(*wanted))[1].any()


def test_adding_keys_one_by_one_moves_each_a_few_times_only(monkeypatch):
    moved = []
    sort = module._sorted
    monkeypatch.setattr(module, "_sorted", lambda keys, values: moved.append(keys.size) or sort(keys, values))
    known, size = KeyMap(), 4000
    for key in np.random.default_rng(0).permutation(size).astype(np.uint64):
        known = known.joined(keys(key), keys(key))
    # Sorting all anew each time would move 8 million.
    assert sum(moved) < 2 * size * np.log2(size)
    assert len(known.runs) <= np.log2(size) + 1


def test_an_unseen_word_costs_as_little_after_many_words_as_at_first(monkeypatch):
    sizes = []
    sort = module._sorted
    monkeypatch.setattr(module, "_sorted", lambda keys, values: sizes.append(keys.size) or sort(keys, values))
    cache = KeyCache(Normaliser())
    many = np.arange(900_000, dtype=np.uint64)
    cache._known = cache._known.joined(many, many)
    sizes.clear()
    for number in range(1000):
        orth = Normaliser(digits=False).key(f"w{number}")
        cache(keys(orth), [{orth: f"w{number}"}])
    assert sum(sizes) < 1000 * 20


# Normalised strings

WORDS = ["京", "12", "Ab", "１２", "٣", "²", "①", "PERSON", "nsubj", "LANG", "\n", "𠮷"]
OPTIONS = [Normaliser(digits=digits, lower=lower) for digits in (True, False) for lower in (True, False)]


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
def test_decimal_digits_of_every_script_become_zero_and_letters_lower_case_on_request_only(text, digits, lower):
    assert Normaliser(digits=True)(text) == digits
    assert Normaliser(digits=False, lower=True)(text) == lower
    assert Normaliser(digits=True, lower=True)(text) == Normaliser(digits=True)(lower)
    assert Normaliser(digits=False)(text) == text


def test_key_is_the_hash_that_spacy_has_for_the_normalised_string():
    assert Normaliser().key("A12") == StringStore().add("A00") == get_string_id("A00")


@pytest.mark.parametrize("symbol", ["PERSON", "nsubj", "LANG", "ORG", "dobj"])
def test_a_symbol_s_key_is_its_small_id_in_docs_and_in_the_strings_of_a_vectors_file(symbol):
    doc = Doc(Vocab(), words=[symbol])
    orths = doc.to_array(ORTH)
    assert orths[0] < 1000, "spaCy numbers its symbols, rather than hashing them"
    for normaliser in (Normaliser(), Normaliser(digits=False), Normaliser(lower=True)):
        expected = normaliser.key(symbol)
        assert KeyCache(normaliser)(orths, [doc.vocab.strings]).tolist() == [expected]
    assert Normaliser(digits=False).key(symbol) == orths[0]


@pytest.mark.parametrize("normaliser", OPTIONS, ids=str)
def test_cached_keys_are_those_of_normalising_each_token(strings, normaliser):
    cache = KeyCache(normaliser)
    for words in (["京"], WORDS, [], WORDS[::-1] * 3):
        expected = [normaliser.key(word) for word in words]
        assert cache(hashes(strings, words), [strings]).tolist() == expected


@settings(max_examples=60, deadline=None)
@given(
    batches=st.lists(st.lists(st.text(alphabet="aA1２京", min_size=1, max_size=3), max_size=12), max_size=6),
    limit=st.integers(0, 10),
)
def test_a_small_cache_never_answers_wrongly(batches, limit):
    normaliser, strings = Normaliser(lower=True), StringStore()
    cache = KeyCache(normaliser)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MAX_STRINGS", limit)
        for words in batches:
            expected = [normaliser.key(word) for word in words]
            assert cache(hashes(strings, words), [strings]).tolist() == expected


def test_cache_starts_again_where_a_batch_would_pass_its_limit(strings, monkeypatch):
    monkeypatch.setattr(module, "_MAX_STRINGS", 4)
    cache = KeyCache(Normaliser())
    cache(hashes(strings, ["a", "b", "c"]), [strings])
    cache(hashes(strings, ["c", "1", "2"]), [strings])
    assert len(cache._known) == 3


def test_a_known_string_is_not_normalised_again(strings, monkeypatch):
    cache = KeyCache(Normaliser())
    orths = hashes(strings, WORDS)
    expected = cache(orths, [strings]).tolist()
    monkeypatch.setattr(Normaliser, "__call__", lambda *_: pytest.fail("normalised twice"))
    assert cache(orths[::-1], [StringStore()]).tolist() == expected[::-1]


def test_strings_may_come_from_several_stores():
    stores = [StringStore(["a1"]), StringStore(["b2", "PERSON"])]
    words = ["b2", "a1", "PERSON"]
    orths = np.array([get_string_id(word) for word in words], dtype=np.uint64)
    assert KeyCache(Normaliser())(orths, stores).tolist() == [Normaliser().key(word) for word in words]


def test_another_thread_may_fill_the_cache_between_any_two_steps(strings, monkeypatch):
    cache = KeyCache(Normaliser())
    orths = hashes(strings, WORDS)
    expected = cache(orths, [strings]).tolist()
    more = hashes(strings, [f"w{number}" for number in range(50)])
    turns = [more, hashes(strings, ["a", "b"])]

    def get_and_give_way(known, keys):
        found = get(known, keys)
        if turns:
            cache(turns.pop(), [strings])
        return found

    get = KeyMap.get
    monkeypatch.setattr(KeyMap, "get", get_and_give_way)
    assert cache(orths, [strings]).tolist() == expected
    assert turns == []


# Tables


def pairs(*texts, end=END):
    """Keys of the pairs of texts that are given as lists of strings."""
    joined = unigram_key_array(itertools.chain(*texts), NORMALISER)
    return pair_keys(joined, np.array([len(text) for text in texts]), end)


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
    rows = table.rows(keys(*wanted))
    assert (rows.tolist(), rows.dtype) == ([expected.get(key, 0) for key in wanted], np.int64)
    assert len(table) == len(expected) + 1, "a lookup adds nothing"


@given(batches_of_keys)
def test_a_table_made_from_another_s_keys_is_the_same(batches):
    table = StringTable()
    for batch in batches:
        table.add(keys(*batch))
    again = StringTable(table.keys)
    assert again.keys.tolist() == table.keys.tolist()
    assert again.rows(table.keys).tolist() == list(range(1, len(table)))


def test_texts_of_no_tokens_may_stand_anywhere():
    expected = [*pairs(["中", "国"]), *pairs(["人"])]
    assert pairs([], ["中", "国"], [], [], ["人"], []).tolist() == expected
    assert pairs([], []).tolist() == []


def test_the_order_in_a_pair_matters():
    assert pairs(["中", "国"])[0] != pairs(["国", "中"])[0]
    assert pairs(["中", "中"])[0] != pairs(["国", "国"])[0]


def test_all_pairs_of_many_strings_have_keys_of_their_own():
    # Symbols of spaCy have small ids, hashes large ones: mixing must part both.
    words = [chr(0x4E00 + i) for i in range(300)] + ["PERSON", "nsubj", "ORG", "LANG", "a", "1", END_MARK]
    first = unigram_key_array([a for a, _ in itertools.product(words, words)], NORMALISER)
    second = unigram_key_array([b for _, b in itertools.product(words, words)], NORMALISER)
    joined = np.column_stack([first, second]).ravel()
    seen = pair_keys(joined, np.full(first.size, 2), END)[::2]
    assert np.unique(seen).size == len(words) ** 2


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
