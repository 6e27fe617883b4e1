"""The emulated device refuses what a GPU refuses, and counts what a GPU waits for."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from emulated_device import DEVICE, XP, emulated_device, recorded

MIXTURES = {
    "sum": lambda x: x + torch.zeros(2),
    "index": lambda x: x[torch.zeros(2, dtype=torch.long)],
    "in place": lambda x: x.mul_(torch.ones(3, 2)),
}


@pytest.mark.parametrize("mix", MIXTURES.values(), ids=MIXTURES)
def test_a_tensor_of_the_host_does_not_mix_with_the_device_s(mix):
    with emulated_device():
        x = torch.zeros(3, 2).to(DEVICE)
        with pytest.raises(RuntimeError, match="expected all tensors to be on the same device"):
            mix(x)


WAITS = {
    "item": lambda x: x * x.sum().sign().abs().item(),
    "bool": lambda x: x if bool((x == x).all()) else x + 1,
    "mask": lambda x: x + x[x.isnan()].sum(),
    "nonzero": lambda x: x + 0.0 * x.isnan().nonzero().sum(),
    "copy to the host": lambda x: x + x.cpu().sum() * 0.0,
    "blocking upload": lambda x: x + torch.zeros(x.shape[1]).to(x.device),
    "repeats": lambda x: x.repeat_interleave(torch.ones(len(x), dtype=torch.long, device=x.device), 0),
}


@pytest.mark.parametrize("change", WAITS.values(), ids=WAITS)
def test_what_waits_for_the_device_is_counted(change):
    with emulated_device():
        x = torch.zeros(3, 2).to(DEVICE)
        with recorded() as record:
            assert torch.equal(change(x).cpu(), x.cpu())
    assert record.waits > 2, "the two copies of the check, and what was planted"


def test_arrays_of_the_device_refuse_numpy():
    with emulated_device():
        array = XP.zeros((2, 3), dtype="f")
        for mix in (
            np.asarray,
            torch.from_numpy,
            lambda x: x + np.ones(3),
            lambda x: np.concatenate([x, np.ones((1, 3))]),
        ):
            with pytest.raises(TypeError):
                mix(array)
        with recorded() as record:
            float(XP.exp(array).sum())
        assert record.counts() == (2, 1, 1)
