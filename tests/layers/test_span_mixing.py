"""What is mixed for a group is softmax(q k^T + positions + bias) v, and little is kept for the way back."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lattices import any_lattice, lattice_of, random_lattice
from torch import Tensor

from spacy_tener.batching.lattice import Lattice
from spacy_tener.layers import span_plan, spans
from spacy_tener.layers.span_plan import GroupViews, TensorPlan, plan_spans
from spacy_tener.layers.spans import SpanHeads, attend_spans, span_weights

HEADS, HEAD_WIDTH = 2, 3


def random_heads(plan: TensorPlan, *, bias_size: int = 0) -> SpanHeads:
    """Queries for all rows of a plan."""
    torch.manual_seed(0)
    n, n_positions = len(plan.order), len(plan.distances)
    parts = [torch.randn(rows, HEADS, HEAD_WIDTH, dtype=torch.float64) for rows in (n, n, n, n, n_positions)]
    bias = torch.randn(HEADS, bias_size, bias_size, dtype=torch.float64) if bias_size else None
    return SpanHeads(*(part.requires_grad_() for part in parts), bias=None if bias is None else bias.requires_grad_())


def plan_of(lattice: Lattice) -> tuple[TensorPlan, tuple[GroupViews, ...]]:
    plan = plan_spans(lattice, word_queries=True)
    return plan, plan.by_all.groups


def slow_map(heads: SpanHeads, group: GroupViews) -> Tensor:
    """Pair by pair. *Shape: [h, G, L]*"""
    queries, keys = range(group.queries.start, group.queries.stop), range(group.keys.start, group.keys.stop)
    columns = group.columns[group.pairs().view(len(queries), -1) % len(group.columns)]
    scores = torch.zeros(HEADS, len(queries), len(keys), dtype=torch.float64)
    for i, query in enumerate(queries):
        for j, key in enumerate(keys):
            row = heads.table[columns[i, j]]
            scores[:, i, j] = (heads.q[query] * heads.k[key]).sum(1) + (heads.q_position[query] * row).sum(1)
            if heads.bias is not None and max(group.place + i, j) < heads.bias.shape[1]:
                scores[:, i, j] += heads.bias[:, group.place + i, j]
    return torch.softmax(scores, dim=-1)


@pytest.mark.parametrize("bias_size", [0, 1, 5, 40])
def test_maps_are_those_of_single_pairs(bias_size: int) -> None:
    plan, groups = plan_of(random_lattice([6, 0, 9]))
    heads = random_heads(plan, bias_size=bias_size)
    for group in groups:
        assert torch.allclose(span_weights(heads, group), slow_map(heads, group), atol=1e-12)


def test_values_are_mixed_by_the_maps() -> None:
    plan, groups = plan_of(random_lattice([6, 9]))
    heads = random_heads(plan, bias_size=4)
    mixed = attend_spans(heads, groups, 0.0)
    for group in groups:
        expected = torch.einsum("hij,jhd->ihd", slow_map(heads, group), heads.v[group.keys])
        assert torch.allclose(mixed[group.queries], expected, atol=1e-12)


@pytest.mark.parametrize("bias_size", [0, 3])
def test_gradients_are_those_of_differences(bias_size: int) -> None:
    plan, groups = plan_of(lattice_of((4, [(1, 2), (0, 3), (0, 3)]), (1, [])))
    heads = random_heads(plan, bias_size=bias_size)
    leaves = [part for part in heads.parts if part is not None]
    assert torch.autograd.gradcheck(lambda *parts: attend_spans(SpanHeads(*parts), groups, 0.0), leaves)


def numbers_kept(mixed: Tensor) -> int:
    return sum(tensor.numel() for tensor in mixed.grad_fn.saved_tensors if tensor is not None)  # type: ignore[union-attr]


def test_maps_of_long_sentences_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, groups = plan_of(random_lattice([20, 90]))
    heads = random_heads(plan)
    inputs = sum(part.numel() for part in heads.parts if part is not None)
    assert numbers_kept(attend_spans(heads, groups, 0.0)) - inputs == HEADS * sum(
        length**2 for length in plan.by_all.lengths
    )
    monkeypatch.setattr(spans, "WHOLE_MAP", 50)
    assert numbers_kept(attend_spans(heads, groups, 0.0)) - inputs == HEADS * plan.by_all.lengths[0] ** 2


def test_a_gradient_of_a_gradient_is_refused() -> None:
    plan, groups = plan_of(lattice_of((3, [])))
    heads = random_heads(plan)
    (gradient,) = torch.autograd.grad(attend_spans(heads, groups, 0.0).square().sum(), heads.q, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_dropout_scales_what_it_leaves() -> None:
    """All values are one, so what is mixed is the sum of the weights that are left, times 1 / (1 - p)."""
    plan, groups = plan_of(random_lattice([300], density=0.0))
    heads = random_heads(plan)
    even = SpanHeads(heads.q * 0, heads.q_position * 0, heads.k, torch.ones_like(heads.v), heads.table)
    sums = attend_spans(even, groups, 0.25)
    assert torch.allclose(sums[..., 0], sums[..., 1])
    assert sums.std() > 0
    assert sums.mean().item() == pytest.approx(1.0, abs=0.02)
    left = sums * 300 * 0.75
    assert torch.allclose(left, left.round(), atol=1e-6)


def mixed_and_gradients(lattice: Lattice, *, rectangles: bool, words: bool, bias_size: int) -> list[Tensor | None]:
    plan = plan_spans(lattice, word_queries=words, rectangles=rectangles)
    heads = random_heads(plan, bias_size=bias_size)
    n = len(plan.order) if words else len(plan.characters)
    queries = [part.detach()[:n].requires_grad_() for part in (heads.q, heads.q_position)]
    parts = [*queries, *heads.parts[2:]]
    mixed = attend_spans(SpanHeads(*parts), (plan.by_all if words else plan.by_characters).groups, 0.0)
    leaves = [part for part in parts if part is not None]
    return [mixed, *torch.autograd.grad(mixed.sin().sum(), leaves, allow_unused=True)]


@settings(max_examples=25, deadline=None)
@given(any_lattice, st.booleans(), st.sampled_from([0, 3, 40]), st.sampled_from([(0, 1 << 21), (1 << 20, 1 << 21)]))
def test_rectangles_of_many_sentences_mix_and_learn_what_single_groups_do(
    lattice: Lattice, words: bool, bias_size: int, prices: tuple[int, int]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(span_plan, "PRICE", prices[0])
        patch.setattr(span_plan, "PAIRS_AT_ONCE", prices[1])
        found = mixed_and_gradients(lattice, rectangles=True, words=words, bias_size=bias_size)
    expected = mixed_and_gradients(lattice, rectangles=False, words=words, bias_size=bias_size)
    for own, other in zip(found, expected, strict=True):
        assert own is not None
        assert other is not None
        assert torch.allclose(own, other, atol=1e-11)


def test_rectangles_are_few_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    lattice = random_lattice([7, 9, 60, 8, 10, 64, 9, 2])
    assert len(plan_spans(lattice, rectangles=True).by_characters.groups) == 1
    monkeypatch.setattr(span_plan, "PAIRS_AT_ONCE", 20_000)
    for rectangle in plan_spans(lattice, word_queries=True, rectangles=True).by_all.groups:
        (n, queries), keys, columns = (rectangle.rows[which].shape for which in ("queries", "keys", "columns"))
        assert n == 1 or n * queries * (keys[1] + columns[1]) <= 20_000
