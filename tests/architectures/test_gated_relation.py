"""Test the optimized relation layer of GRN against the equations of the paper, computed pair by pair."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from paper_equations import assert_same, backward_gradients, reference_relation
from torch import Tensor, nn

from spacy_tener.architectures.grn import grn_torch as relation
from spacy_tener.architectures.grn.grn_numpy import EXPONENT_LIMIT
from spacy_tener.architectures.grn.grn_torch import Relation

LENGTHS = [7, 1, 0, 30, 12]
WIDTH = 6
# Sizes of a tile in numbers: less than one pair, some pairs, a part of a sentence, complete sentences.
TILES = [1, 40, 700, 1 << 18]


def make(width: int = WIDTH) -> Relation:
    torch.manual_seed(0)
    module = Relation(width=width).double()
    nn.init.normal_(module.left.bias)
    return module


def tokens(lengths: list[int] = LENGTHS, width: int = WIDTH) -> Tensor:
    return torch.randn(sum(lengths), width, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def assert_equals_paper() -> None:
    module, x = make(), tokens().requires_grad_()
    expected = reference_relation(module, x, LENGTHS)
    assert_same(module(x, LENGTHS), expected, [x, *module.parameters()], within=1e-12)


def test_relation_and_gradients_equal_paper_equations() -> None:
    assert_equals_paper()


def test_padded_batching_equals_paper_equations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(relation.BUCKET_COST_IN_GATES, "cpu", 1 << 30)
    assert_equals_paper()


@pytest.mark.parametrize("tile", TILES)
def test_tile_size_does_not_change_result(tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relation, "TILE", {"cpu": tile})
    assert_equals_paper()


@pytest.mark.parametrize("sign_left", [-1e3, 1e3])
@pytest.mark.parametrize("sign_right", [-1e3, 1e3])
def test_extreme_scores_give_finite_output_and_gradients(sign_left: float, sign_right: float) -> None:
    a, b = torch.full((5, 4), sign_left), torch.full((5, 4), sign_right)
    inputs = [a.requires_grad_(), b.requires_grad_(), torch.randn(5, 4).requires_grad_()]
    mean = relation._GatedMean.apply(*inputs, [2, 3])
    assert torch.isfinite(mean).all()
    gradients = torch.autograd.grad(mean.sum(), inputs)
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


@pytest.mark.parametrize("score", [-1e3, -100.0, -60.0, 60.0, 100.0, 1e3])
@pytest.mark.parametrize("addend", [-15.0, 0.0, 15.0])
def test_exponent_clamping_keeps_gates_accurate(score: float, addend: float) -> None:
    a, b, x = (torch.full((1, 1), value) for value in (score, addend, 1.0))
    gate = relation._GatedMean.apply(a, b, x, [1]).item()
    assert abs(score) > EXPONENT_LIMIT
    assert gate == pytest.approx(float(score > 0), abs=1e-10)


def test_gradients_of_saturated_gates_keep_precision() -> None:
    """1 - sigmoid(20) is below the resolution of float32 at 1, but its gradient can be represented."""
    a = torch.full((3, 2), 12.0, requires_grad=True)
    b, x = torch.full((3, 2), 8.0), torch.ones(3, 2)
    (gradient,) = torch.autograd.grad(relation._GatedMean.apply(a, b, x, [3]).sum(), a)
    assert gradient.flatten().tolist() == pytest.approx([math.exp(-20.0)] * 6, rel=1e-5)


def test_float32_output_and_gradients_are_close_to_float64() -> None:
    torch.manual_seed(0)
    module = Relation(width=64)
    lengths = [100, 15, 30]
    x = torch.tanh(torch.randn(145, 64)).requires_grad_()
    got = module(x, lengths)
    gradients = backward_gradients(got.sum(), [x, *module.parameters()])
    exact = module.double()
    x64 = x.detach().double().requires_grad_()
    expected_in_float64 = reference_relation(exact, x64, lengths)
    assert torch.allclose(got.double(), expected_in_float64, atol=1e-6)
    for a, b in zip(gradients, backward_gradients(expected_in_float64.sum(), [x64, *exact.parameters()]), strict=True):
        assert (a.double() - b).abs().max() < 1e-5 * b.abs().max()


@contextmanager
def record_saved_sizes(sizes: list[int]) -> Iterator[None]:
    """Record the sizes of the tensors that autograd saves for the backward pass."""

    def note(tensor: Tensor) -> Tensor:
        sizes.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        yield


def test_saved_tensors_grow_linearly_with_length() -> None:
    sizes_by_length = {}
    for length in (50, 100, 200):
        sizes: list[int] = []
        module, x = make(), tokens([length]).requires_grad_()
        with record_saved_sizes(sizes):
            module(x, [length])
        sizes_by_length[length] = sum(sizes)
    assert sizes_by_length[200] - sizes_by_length[100] == 2 * (sizes_by_length[100] - sizes_by_length[50]) > 0


def test_weights_have_kaiming_uniform_initialization() -> None:
    torch.manual_seed(0)
    module = Relation(width=400)
    bound = math.sqrt(6 / 800)
    for half in (module.left, module.right):
        assert half.weight.abs().max().item() == pytest.approx(bound, rel=0.02)
        assert half.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)
    assert not module.left.bias.any()
    assert module.right.bias is None
