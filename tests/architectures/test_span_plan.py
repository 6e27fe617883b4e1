"""Test the plan of span attention for a batch of lattices: groups of queries, and distances of span pairs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lattices import any_lattice, lattice_of, random_lattice, sentences_of

from spacy_tener.architectures.flat import plans as span_plan
from spacy_tener.architectures.flat.plans import plan_spans
from spacy_tener.embedders.lattice import Lattice

property_settings = settings(max_examples=40, deadline=None)


@property_settings
@given(any_lattice, st.integers(1, 20))
def test_plan_has_four_distances_per_span_pair(lattice: Lattice, max_queries: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(span_plan, "MAX_QUERIES", max_queries)
        plan = plan_spans(lattice, word_queries=True)
    spans_of_sentences = sentences_of(lattice)
    for group in plan.character_groups + plan.word_groups:
        heads, tails = spans_of_sentences[group.sentence].T
        assert len(group.keys) == len(heads)
        queries = slice(group.position, group.position + len(group.queries))
        ends = heads, tails
        expected = np.stack([a[queries, None] - b for a in ends for b in ends], axis=-1)
        np.testing.assert_array_equal(plan.distances[group.columns[group.pairs]], expected)


@property_settings
@given(any_lattice, st.integers(1, 20), st.booleans())
def test_groups_cover_queries_once_with_even_sizes(lattice: Lattice, max_queries: int, words: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(span_plan, "MAX_QUERIES", max_queries)
        plan = plan_spans(lattice, word_queries=words)
    queries = [row for group in plan.character_groups + plan.word_groups for row in group.queries]
    assert queries == list(range(lattice.n_characters + (lattice.n_words if words else 0)))
    for groups in (plan.character_groups, plan.word_groups):
        for sentence in range(len(lattice.lengths)):
            sizes = [len(group.queries) for group in groups if group.sentence == sentence]
            assert not sizes or (max(sizes) <= max_queries and max(sizes) - min(sizes) <= 1)


@property_settings
@given(any_lattice, st.booleans())
def test_relative_positions_are_unique_and_used(lattice: Lattice, words: bool) -> None:
    plan = plan_spans(lattice, word_queries=words)
    groups = plan.character_groups + plan.word_groups
    for group in groups:
        assert sorted(set(group.pairs.ravel())) == list(range(len(group.columns)))
    assert sorted({row for group in groups for row in group.columns}) == list(range(len(plan.distances)))
    assert len(np.unique(plan.distances, axis=0)) == len(plan.distances)
    assert plan.longest == lattice.longest
    assert (np.abs(plan.distances) < lattice.longest).all()


def test_rows_are_characters_followed_by_words() -> None:
    plan = plan_spans(lattice_of((2, [(0, 1)]), (3, [(1, 2), (0, 2)])), word_queries=True)
    assert [group.keys.tolist() for group in plan.character_groups] == [[0, 1, 5], [2, 3, 4, 6, 7]]
    assert [group.queries.tolist() for group in plan.word_groups] == [[5], [6, 7]]
    assert [group.position for group in plan.word_groups] == [2, 3]


@pytest.mark.parametrize("length", [54, 300])
def test_column_count_grows_linearly_with_sentence_length(length: int) -> None:
    lattice = random_lattice([length])
    n_sizes = len(np.unique(lattice.tails - lattice.heads)) + 1
    groups = plan_spans(lattice, word_queries=False).character_groups
    assert max(len(group.columns) for group in groups) <= n_sizes * (length + 48)
