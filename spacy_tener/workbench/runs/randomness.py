"""The state of all random numbers that a training draws from."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from thinc.compat import cupy, has_cupy_gpu

State = dict[str, Any]


def host_state() -> State:
    """Python's and NumPy's: what corpora, their shuffling and batchers draw from."""
    version, words, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "python": [version, np.array(words, dtype=np.uint32), gauss],
        "numpy": [name, keys, int(position), int(has_gauss), float(cached)],
    }


def set_host_state(state: State) -> None:
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words.tolist()), gauss))
    np.random.set_state(tuple(state["numpy"]))


def same(first: State, second: State) -> bool:
    """Whether nothing was drawn between two states of the host."""
    pairs = zip(_flat(first), _flat(second), strict=True)
    return all(np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b for a, b in pairs)


def full_state() -> State:
    """Those of the host, and torch's on every device."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {
        "host": host_state(),
        "torch": torch.get_rng_state().numpy(),
        "cuda": [state.numpy() for state in cuda],
    }


def set_full_state(state: State) -> None:
    set_host_state(state["host"])
    torch.set_rng_state(torch.from_numpy(state["torch"]))
    if torch.cuda.is_available() and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all([torch.from_numpy(each) for each in state["cuda"]])


def reseed_cupy(step: int) -> None:
    """CuPy does not say what state it is in. So it gets a known one at each checkpoint, in every training: one that is
    stopped there goes on with the same numbers as one that is not."""
    if has_cupy_gpu:
        cupy.random.seed(step)


def _flat(state: State) -> list[Any]:
    return [*state["python"], *state["numpy"]]
