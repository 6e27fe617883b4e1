"""The plan of a batch: rows in their order, groups with the distances of their pairs, and who may ask."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lattices import any_lattice, lattice_of, random_lattice, sentences_of

from spacy_tener.batching import span_plan as span_plan_module
from spacy_tener.batching.lattice import Lattice
from spacy_tener.layers.span_plan import GroupViews, TensorPlan, arrange, plan_spans

MIXED = [5, 0, 1, 60, 13]


def distances_of(group: GroupViews, plan: TensorPlan) -> torch.Tensor:
    """What the table says of the distances of a group's pairs. *Shape: [G, L, 4]*"""
    n_queries = group.queries.stop - group.queries.start
    columns = group.pairs().view(n_queries, -1) % len(group.columns)
    return plan.distances[group.columns[columns]]


def true_distances(spans: torch.Tensor) -> torch.Tensor:
    """*Shape: [L, L, 4]*"""
    head, tail = spans.unbind(1)
    return torch.stack([a[:, None] - b for a in (head, tail) for b in (head, tail)], dim=-1)


def check_groups(groups: tuple[GroupViews, ...], plan: TensorPlan, lattice: Lattice) -> None:
    sentences = [torch.from_numpy(spans) for spans in sentences_of(lattice)]
    for group in groups:
        spans = sentences[group.sentence]
        n_queries = group.queries.stop - group.queries.start
        assert group.keys.stop - group.keys.start == len(spans)
        expected = true_distances(spans)[group.place : group.place + n_queries]
        assert torch.equal(distances_of(group, plan), expected)


@settings(max_examples=40)
@given(any_lattice, st.booleans())
def test_groups_know_the_distances_of_all_their_pairs(lattice: Lattice, word_queries: bool) -> None:
    plan = plan_spans(lattice, word_queries=word_queries)
    check_groups(plan.by_characters.groups, plan, lattice)
    if word_queries:
        check_groups(plan.by_all.groups, plan, lattice)


@settings(max_examples=40)
@given(any_lattice)
def test_groups_cover_the_rows_that_ask_once(lattice: Lattice) -> None:
    plan = plan_spans(lattice, word_queries=True)
    for groups, n in [
        (plan.by_characters.groups, lattice.n_characters),
        (plan.by_all.groups, lattice.n_characters + lattice.n_words),
    ]:
        query_groups = [row for group in groups for row in range(group.queries.start, group.queries.stop)]
        assert sorted(query_groups) == list(range(n))


@settings(max_examples=40)
@given(any_lattice)
def test_distances_are_listed_once_and_nearer_than_the_longest_sentence(lattice: Lattice) -> None:
    plan = plan_spans(lattice, word_queries=True)
    assert plan.longest == lattice.longest
    assert len(plan.distances.unique(dim=0)) == len(plan.distances)
    assert all(abs(distance) < lattice.longest for row in plan.distances.tolist() for distance in row)


def test_rows_are_characters_then_words_of_each_sentence() -> None:
    plan = plan_spans(lattice_of((2, [(0, 1)]), (3, [(1, 2), (0, 2)])), word_queries=True)
    characters, words = torch.arange(5.0)[:, None], torch.tensor([[10.0], [11.0], [12.0]])
    rows = arrange(plan, characters, words)
    assert rows[:, 0].tolist() == [0.0, 1.0, 10.0, 2.0, 3.0, 4.0, 11.0, 12.0]
    assert torch.equal(rows[plan.characters], characters)
    assert (plan.by_all.lengths, plan.by_all.most, plan.by_characters.most) == ((3, 5), 5, 3)


def test_planning_fewer_queries_per_group_changes_no_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    lattice = random_lattice(MIXED)
    for most in (1, 7, 1000):
        monkeypatch.setattr(span_plan_module, "GROUP", most)
        plan = plan_spans(lattice, word_queries=True)
        check_groups(plan.by_all.groups, plan, lattice)
        sizes = [group.queries.stop - group.queries.start for group in plan.by_characters.groups]
        assert max(sizes) == min(most, max(MIXED))


def test_words_ask_only_where_that_was_planned() -> None:
    with pytest.raises(ValueError, match="word_queries=True"):
        _ = plan_spans(random_lattice(MIXED)).by_all


@pytest.mark.gpu
def test_a_plan_lies_on_its_device() -> None:
    plan = plan_spans(random_lattice(MIXED), word_queries=True, device="cuda")
    rectangle = plan.by_characters.groups[0]
    for tensor in (plan.order, plan.characters, plan.distances, *rectangle.rows.values(), rectangle.pairs()):
        assert tensor.is_cuda
