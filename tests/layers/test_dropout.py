from __future__ import annotations

import pytest
import torch

from spacy_tener.layers.dense import Dropout, dropout


@pytest.mark.parametrize("p", [0.1, 0.15, 0.5, 0.9])
def test_the_asked_share_is_dropped_and_the_rest_scaled(p: float) -> None:
    torch.manual_seed(0)
    dropped = dropout(torch.ones(400, 1000), p, training=True)
    kept = dropped[dropped != 0]
    assert torch.allclose(kept, torch.full_like(kept, 1 / (1 - p)), rtol=1e-3)
    # 5 standard deviations of a mean over 400,000 draws.
    assert abs(1 - len(kept) / dropped.numel() - p) < 5 * (p * (1 - p) / 400_000) ** 0.5


def test_the_mean_is_kept_exactly_for_the_probability_in_use() -> None:
    torch.manual_seed(1)
    scale = dropout(torch.ones(4096), 0.15, training=True).max().item()
    assert scale == pytest.approx(1 / (1 - round(0.15 * 65536) / 65536), rel=1e-6)


def test_neighbours_are_dropped_independently() -> None:
    torch.manual_seed(2)
    dropped = (dropout(torch.ones(100_000, 4), 0.5, training=True) == 0).double()
    correlation = torch.corrcoef(dropped.T)
    assert (correlation - torch.eye(4, dtype=torch.float64)).abs().max() < 0.02


def test_evaluation_and_zero_probability_return_the_input_itself() -> None:
    x = torch.randn(5, 3)
    assert dropout(x, 0.5, training=False) is x
    assert dropout(x, 0.0, training=True) is x


def test_probability_one_drops_everything() -> None:
    assert dropout(torch.ones(7), 1.0, training=True).abs().sum() == 0


def test_the_gradient_flows_through_what_was_kept() -> None:
    torch.manual_seed(5)
    x = torch.ones(1000, dtype=torch.float64, requires_grad=True)
    dropped = dropout(x, 0.3, training=True)
    dropped.sum().backward()
    assert torch.equal(x.grad, dropped.detach())


def test_the_module_is_active_in_training_only() -> None:
    torch.manual_seed(6)
    module, x = Dropout(0.5), torch.ones(1000)
    assert (module(x) == 0).any()
    assert module.eval()(x) is x
