"""Test the emission layer of the CRF head, and its extension by new labels."""

from __future__ import annotations

import pytest
import torch

from spacy_tener.crf.crf_torch import CRFHead
from spacy_tener.tagging import TagLayout

WIDTH = 8


def head(n_labels=2, dropout=0.0):
    module = CRFHead(width=WIDTH, n_labels=n_labels, dropout=dropout).eval()
    for parameter in module.crf.parameters():
        torch.nn.init.normal_(parameter)
    return module


def test_emissions_are_linear_projection_of_tokens():
    module, tokens = head(), torch.randn(40, WIDTH)
    expected = tokens @ module.emit.weight.T + module.emit.bias
    torch.testing.assert_close(module(tokens, [30, 10]), expected, rtol=1e-5, atol=1e-5)
    assert module(tokens[:0], [0]).shape == (0, 9)


def test_dropout_applies_to_input_only_in_training():
    module, tokens = head(dropout=0.9), torch.randn(64, WIDTH)
    assert torch.equal(module(tokens, [64]), module(tokens, [64]))
    module.train()
    assert not torch.equal(module(tokens, [64]), module(tokens, [64]))
    all_dropped = (module(tokens, [64]) == module.emit.bias).all(1).float().mean()
    assert all_dropped > 0.2, "all features are dropped in 0.9 ** 8 = 0.43 of the tokens"


@pytest.mark.parametrize(("n_labels", "n_more"), [(1, 2), (2, 2), (2, 5), (0, 3)])
def test_extended_head_preserves_scores_of_existing_labels(n_labels, n_more):
    module, tokens = head(n_labels, dropout=0.25), torch.randn(50, WIDTH)
    extended = module.with_labels(n_more)
    tags = torch.from_numpy(TagLayout(n_labels).within(TagLayout(n_more)))
    assert torch.equal(extended.emit.weight[tags], module.emit.weight)
    assert torch.equal(extended.emit.bias[tags], module.emit.bias)
    torch.testing.assert_close(extended.eval()(tokens, [50])[:, tags], module(tokens, [50]), rtol=1e-5, atol=1e-6)
    assert extended.dropout.p == 0.25


def test_extended_head_does_not_share_weights():
    module = head()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    extended = module.with_labels(3)
    with torch.no_grad():
        for parameter in extended.parameters():
            parameter.add_(1.0)
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert all(parameter.requires_grad and parameter.is_leaf for parameter in extended.parameters())
