"""Where a CRF computes: in kernels of the device, if Triton works there, else on the host."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from spacy_tener.gpu import kernels as module
from spacy_tener.layers import crf as host
from spacy_tener.layers.crf import CRF
from spacy_tener.tagging import TagLayout

CPU = torch.device("cpu")


def kernels(factor: float = 1.0, most: int = 128) -> ModuleType:
    """What stands for the module of kernels: the host's form, or one that is wrong."""
    stand_in: Any = ModuleType("spacy_tener.gpu.crf_triton")
    stand_in.MOST_TAGS = most
    stand_in.log_likelihood = lambda emissions, weights, packing, allowed=None, tags=None: (
        factor * host._log_likelihood(emissions, weights, packing, allowed, tags)
    )
    return stand_in


@pytest.fixture
def installed(monkeypatch):
    """Let a module be that of the kernels."""
    module.working_kernels.cache_clear()
    monkeypatch.setattr(module, "find_spec", lambda name: object())

    def install(stand_in: ModuleType | None) -> None:
        import spacy_tener.gpu as package

        monkeypatch.setitem(sys.modules, "spacy_tener.gpu.crf_triton", stand_in)
        monkeypatch.setattr(package, "crf_triton", stand_in, raising=False)

    yield install
    module.working_kernels.cache_clear()


def test_kernels_that_compile_are_taken(installed):
    stand_in = kernels()
    installed(stand_in)
    assert module.working_kernels(CPU) is stand_in


def test_kernels_that_do_not_are_left_with_a_warning(installed):
    def no_compiler(*arguments):
        raise RuntimeError("Failed to find C compiler\nSet CC")

    stand_in: Any = kernels()
    stand_in.log_likelihood = no_compiler
    installed(stand_in)
    with pytest.warns(UserWarning, match="trained on the host, since Triton does not work on cpu: Failed to find C c"):
        assert module.working_kernels(CPU) is None


def test_without_triton_the_host_computes(installed, monkeypatch):
    installed(kernels())
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    assert module.working_kernels(CPU) is None


def on_gpu(n_tags: int = 5, device: str = "cuda:0", dtype: torch.dtype = torch.float32, n: int = 3) -> Any:
    return SimpleNamespace(
        is_cuda=device.startswith("cuda"), device=torch.device(device), dtype=dtype, numel=lambda: n * n_tags
    )


@pytest.mark.parametrize(
    ("emissions", "taken"),
    [
        (on_gpu(), True),
        (on_gpu(dtype=torch.bfloat16), True),
        (on_gpu(dtype=torch.float64), False),
        (on_gpu(n=0), False),
        (on_gpu(device="cpu"), False),
        (on_gpu(device="cuda:1"), False),
    ],
    ids=["floats", "half", "doubles", "no tokens", "CPU", "another GPU"],
)
@pytest.mark.parametrize(("n_labels", "fits"), [(1, True), (2, False)])
def test_kernels_serve_emissions_of_their_device_in_floats_and_tables_that_fit(
    monkeypatch, emissions, taken, n_labels, fits
):
    stand_in = kernels(most=8)
    monkeypatch.setattr(module, "working_kernels", lambda device: stand_in)
    taken = taken and fits
    assert module.kernels_for(emissions, torch.device("cuda:0"), TagLayout(n_labels)) is (stand_in if taken else None)


def test_losses_come_from_the_kernels(monkeypatch):
    crf, emissions, tags = CRF(1), torch.randn(4, 5), torch.ones(4, dtype=torch.long)
    wanted = [crf.loss(emissions, [4], tags=tags), crf.loss(emissions, [4], allowed=torch.ones(4, 5, dtype=torch.bool))]
    wanted.append(crf.log_partition(emissions, [4]))
    monkeypatch.setattr(host, "kernels_for", lambda emissions, device, layout: kernels(factor=2.0))
    found = [crf.loss(emissions, [4], tags=tags), crf.loss(emissions, [4], allowed=torch.ones(4, 5, dtype=torch.bool))]
    found.append(crf.log_partition(emissions, [4]))
    torch.testing.assert_close(torch.cat(found), 2.0 * torch.cat(wanted))
