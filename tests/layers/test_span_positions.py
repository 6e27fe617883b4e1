"""Relative positions of spans, each distinct one made once, are the papers'."""

from __future__ import annotations

import math

import pytest
import torch
from lattices import lattice_of, random_lattice, sentences_of
from paper_forms import assert_same, reference_span_positions

from spacy_tener.batching.span_plan import SpanPlan, plan_spans
from spacy_tener.layers.spans import DISTANCES, SpanPositions

CHOICES = [DISTANCES, ("hh", "tt"), ("th",), ("tt", "ht", "hh")]


def make(width: int = 12, distances: tuple[str, ...] = DISTANCES) -> SpanPositions:
    torch.manual_seed(0)
    return SpanPositions(width=width, distances=distances).double()


def embed(positions: SpanPositions, plan: SpanPlan) -> torch.Tensor:
    return positions(torch.from_numpy(plan.distances), plan.longest)


@pytest.mark.parametrize("distances", CHOICES)
def test_rows_and_the_gradient_of_their_weights_are_the_papers(distances: tuple[str, ...]) -> None:
    positions, lattice = make(distances=distances), random_lattice([1, 17, 60])
    plan = plan_spans(lattice, word_queries=True)
    spans_of_sentences = sentences_of(lattice)
    for group in plan.character_groups + plan.word_groups:
        spans = torch.from_numpy(spans_of_sentences[group.sentence])
        expected = reference_span_positions(positions, spans)[group.position : group.position + len(group.queries)]
        rows = embed(positions, plan)
        assert_same(rows[group.columns[group.pairs]], expected, [positions.fuse.weight])


def test_one_pair_by_hand() -> None:
    """A word over characters 1 and 2 asks the character at 4; width 2 has one sine and one cosine."""
    positions = make(width=2)
    with torch.no_grad():
        positions.fuse.weight.copy_(torch.eye(2).repeat(4, 1))
    spans = torch.tensor([[1, 2], [4, 4]])
    row = reference_span_positions(positions, spans)[0, 1]
    distances = [1 - 4, 1 - 4, 2 - 4, 2 - 4]
    assert row.tolist() == pytest.approx([max(sum(f(d) for d in distances), 0) for f in (math.sin, math.cos)])


def test_each_distance_has_its_own_weights() -> None:
    plan = plan_spans(lattice_of((6, [(1, 3)])), word_queries=True)
    positions = make()
    before = embed(positions, plan)
    for i, distance in enumerate(DISTANCES):
        changed, only = make(), make(distances=(distance,))
        with torch.no_grad():
            changed.fuse.weight[:] = 0
            changed.fuse.weight[12 * i : 12 * (i + 1)] = positions.fuse.weight[12 * i : 12 * (i + 1)]
            only.fuse.weight[:] = positions.fuse.weight[12 * i : 12 * (i + 1)]
        assert torch.allclose(embed(changed, plan), embed(only, plan))
        assert not torch.allclose(embed(changed, plan), before)


def test_weights_begin_as_those_of_one_layer_over_all_distances() -> None:
    bound = 1 / math.sqrt(4 * 50)
    weight = make(width=50).fuse.weight
    assert bound * 0.99 < weight.abs().max() <= bound
