"""A convolution over a flat batch is torch's own over each sequence by itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from paper_forms import assert_same
from torch import Tensor

from spacy_tener.layers.convolution import Convolution, ConvolutionWindows

LENGTHS = [4, 0, 7, 1, 2]
WIDTH, OUT = 3, 5
SIZES = [1, 3, 5, 7]


def tokens(lengths: list[int] = LENGTHS, width: int = WIDTH) -> Tensor:
    return torch.randn(sum(lengths), width, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def windows(size: int, lengths: list[int] = LENGTHS) -> ConvolutionWindows:
    return ConvolutionWindows.of(np.array(lengths, dtype=np.int64), size)


def make(size: int) -> Convolution:
    return Convolution(WIDTH, OUT, size=size).double()


def reference(module: Convolution, x: Tensor, lengths: list[int]) -> Tensor:
    """torch's convolution of each sequence with zeros around it."""
    weight = module.product.weight.view(OUT, module.size, WIDTH).transpose(1, 2)
    padding = module.size // 2
    parts = [
        F.conv1d(own.T[None], weight, module.product.bias, padding=padding)[0].T for own in x.split(lengths) if len(own)
    ]
    return torch.cat(parts)


@pytest.mark.parametrize("size", SIZES)
def test_it_and_its_gradients_equal_torchs_convolution_of_each_sequence(size: int) -> None:
    module, x = make(size), tokens().requires_grad_()
    got, expected = module(x, windows(size)), reference(module, x, LENGTHS)
    assert_same(got, expected, [x, *module.parameters()], within=1e-12)


@pytest.mark.parametrize("size", SIZES)
def test_the_gathers_gradient_is_the_numerical_one(size: int) -> None:
    plan = windows(size)
    assert torch.autograd.gradcheck(plan.gather, (tokens().requires_grad_(),))


@settings(max_examples=40)
@given(st.lists(st.integers(0, 9), max_size=6), st.sampled_from([1, 3, 5]))
def test_each_token_has_its_neighbours_and_zeros_beyond_the_ends(lengths: list[int], size: int) -> None:
    """Tokens are numbered from 1, so that a 0 can only be padding."""
    numbers = torch.arange(1, sum(lengths) + 1, dtype=torch.float64)
    seen = windows(size, lengths).gather(numbers[:, None])
    rows = iter(seen.tolist())
    for own in numbers.split(lengths):
        for position in range(len(own)):
            places = [position + k - size // 2 for k in range(size)]
            assert next(rows) == [own[place].item() if 0 <= place < len(own) else 0.0 for place in places]


def test_float32_agrees_with_float64_where_the_fast_product_serves() -> None:
    torch.manual_seed(0)
    lengths = [60, 3, 100, 90]
    module = Convolution(64, 96, size=3)
    x = torch.randn(sum(lengths), 64)
    plan = windows(3, lengths=lengths)
    got = module(x, plan)
    assert torch.allclose(got.double(), module.double()(x.double(), plan), atol=1e-5)


def test_the_number_of_weights_is_that_of_torchs_convolution() -> None:
    ours, theirs = make(5), torch.nn.Conv1d(WIDTH, OUT, 5)
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())


@pytest.mark.parametrize("size", [0, 2, 4, -1])
def test_a_window_without_a_middle_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"must be an odd number of tokens; got {size}"):
        windows(size)
