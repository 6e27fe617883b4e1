"""A convolution over a flat batch is torch's own over each sequence by itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from paper_forms import assert_same, reference_convolution
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


@pytest.mark.parametrize("size", SIZES)
def test_it_and_its_gradients_equal_torchs_convolution_of_each_sequence(size: int) -> None:
    module, x = make(size), tokens().requires_grad_()
    got = module(x, windows(size))
    expected = torch.cat([reference_convolution(module, sequence) for sequence in x.split(LENGTHS)])
    assert_same(got, expected, [x, *module.parameters()], within=1e-12)


@settings(max_examples=40)
@given(st.lists(st.integers(0, 9), max_size=6), st.sampled_from([1, 3, 5]))
def test_each_token_has_its_neighbours_and_zeros_beyond_the_ends(lengths: list[int], size: int) -> None:
    """Tokens are numbered from 1, so that a 0 can only be padding."""
    numbers = torch.arange(1, sum(lengths) + 1, dtype=torch.float64)
    rows = iter(windows(size, lengths).gather(numbers[:, None]).tolist())
    for sequence in numbers.split(lengths):
        for position in range(len(sequence)):
            places = [position + k - size // 2 for k in range(size)]
            assert next(rows) == [sequence[place].item() if 0 <= place < len(sequence) else 0.0 for place in places]


@pytest.mark.parametrize("size", [0, 2, 4, -1])
def test_a_window_without_a_middle_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"must be an odd number of tokens; got {size}"):
        windows(size)
