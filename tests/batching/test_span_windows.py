"""Each pair of query and key finds its own offset among the columns of its group, and a group has few columns."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lattices import any_lattice, lattice_of, random_lattice

from spacy_tener.batching.lattice import Lattice, LatticeSpans
from spacy_tener.batching.sequences import starts
from spacy_tener.batching.span_plan import PositionWindows, QueryGroups


class Planned:
    """A lattice planned into groups of at most so many queries."""

    def __init__(self, lattice: Lattice, *, most: int, words: bool) -> None:
        self.lattice = lattice
        self.spans = LatticeSpans.of(lattice)
        self.query_groups = QueryGroups.of(self.spans, most=most, words=words)
        self.windows = PositionWindows.of(self.spans, self.query_groups)
        self.columns = self.windows.columns()
        self.widths = self.windows.widths
        self.located = self.windows.products()

    def pairs(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Of each query and key: group, query and key as spans, and the product's query and column."""
        begins = self.windows.begins()
        of_kind = starts(self.spans.counts[self.query_groups.sentences[self.query_groups.kind_groups]])
        for i, (query, group, kind) in enumerate(
            zip(self.query_groups.queries, self.query_groups.groups, self.query_groups.kinds, strict=True)
        ):
            sentence = self.query_groups.sentences[group]
            for j in range(self.spans.counts[sentence]):
                product = self.located[i] + begins[of_kind[kind] + j]
                number, column = divmod(int(product), int(self.widths[group]))
                yield group, query, self.spans.begins[sentence] + j, number, column


@settings(max_examples=40)
@given(any_lattice, st.integers(1, 20), st.booleans())
def test_every_pair_finds_its_own_lengths_and_offset(lattice: Lattice, most: int, words: bool) -> None:
    planned = Planned(lattice, most=most, words=words)
    heads, sizes = planned.spans.heads, planned.spans.sizes
    for group, query, key, number, column in planned.pairs():
        assert planned.query_groups.begins[group] + number == query
        found = planned.columns[:, starts(planned.widths)[group] + column]
        assert found.tolist() == [sizes[query], sizes[key], heads[query] - heads[key]]


@settings(max_examples=40)
@given(any_lattice, st.integers(1, 20), st.booleans())
def test_groups_cut_each_sentence_evenly(lattice: Lattice, most: int, words: bool) -> None:
    planned = Planned(lattice, most=most, words=words)
    places = planned.spans.places
    query_input = places if words else places[: lattice.n_characters]
    assert sorted(planned.query_groups.queries.tolist()) == sorted(query_input.tolist())
    assert all(1 <= count <= most for count in planned.query_groups.counts)
    for sentence in range(len(lattice.lengths)):
        first_word = planned.spans.begins[sentence] + lattice.lengths[sentence]
        for of_words in (False, True):
            own = (planned.query_groups.sentences == sentence) & (
                (planned.query_groups.begins >= first_word) == of_words
            )
            counts = planned.query_groups.counts[own]
            assert len(counts) == 0 or counts.max() - counts.min() <= 1


@settings(max_examples=40)
@given(any_lattice, st.integers(1, 20), st.booleans())
def test_no_column_stands_for_the_same_twice(lattice: Lattice, most: int, words: bool) -> None:
    planned = Planned(lattice, most=most, words=words)
    assert planned.widths.sum() == planned.columns.shape[1]
    for part in np.split(planned.columns, np.cumsum(planned.widths)[:-1], axis=1) if len(planned.widths) else []:
        assert len(np.unique(part, axis=1).T) == part.shape[1]


@settings(max_examples=40)
@given(any_lattice, st.integers(1, 20))
def test_characters_have_no_column_that_none_of_them_needs(lattice: Lattice, most: int) -> None:
    planned = Planned(lattice, most=most, words=False)
    used = {(group, column) for group, _, _, _, column in planned.pairs()}
    assert len(used) == planned.widths.sum()


def test_columns_of_a_small_sentence_by_hand() -> None:
    """Two characters ask three characters, and one word of two characters at the end."""
    planned = Planned(lattice_of((3, [(1, 2)])), most=2, words=False)
    assert planned.query_groups.counts.tolist() == [1, 2]
    second = planned.columns[:, planned.widths[0] :].T.tolist()
    # Characters at 1 and 2: to the characters at 2, 1 and 0, then to the word that begins at 1.
    assert second == [[1, 1, -1], [1, 1, 0], [1, 1, 1], [1, 1, 2], [1, 2, 0], [1, 2, 1]]


@pytest.mark.parametrize("length", [54, 300])
def test_columns_grow_with_the_sentence_and_not_with_its_pairs(length: int) -> None:
    planned = Planned(random_lattice([length]), most=48, words=False)
    kinds_of_keys = len(np.unique(planned.spans.sizes))
    assert planned.widths.max() <= kinds_of_keys * (length + 48)


def test_a_rare_length_costs_no_more_than_its_own_window() -> None:
    without, alone = lattice_of((200, [])), lattice_of((200, [(90, 99)]))
    widths = [Planned(lattice, most=40, words=False).widths for lattice in (without, alone)]
    assert (widths[1] - widths[0]).tolist() == [40] * 5
