"""Random numbers go on where they were, from every source."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from spacy_tener.workbench.runs.checkpoint import read_checkpoint, write_checkpoint
from spacy_tener.workbench.runs.randomness import full_state, host_state, same, set_full_state, set_host_state

DRAWS: dict[str, Callable[[], Any]] = {
    "python": random.random,
    "python's gaussian, which keeps a number in hand": lambda: random.gauss(0, 1),
    "numpy": lambda: np.random.rand(),
    "numpy's gaussian, which keeps a number in hand": lambda: np.random.standard_normal(),
    "torch": lambda: torch.rand(1).item(),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_the_same_numbers_come_again_from_a_file(draw: Callable[[], Any], tmp_path: Path) -> None:
    draw()
    write_checkpoint(tmp_path / "state.npz", full_state())
    expected = [draw() for _ in range(1000)]
    set_full_state(read_checkpoint(tmp_path / "state.npz"))
    assert [draw() for _ in range(1000)] == expected


@pytest.mark.parametrize("name", [name for name in DRAWS if name != "torch"])
def test_a_draw_is_noticed(name: str) -> None:
    before = host_state()
    assert same(before, host_state())
    DRAWS[name]()
    assert not same(before, host_state())
    set_host_state(before)
    assert same(before, host_state())


def test_torch_does_not_count_for_the_order_of_examples() -> None:
    before = host_state()
    torch.rand(1)
    assert same(before, host_state())


@pytest.mark.gpu
def test_the_same_numbers_come_again_on_a_gpu() -> None:
    torch.rand(1, device="cuda")
    state = full_state()
    expected = torch.rand(100, device="cuda").tolist()
    set_full_state(state)
    assert torch.rand(100, device="cuda").tolist() == expected
