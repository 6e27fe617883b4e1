"""Test the relative positions of spans, and random attention, which uses only the blocks that a batch requires."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from lattices import random_lattice, sentences_of
from paper_equations import assert_same, reference_span_positions
from torch import Tensor

from spacy_tener.architectures.flat.flat_config import DISTANCES
from spacy_tener.architectures.flat.flat_torch import BLOCK, RandomAttention, SpanPositions
from spacy_tener.architectures.flat.plans import SpanPlan, plan_spans

CHOICES = [DISTANCES, ("hh", "tt"), ("th",), ("tt", "ht", "hh")]


def make_positions(width: int = 12, distances: tuple[str, ...] = DISTANCES) -> SpanPositions:
    torch.manual_seed(0)
    return SpanPositions(width=width, distances=distances).double()


def embed(positions: SpanPositions, plan: SpanPlan) -> torch.Tensor:
    return positions(torch.from_numpy(plan.distances), plan.longest)


@pytest.mark.parametrize("distances", CHOICES)
def test_position_embeddings_and_gradients_equal_paper_equations(distances: tuple[str, ...]) -> None:
    positions, lattice = make_positions(distances=distances), random_lattice([1, 17, 60])
    plan = plan_spans(lattice, word_queries=True)
    spans_of_sentences = sentences_of(lattice)
    for group in plan.character_groups + plan.word_groups:
        spans = torch.from_numpy(spans_of_sentences[group.sentence])
        expected = reference_span_positions(positions, spans)[group.position : group.position + len(group.queries)]
        rows = embed(positions, plan)
        assert_same(rows[group.columns[group.pairs]], expected, [positions.fuse.weight])


def test_fusion_weights_are_initialized_as_single_linear_layer() -> None:
    bound = 1 / math.sqrt(4 * 50)
    weight = make_positions(width=50).fuse.weight
    assert bound * 0.99 < weight.abs().max() <= bound


HEADS = 3
N_POSITIONS = [1, 5, BLOCK, BLOCK + 1, 40, 3 * BLOCK]


def make_attention(n_positions: int, n_heads: int = HEADS) -> RandomAttention:
    torch.manual_seed(0)
    return RandomAttention(n_heads=n_heads, n_positions=n_positions).double()


def lookup_elementwise(attention: RandomAttention, queries: int, keys: int) -> Tensor:
    """Look up the values of random attention one at a time."""
    blocks_per_side = math.ceil(attention.n_positions / BLOCK)
    numbers = torch.zeros(queries, HEADS, keys, dtype=torch.float64)
    for head in range(HEADS):
        for i in range(queries):
            for j in range(keys):
                block = attention.blocks[i // BLOCK * blocks_per_side + j // BLOCK].view(HEADS, BLOCK, BLOCK)
                numbers[i, head, j] = block[head, i % BLOCK, j % BLOCK]
    return numbers


@pytest.mark.parametrize("n_positions", N_POSITIONS)
@pytest.mark.parametrize(("queries", "keys"), [(0, 0), (0, 3), (1, 1), (16, 17), (17, 16), (12, 40), (40, 40)])
def test_random_attention_equals_elementwise_lookup(n_positions: int, queries: int, keys: int) -> None:
    attention = make_attention(n_positions)
    got = attention(queries, keys)
    assert got.shape == (min(queries, n_positions), HEADS, min(keys, n_positions))
    assert torch.equal(got, lookup_elementwise(attention, got.shape[0], got.shape[2]))


@pytest.mark.parametrize("n_positions", N_POSITIONS)
def test_random_attention_shares_no_parameters(n_positions: int) -> None:
    numbers = make_attention(n_positions)(n_positions, n_positions)
    assert len(numbers.unique()) == HEADS * n_positions**2


@pytest.mark.parametrize(
    ("queries", "keys", "blocks"),
    [(1, 1, [0]), (16, 16, [0]), (16, 17, [0, 1]), (17, 17, [0, 1, 4, 5]), (33, 10, [0, 4, 8]), (99, 999, range(16))],
)
def test_sparse_gradient_covers_only_used_blocks(queries: int, keys: int, blocks: Sequence[int]) -> None:
    attention = make_attention(4 * BLOCK)
    attention(queries, keys).sum().backward()
    gradient = attention.blocks.grad
    assert gradient is not None
    assert gradient.is_sparse
    assert gradient.coalesce().indices().tolist() == [list(blocks)]


def test_block_gradient_equals_elementwise_lookup() -> None:
    attention = make_attention(40)
    weight = torch.randn(11, HEADS, 21, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((attention(11, 21) * weight).sum(), attention.blocks)
    (expected,) = torch.autograd.grad((lookup_elementwise(attention, 11, 21) * weight).sum(), attention.blocks)
    assert torch.equal(gradient.to_dense(), expected)
    # Values in these blocks for later positions have no gradient.
    assert int((expected != 0).sum()) == HEADS * 11 * 21


def test_random_attention_has_initial_scale_of_released_code() -> None:
    numbers = make_attention(320, n_heads=8)(320, 320)
    assert numbers.std().item() == pytest.approx(1 / math.sqrt(3 * 8 * 320 * 320), rel=0.01)
    assert abs(numbers.mean().item()) < 1e-5
