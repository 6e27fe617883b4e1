"""The linear layer is nn.Linear, whichever library multiplies."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from spacy_tener.layers import dense
from spacy_tener.layers.dense import FEWEST_PRODUCTS, Linear

WIDTH, OUT = 96, 160
FEWEST_ROWS = -(-FEWEST_PRODUCTS // (WIDTH * OUT))
ROWS = [0, 1, FEWEST_ROWS - 1, FEWEST_ROWS, 200, 300, 512, 700]


def pair(bias=True, dtype=torch.float32):
    torch.manual_seed(0)
    ours = Linear(WIDTH, OUT, bias=bias).to(dtype)
    theirs = nn.Linear(WIDTH, OUT, bias=bias).to(dtype)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def outputs_and_gradients(layer, x):
    x = x.clone().requires_grad_(True)
    y = layer(x)
    (y * torch.linspace(-1, 1, y.numel()).view_as(y)).sum().backward()
    return [y, x.grad, *(parameter.grad for parameter in layer.parameters())]


def test_this_torch_has_the_fast_operator():
    assert dense.HAS_ONEDNN, "the tested versions of torch have it: if a new one lost it, speed tables must be redone"


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("bias", [True, False])
def test_outputs_and_gradients_are_those_of_nn_linear(rows, bias):
    ours, theirs = pair(bias)
    x = torch.randn(rows, WIDTH)
    for mine, expected in zip(outputs_and_gradients(ours, x), outputs_and_gradients(theirs, x), strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows", ROWS)
def test_prediction_is_that_of_nn_linear(rows):
    ours, theirs = pair()
    x = torch.randn(rows, WIDTH)
    with torch.inference_mode():
        torch.testing.assert_close(ours(x), theirs(x), rtol=1e-5, atol=1e-5)


@given(st.integers(0, 5000))
def test_blocks_cover_all_rows_in_few_sizes(n_rows):
    blocks = list(dense._blocks(n_rows))
    assert [row for block, _ in blocks for row in range(block.start, block.stop)] == list(range(n_rows))
    sizes = [block.stop - block.start + filling for block, filling in blocks]
    assert all(size in dense.BLOCKS or size in range(dense.STEP, min(dense.BLOCKS) + 1, dense.STEP) for size in sizes)


def test_without_the_operator_it_is_nn_linear(monkeypatch):
    monkeypatch.setattr(dense, "HAS_ONEDNN", False)
    ours, theirs = pair()
    x = torch.randn(256, WIDTH)
    for mine, expected in zip(outputs_and_gradients(ours, x), outputs_and_gradients(theirs, x), strict=True):
        assert torch.equal(mine, expected)


@pytest.mark.parametrize("operator", [None, lambda x, weight, *rest: torch.zeros(len(x), len(weight)), lambda x: x])
def test_an_operator_that_is_missing_or_computes_something_else_is_not_used(operator, monkeypatch):
    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", operator)
    assert not dense._onednn_works()


def test_other_precisions_and_non_contiguous_input_work():
    ours, theirs = pair(dtype=torch.float64)
    assert torch.equal(ours(torch.ones(256, WIDTH).double()), theirs(torch.ones(256, WIDTH).double()))
    ours, theirs = pair()
    x = torch.randn(WIDTH, 256).t()
    for mine, expected in zip(outputs_and_gradients(ours, x), outputs_and_gradients(theirs, x), strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-4, atol=1e-4)


def test_a_frozen_weight_gets_no_gradient():
    ours, _ = pair()
    ours.weight.requires_grad_(False)
    x = torch.randn(256, WIDTH, requires_grad=True)
    ours(x).sum().backward()
    assert ours.weight.grad is None
    assert x.grad is not None


def test_its_weights_are_stored_like_those_of_nn_linear():
    assert Linear(3, 5).state_dict().keys() == nn.Linear(3, 5).state_dict().keys()
