"""Iterated dilated convolutions: what a token sees, how they start, and that sequences stay apart."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from paper_forms import assert_same
from torch import Tensor, nn

from spacy_tener.layers.convolution import Convolution, IDCNNConfig, IDCNNEncoder

LENGTHS = [4, 0, 11, 1, 35]
INPUT, WIDTH = 7, 10
KINDS: list[dict[str, Any]] = [
    {},
    {"iterations": 1},
    {"dilations": (1,)},
    {"dilations": (2, 4)},
    {"dilations": (1, 1, 2), "iterations": 4},
    {"window": 5},
]


def make(*, random: bool = True, **options: Any) -> IDCNNEncoder:
    """random: away from the identity that the block starts as."""
    torch.manual_seed(0)
    encoder = IDCNNEncoder(IDCNNConfig(**{"width": WIDTH, "dropout": 0.0, **options}), input_width=INPUT).double()
    if random:
        for parameter in encoder.parameters():
            nn.init.normal_(parameter, std=0.3)
    return encoder.eval()


def tokens(lengths: list[int] = LENGTHS) -> Tensor:
    return torch.randn(sum(lengths), INPUT, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def convolved(layer: Convolution, x: Tensor, dilation: int) -> Tensor:
    """torch's own convolution and ReLU. *Shape: [1, channels, length]*"""
    weight = layer.product.weight.view(WIDTH, layer.size, -1).transpose(1, 2)
    padding = layer.size // 2 * dilation
    return F.relu(F.conv1d(x, weight, layer.product.bias, padding=padding, dilation=dilation))


def reference(encoder: IDCNNEncoder, x: Tensor, lengths: list[int]) -> Tensor:
    parts = []
    for own in x.split(lengths):
        if len(own):
            rows = convolved(encoder.widen, own.T[None], 1)
            for _ in range(encoder.config.iterations):
                for layer, dilation in zip(encoder.block, encoder.config.dilations, strict=True):
                    rows = convolved(layer, rows, dilation)
            parts.append(rows[0].T)
    return torch.cat(parts)


@pytest.mark.parametrize("options", KINDS)
def test_it_equals_torchs_convolutions_one_after_the_other(options: dict[str, Any]) -> None:
    encoder, x = make(**options), tokens().requires_grad_()
    assert_same(encoder(x, LENGTHS), reference(encoder, x, LENGTHS), [x, *encoder.parameters()], within=1e-11)


def reach_of(config: IDCNNConfig) -> int:
    return config.window // 2 * (1 + config.iterations * sum(config.dilations))


@pytest.mark.parametrize("options", KINDS)
def test_a_token_sees_as_far_as_its_reach_and_no_further(options: dict[str, Any]) -> None:
    """With weights and input above zero no ReLU hides anything."""
    encoder = make(**options)
    for parameter in encoder.parameters():
        nn.init.constant_(parameter, 0.01)
    x = torch.ones(81, INPUT, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(encoder(x, [81])[40].sum(), x)
    seen = gradient.abs().sum(1).nonzero().flatten().tolist()
    reach = reach_of(encoder.config)
    assert (min(seen), max(seen)) == (40 - reach, 40 + reach)


def test_the_defaults_see_thirteen_neighbours_on_either_side() -> None:
    assert reach_of(IDCNNConfig()) == 13


@pytest.mark.parametrize("options", KINDS)
def test_an_untrained_block_hands_on_what_it_was_given(options: dict[str, Any]) -> None:
    encoder, x = make(random=False, **options), tokens()
    without_block = torch.cat([convolved(encoder.widen, own.T[None], 1)[0].T for own in x.split(LENGTHS) if len(own)])
    assert torch.allclose(encoder(x, LENGTHS), without_block, atol=1e-13)


def test_the_first_convolution_starts_xavier_uniform() -> None:
    encoder = IDCNNEncoder(IDCNNConfig(), input_width=130)
    bound = (6 / (3 * 130 + 300)) ** 0.5
    assert encoder.widen.product.weight.abs().max().item() == pytest.approx(bound, rel=0.02)
    assert not encoder.widen.product.bias.any()


def test_dropout_comes_before_each_application_of_the_block() -> None:
    x = tokens()
    once, thrice = (make(random=False, iterations=n, dropout=0.5) for n in (1, 3))
    shares = []
    for encoder in (once, thrice):
        whole = encoder.eval()(x, LENGTHS) > 0
        shares.append((encoder.train()(x, LENGTHS)[whole] > 0).double().mean().item())
    assert shares == [pytest.approx(0.5, abs=0.1), pytest.approx(0.125, abs=0.06)]
