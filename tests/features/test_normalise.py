"""Tokens' strings are normalised once each, and found again by their hashes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spacy.attrs import ORTH
from spacy.strings import StringStore, get_string_id
from spacy.tokens import Doc
from spacy.vocab import Vocab

from spacy_tener.features import normalise
from spacy_tener.features.keys import KeyMap
from spacy_tener.features.normalise import KeyCache, Normaliser

WORDS = ["京", "12", "Ab", "１２", "٣", "²", "①", "PERSON", "nsubj", "LANG", "\n", "𠮷"]
OPTIONS = [Normaliser(digits=digits, lower=lower) for digits in (True, False) for lower in (True, False)]


@pytest.fixture
def strings():
    return StringStore(WORDS)


def hashes(strings, words):
    return np.array([strings.add(word) for word in words], dtype=np.uint64)


@pytest.mark.parametrize(
    ("text", "normalised"),
    [("2024", "0000"), ("１２", "00"), ("٣४៥", "000"), ("𝟘𝟙", "00"), ("a1b2", "a0b0"), ("", ""), ("十²①Ⅷ", "十²①Ⅷ")],
)
def test_decimal_digits_of_every_script_become_zero_and_other_numerals_stay(text, normalised):
    assert Normaliser(digits=True)(text) == normalised
    assert Normaliser(digits=False)(text) == text


def test_letters_become_lower_case_on_request_only():
    assert Normaliser(lower=True)("ÄbΣ京Ⅷ") == "äbς京ⅷ"
    assert Normaliser(lower=False)("ÄbΣ京") == "ÄbΣ京"


def test_both_options_work_together_and_neither_changes_nothing():
    assert Normaliser(digits=True, lower=True)("A1") == "a0"
    assert Normaliser(digits=False, lower=False)("A1") == "A1"


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
        patch.setattr(normalise, "_MAX_STRINGS", limit)
        for words in batches:
            expected = [normaliser.key(word) for word in words]
            assert cache(hashes(strings, words), [strings]).tolist() == expected


def test_cache_starts_again_where_a_batch_would_pass_its_limit(strings, monkeypatch):
    monkeypatch.setattr(normalise, "_MAX_STRINGS", 4)
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
