"""The CRF with emissions and weights on a GPU."""

from __future__ import annotations

import crf_brute_force as brute
import pytest
import torch

from spacy_tener.crf.crf_torch import CRF, cross_entropy

pytestmark = pytest.mark.integration

LENGTHS = [5, 0, 1, 40, 3]
N_LABELS = 3
N = sum(LENGTHS)


@pytest.fixture
def crf():
    random_crf = CRF(N_LABELS)
    for weight in random_crf.parameters():
        torch.nn.init.normal_(weight)
    return random_crf


@pytest.fixture
def emissions(crf):
    return torch.randn(N, crf.layout.n_tags)


@pytest.fixture
def masks(crf):
    """Random masks that allow the tag O and half of the other tags."""
    allowed = torch.rand(N, crf.layout.n_tags) < 0.5
    allowed[:, crf.layout.outside] = True
    return allowed


def copied_to(device, crf):
    """Return a copy of a CRF on a device."""
    moved_crf = CRF(N_LABELS).to(device)
    moved_crf.load_state_dict({name: value.to(device) for name, value in crf.state_dict().items()})
    return moved_crf


def losses(crf, emissions, masks):
    """Return the losses of full and partial annotation, and the gradients of emissions and weights, on the CPU."""
    emissions = emissions.detach().requires_grad_()
    tags = torch.full((N,), crf.layout.outside)
    full = crf.loss(emissions, LENGTHS, tags=tags)
    partial = crf.loss(emissions, LENGTHS, allowed=masks, possible=torch.ones_like(masks))
    (full.sum() + partial.sum()).backward()
    assert emissions.grad is not None
    return [part.detach().cpu() for part in (full, partial, emissions.grad, *(weight.grad for weight in crf.weights))]


def test_losses_and_gradients_equal_cpu(crf, emissions, masks, device):
    moved_crf = copied_to(device, crf)
    expected, found = losses(crf, emissions, masks), losses(moved_crf, emissions.to(device), masks)
    for value, reference in zip(found, expected, strict=True):
        torch.testing.assert_close(value, reference, rtol=1e-4, atol=1e-5)
    assert moved_crf.start.grad.device == device


def test_decoding_and_marginals_equal_cpu(crf, emissions, masks, device):
    moved_crf, moved = copied_to(device, crf), emissions.to(device)
    for allowed in (None, masks):
        pairs = ((moved_crf, moved), (crf, emissions))
        path, expected = (brute.decode(*pair, LENGTHS, allowed) for pair in pairs)
        assert path.tolist() == expected.tolist()
        found, expected = (brute.computed_marginals(*pair, LENGTHS, allowed) for pair in pairs)
        torch.testing.assert_close(found, expected)


def test_rehearsal_loss_with_new_label_equals_cpu(crf, emissions, device):
    extended = crf.with_labels(N_LABELS + 1)
    wider = torch.randn(N, extended.layout.n_tags)
    expected = cross_entropy(crf, emissions, extended, wider, LENGTHS)
    moved_crf = copied_to(device, crf)
    student = moved_crf.with_labels(N_LABELS + 1)
    assert student.start.device == device
    found = cross_entropy(moved_crf, emissions.to(device), student, wider.to(device), LENGTHS)
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-4)
