"""Convolutions over a batch of concatenated sequences, and the GRN encoder with and without each of its layers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from paper_equations import assert_same, reference_convolution, reference_relation
from torch import Tensor

from spacy_tener.architectures.grn.grn_config import GRNConfig
from spacy_tener.architectures.grn.grn_torch import ContextLayer, GRNEncoder
from spacy_tener.nn.layers_torch import Convolution, ConvolutionWindows

LENGTHS = [4, 0, 11, 1, 35]
INPUT, WIDTH = 7, 10


def make(**options: Any) -> GRNEncoder:
    torch.manual_seed(0)
    return GRNEncoder(GRNConfig(**{"width": WIDTH, **options}), input_width=INPUT).double().eval()


def tokens(lengths: list[int] = LENGTHS) -> Tensor:
    return torch.randn(sum(lengths), INPUT, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def reference_context(layer: ContextLayer, x: Tensor, lengths: list[int]) -> Tensor:
    """Compute equation 3 of the paper, with a convolution by torch for each sequence."""
    parts = []
    for sequence in x.split(lengths):
        branches = [torch.tanh(reference_convolution(branch, sequence)) for branch in layer.branches]
        parts.append(torch.stack(branches).max(0).values)
    return torch.cat(parts)


@pytest.mark.parametrize("branches", [(1, 3, 5), (3,), (1,), (5, 3), (7, 1)])
def test_context_layer_equals_paper_equation(branches: tuple[int, ...]) -> None:
    layer = ContextLayer(input_width=INPUT, width=WIDTH, branches=branches).double()
    x = tokens().requires_grad_()
    got, expected = layer(x, np.array(LENGTHS)), reference_context(layer, x, LENGTHS)
    assert_same(got, expected, [x, *layer.parameters()], within=1e-12)


def test_encoder_equals_paper_equations() -> None:
    encoder, x = make(), tokens()
    assert encoder.context is not None
    assert encoder.relation is not None
    context = reference_context(encoder.context, x, LENGTHS)
    assert torch.allclose(encoder(x, LENGTHS), reference_relation(encoder.relation, context, LENGTHS), atol=1e-13)


def test_encoder_without_relation_returns_context_features() -> None:
    encoder, x = make(relation=None), tokens()
    assert encoder.context is not None
    assert torch.allclose(encoder(x, LENGTHS), reference_context(encoder.context, x, LENGTHS), atol=1e-13)


def test_relation_layer_without_context_takes_input() -> None:
    encoder, x = make(branches=(), width=INPUT), tokens()
    assert encoder.relation is not None
    assert torch.allclose(encoder(x, LENGTHS), reference_relation(encoder.relation, x, LENGTHS), atol=1e-13)
    assert {name.split(".")[0] for name, _ in encoder.named_parameters()} == {"relation"}


def test_linear_layer_changes_width_without_context() -> None:
    encoder, x = make(branches=()), tokens()
    assert encoder.relation is not None
    assert encoder.input is not None
    widened = x @ encoder.input.weight.T + encoder.input.bias
    assert torch.allclose(encoder(x, LENGTHS), reference_relation(encoder.relation, widened, LENGTHS), atol=1e-13)


def test_dropout_applies_to_context_features_in_training() -> None:
    encoder, x = make(relation=None, dropout=0.5), tokens()
    expected = encoder(x, LENGTHS)
    dropped = encoder.train()(x, LENGTHS)
    is_kept = dropped != 0
    assert 0.3 < is_kept.double().mean().item() < 0.7
    assert torch.allclose(dropped[is_kept], 2 * expected[is_kept], atol=1e-12)


def test_convolutions_have_kaiming_initialization_and_zero_bias() -> None:
    encoder = GRNEncoder(GRNConfig(), input_width=130)
    assert encoder.context is not None
    for branch, size in zip(encoder.context.branches, (1, 3, 5), strict=True):
        bound = math.sqrt(6 / (130 * size))
        assert branch.product.weight.abs().max().item() == pytest.approx(bound, rel=0.02)
        assert branch.product.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)
        assert not branch.product.bias.any()


SIZES = [1, 3, 5, 7]


def windows(size: int, lengths: list[int] = LENGTHS) -> ConvolutionWindows:
    return ConvolutionWindows.of(np.array(lengths, dtype=np.int64), size)


def make_convolution(size: int) -> Convolution:
    return Convolution(INPUT, WIDTH, size=size).double()


@pytest.mark.parametrize("size", SIZES)
def test_convolution_and_gradients_equal_torch(size: int) -> None:
    module, x = make_convolution(size), tokens().requires_grad_()
    got = module(x, windows(size))
    expected = torch.cat([reference_convolution(module, sequence) for sequence in x.split(LENGTHS)])
    assert_same(got, expected, [x, *module.parameters()], within=1e-12)


@settings(max_examples=40)
@given(st.lists(st.integers(0, 9), max_size=6), st.sampled_from([1, 3, 5]))
def test_windows_contain_neighbours_and_zero_padding(lengths: list[int], size: int) -> None:
    """Tokens are numbered from 1, so that 0 is padding."""
    numbers = torch.arange(1, sum(lengths) + 1, dtype=torch.float64)
    rows = iter(windows(size, lengths).gather(numbers[:, None]).tolist())
    for sequence in numbers.split(lengths):
        for position in range(len(sequence)):
            positions = [position + k - size // 2 for k in range(size)]
            assert next(rows) == [sequence[p].item() if 0 <= p < len(sequence) else 0.0 for p in positions]


@pytest.mark.parametrize("size", [0, 2, 4, -1])
def test_invalid_window_size_raises_error(size: int) -> None:
    with pytest.raises(ValueError, match=f"must be an odd number of tokens; got {size}"):
        windows(size)
