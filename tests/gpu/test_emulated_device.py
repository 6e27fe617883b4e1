"""The emulated device rejects operations that a GPU rejects."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from emulated_device import DEVICE, XP, emulated_device

pytestmark = pytest.mark.integration

MIXTURES = {
    "sum": lambda x: x + torch.zeros(2),
    "index": lambda x: x[torch.zeros(2, dtype=torch.long)],
    "in place": lambda x: x.mul_(torch.ones(3, 2)),
}


@pytest.mark.parametrize("mix", MIXTURES.values(), ids=MIXTURES)
def test_mixing_host_and_device_tensors_raises_error(mix):
    with emulated_device():
        x = torch.zeros(3, 2).to(DEVICE)
        with pytest.raises(RuntimeError, match="expected all tensors to be on the same device"):
            mix(x)


def test_device_arrays_reject_numpy_conversion():
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
