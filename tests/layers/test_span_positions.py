"""Relative positions of spans, each distinct one made once, are the papers'."""

from __future__ import annotations

import math

import pytest
import torch
from lattices import random_lattice, sentences_of
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


def test_weights_begin_as_those_of_one_layer_over_all_distances() -> None:
    bound = 1 / math.sqrt(4 * 50)
    weight = make(width=50).fuse.weight
    assert bound * 0.99 < weight.abs().max() <= bound
