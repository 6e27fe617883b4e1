"""The CRF's Triton kernels, in Triton's interpreter, against the host's form in doubles."""

from __future__ import annotations

import importlib
import sys

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from spacy_tener.layers import crf as host
from spacy_tener.layers.crf import CRF, cross_entropy

pytestmark = pytest.mark.slow

LENGTHS = [5, 0, 1, 40, 3]


@pytest.fixture(scope="module")
def kernels():
    """The module of the kernels as the interpreter runs them, on tensors of the CPU."""
    name = "spacy_tener.gpu.crf_triton"
    with pytest.MonkeyPatch.context() as patch, np.errstate(divide="ignore"):
        patch.setenv("TRITON_INTERPRET", "1")
        # Triton looks at it when it is imported, which torch may have done before. Its library can be loaded once only.
        for module in [*sys.modules]:
            if module in (name, "triton") or (module.startswith("triton.") and not module.startswith("triton._C")):
                patch.delitem(sys.modules, module)
        yield importlib.import_module(name)


def crf_of(n_labels: int, scale: float) -> CRF:
    crf = CRF(n_labels)
    for weight in crf.parameters():
        torch.nn.init.normal_(weight, std=scale)
    return crf


def in_doubles(crf: CRF) -> CRF:
    exact = CRF(crf.layout.n_labels).double()
    exact.load_state_dict({name: value.double() for name, value in crf.state_dict().items()})
    return exact


def results(summed, crf, emissions, lengths, allowed, tags):
    """The sums, and the gradients of emissions and weights."""
    emissions = emissions.clone().requires_grad_()
    sums = summed(emissions, crf.weights, crf._packing(emissions, lengths), allowed, tags)
    finite = sums.isfinite()
    (sums[finite] * torch.linspace(0.5, 2.0, len(lengths), dtype=torch.float64)[finite]).sum().backward()
    assert emissions.grad is not None
    return [sums.detach(), emissions.grad, *(weight.grad for weight in crf.weights)]


def assert_same(kernels, n_labels, lengths, *, scale=1.0, masked=False, tagged=False, bar=0.0, rtol=1e-5, atol=1e-5):
    torch.manual_seed(len(lengths) + n_labels)
    crf = crf_of(n_labels, scale)
    n_tags = crf.layout.n_tags
    emissions = 3.0 * scale * torch.randn(sum(lengths), n_tags)
    emissions[torch.rand(emissions.shape) < bar] = -torch.inf
    emissions[:, crf.layout.outside] = emissions[:, crf.layout.outside].nan_to_num(neginf=0.0)
    allowed = torch.rand(emissions.shape) < 0.5 if masked else None
    if allowed is not None:
        allowed[:, crf.layout.outside] = True
    tags = torch.full((len(emissions),), crf.layout.outside) if tagged else None
    found = results(kernels.log_likelihood, crf, emissions, lengths, allowed, tags)
    wanted = results(host._log_likelihood, in_doubles(crf), emissions.double(), lengths, allowed, tags)
    for part, expected in zip(found, wanted, strict=True):
        assert not part.isnan().any()
        assert_close(part.double(), expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize("tagged", [False, True], ids=["sums", "a path"])
@pytest.mark.parametrize("masked", [False, True], ids=["all tags", "masked"])
@pytest.mark.parametrize("n_labels", [0, 1, 3, 18, 31])
def test_sums_and_gradients_are_those_of_the_host(kernels, n_labels, masked, tagged):
    assert_same(kernels, n_labels, LENGTHS, masked=masked, tagged=tagged)


@pytest.mark.parametrize("length", [1, 2, 64, 600])
def test_gradients_of_a_long_text_are_as_exact_as_those_of_a_short_one(kernels, length):
    assert_same(kernels, 8, [length], tagged=True)


def test_extreme_scores_are_summed_exactly(kernels):
    # Scores of a thousand have six digits behind the point in doubles, and four in floats.
    assert_same(kernels, 3, LENGTHS, scale=60.0, rtol=1e-4, atol=1e-3)


def test_emissions_of_minus_infinity_bar_a_tag(kernels):
    assert_same(kernels, 3, LENGTHS, bar=0.4, tagged=True)


def test_a_text_without_a_path_has_no_gradient(kernels):
    crf = crf_of(2, 1.0)
    emissions = torch.randn(6, crf.layout.n_tags)
    allowed = torch.ones(emissions.shape, dtype=torch.bool)
    allowed[1] = False
    found = results(kernels.log_likelihood, crf, emissions, [3, 3], allowed, None)
    assert found[0][0] == -torch.inf
    assert found[0][1].isfinite()
    assert not any(part.isnan().any() for part in found[1:])
    assert not found[1][:3].any()


def test_an_error_in_the_emissions_is_not_hidden(kernels):
    crf = crf_of(2, 1.0)
    for error in (torch.nan, torch.inf):
        emissions = torch.randn(4, crf.layout.n_tags)
        emissions[1, 2] = error
        sums = kernels.log_likelihood(emissions, crf.weights, crf._packing(emissions, [4]), None, None)
        assert not sums.isfinite().any()


def test_half_precision_emissions_have_half_precision_gradients(kernels):
    crf = crf_of(2, 1.0)
    emissions = torch.randn(9, crf.layout.n_tags)
    found = results(kernels.log_likelihood, crf, emissions.bfloat16(), [4, 5], None, None)
    wanted = results(host._log_likelihood, in_doubles(crf), emissions.bfloat16().double(), [4, 5], None, None)
    assert found[1].dtype == torch.bfloat16
    assert_close(found[0], wanted[0], rtol=1e-5, atol=1e-5)
    assert_close(found[1].double(), wanted[1], rtol=1e-2, atol=1e-2)


def test_losses_and_entropies_of_a_tagger_are_those_of_the_host(kernels, monkeypatch):
    crf, old = crf_of(3, 1.0), crf_of(2, 1.0)
    emissions, soft = torch.randn(49, crf.layout.n_tags), torch.randn(49, old.layout.n_tags)
    masks = torch.rand(emissions.shape) < 0.5
    masks[:, crf.layout.outside] = True

    def losses():
        x = emissions.clone().requires_grad_()
        full = crf.loss(x, LENGTHS, tags=torch.full((49,), crf.layout.outside))
        partial = crf.loss(x, LENGTHS, allowed=masks)
        crossed = cross_entropy(old, soft, crf, x, LENGTHS)
        (full.sum() + partial.sum() + crossed).backward()
        assert x.grad is not None
        return full.detach(), partial.detach(), crossed.detach(), x.grad

    wanted = losses()
    monkeypatch.setattr(host, "kernels_for", lambda emissions, device, layout: kernels)
    for loss, expected in zip(losses(), wanted, strict=True):
        assert_close(loss, expected, rtol=1e-4, atol=1e-4)
