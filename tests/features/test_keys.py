"""Keys and their numbers: found as in a dictionary, and added at little cost however many there are."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spacy_tener.features import keys as keys_module
from spacy_tener.features.keys import KeyMap, search
from spacy_tener.features.normalise import KeyCache, Normaliser

LARGEST = 2**64 - 1


def keys(values):
    return np.array(values, dtype=np.uint64)


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
        maps.append(maps[-1].joined(keys(list(new)), keys(list(new.values()))))
        expected.update(new)
    wanted = [*range(62), LARGEST]
    values, found = maps[-1].get(keys(wanted))
    assert found.tolist() == [key in expected for key in wanted]
    assert values[found].tolist() == [expected[key] for key in wanted if key in expected]
    assert [len(each) for each in maps] == sorted(len(each) for each in maps)
    assert not maps[0].get(keys(wanted))[1].any()


def test_adding_keys_one_by_one_moves_each_a_few_times_only(monkeypatch):
    moved = []
    sort = keys_module._sorted
    monkeypatch.setattr(keys_module, "_sorted", lambda keys, values: moved.append(keys.size) or sort(keys, values))
    known, size = KeyMap(), 4000
    for key in np.random.default_rng(0).permutation(size).astype(np.uint64):
        known = known.joined(keys([key]), keys([key]))
    # Sorting all anew each time would move 8 million.
    assert sum(moved) < 2 * size * np.log2(size)
    assert len(known.runs) <= np.log2(size) + 1


def test_an_unseen_word_costs_as_little_after_many_words_as_at_first(monkeypatch):
    sizes = []
    sort = keys_module._sorted
    monkeypatch.setattr(keys_module, "_sorted", lambda keys, values: sizes.append(keys.size) or sort(keys, values))
    cache = KeyCache(Normaliser())
    many = np.arange(900_000, dtype=np.uint64)
    cache._known = cache._known.joined(many, many)
    sizes.clear()
    for number in range(1000):
        orth = Normaliser(digits=False).key(f"w{number}")
        cache(keys([orth]), [{orth: f"w{number}"}])
    assert sum(sizes) < 1000 * 20
