"""Copies of arrays to a device, and the number of CPU threads that torch uses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from emulated_device import DEVICE, emulated_device
from torch import nn

from spacy_tener.nn import devices_torch as devices
from spacy_tener.nn.devices_torch import host_threads, on_device, threads_for, threads_for_updates

ARRAYS = [
    np.arange(5),
    np.array([[True, False, True]]),
    np.linspace(0.0, 1.0, 7, dtype=np.float32)[:, None],
    np.zeros(0, dtype=np.int64),
    torch.tensor([1.5, -2.0], dtype=torch.float64),
    np.arange(12).reshape(3, 4).T,
]


def test_arrays_of_any_type_are_copied_to_device():
    with emulated_device():
        back = [on_device(array, DEVICE).cpu() for array in ARRAYS]
    for array, tensor in zip(ARRAYS, back, strict=True):
        assert torch.equal(tensor, torch.as_tensor(array))
        assert tensor.dtype == torch.as_tensor(array).dtype


def test_cpu_tensors_share_memory_with_arrays():
    array = np.arange(4)
    tensor, floats = (on_device(part, "cpu") for part in (array, np.ones(2)))
    array[0] = 7
    assert tensor.tolist() == [7, 1, 2, 3]
    assert floats.tolist() == [1.0, 1.0]


# Number of units in a batch of sentences.
BATCH = 512


@pytest.fixture
def default_threads(three_threads, monkeypatch):
    """Make three threads the default of torch."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    monkeypatch.setattr(devices, "count_cores", lambda: 3)


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "MKL_NUM_THREADS"])
def test_thread_count_from_environment_is_respected(default_threads, monkeypatch, name):
    monkeypatch.setenv(name, "3")
    assert threads_for(torch.device("cpu"), [nn.Linear(2, 2)], BATCH) == 3


@pytest.mark.parametrize("number", [1, 2, 16])
def test_thread_count_set_in_torch_is_respected(default_threads, monkeypatch, number):
    monkeypatch.setattr(devices, "count_physical_cores", lambda: 3)
    torch.set_num_threads(number)
    assert threads_for(torch.device("cpu"), [nn.Linear(2, 2)], BATCH) == number


def test_updates_use_single_thread_by_default(default_threads):
    assert threads_for_updates() == 1


def test_updates_use_thread_count_from_environment(default_threads, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert threads_for_updates() == 3


def test_thread_count_is_restored_after_error(three_threads):
    with pytest.raises(RuntimeError, match="2 threads"), host_threads(2):
        raise RuntimeError(f"{torch.get_num_threads()} threads")
    assert torch.get_num_threads() == 3
