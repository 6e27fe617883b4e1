"""Copies to a device, and the host's threads while one computes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from emulated_device import DEVICE, emulated_device, recorded

from spacy_tener.layers.devices import on_device_together, one_host_thread

ARRAYS = [
    np.arange(5),
    np.array([[True, False, True]]),
    None,
    np.linspace(0.0, 1.0, 7, dtype=np.float32)[:, None],
    np.zeros(0, dtype=np.int64),
    torch.tensor([1.5, -2.0], dtype=torch.float64),
    np.arange(12).reshape(3, 4).T,
]


def test_arrays_of_any_type_go_to_a_device_in_one_copy():
    with emulated_device(), recorded() as record:
        there = on_device_together(ARRAYS, DEVICE)
        assert (record.copies.total(), record.syncs.total()) == (1, 0)
        back = [None if tensor is None else tensor.cpu() for tensor in there]
    for array, tensor in zip(ARRAYS, back, strict=True):
        if array is None:
            assert tensor is None
        else:
            assert torch.equal(tensor, torch.as_tensor(array))
            assert tensor.dtype == torch.as_tensor(array).dtype


def test_on_a_cpu_arrays_stay_where_they_are():
    array = np.arange(4)
    tensor, other, none = on_device_together([array, np.ones(2), None], "cpu")
    array[0] = 7
    assert tensor.tolist() == [7, 1, 2, 3]
    assert other.tolist() == [1.0, 1.0]
    assert none is None


def fail(device: str) -> None:
    with one_host_thread(torch.device(device)):
        raise RuntimeError(f"{torch.get_num_threads()} threads")


@pytest.mark.parametrize(("device", "inside"), [("cuda", 1), ("mps", 1), ("cpu", 3)])
def test_the_host_has_one_thread_while_a_device_computes_and_the_user_s_afterwards(three_threads, device, inside):
    with pytest.raises(RuntimeError, match=f"{inside} threads"):
        fail(device)
    assert torch.get_num_threads() == 3
