from __future__ import annotations

import math

import pytest
import torch

from spacy_tener.layers.attention import LONGEST_KEPT, RelativePositions, interleave, mirrored, sinusoids, turn
from spacy_tener.layers.ragged import Ragged

DOUBLE = torch.zeros(0, dtype=torch.float64)


def test_tables_are_those_of_the_paper() -> None:
    table, other_side = (sinusoids(7, 6, DOUBLE, form) for form in (interleave, mirrored))
    for t in range(7):
        for i in range(3):
            angle = t / 10000 ** (2 * i / 6)
            pair = [math.sin(angle), math.cos(angle)]
            assert table[t, 2 * i : 2 * i + 2].tolist() == pytest.approx(pair, abs=1e-15)
            assert other_side[t, 2 * i : 2 * i + 2].tolist() == pytest.approx([-pair[0], pair[1]], abs=1e-15)


@pytest.mark.parametrize("length", [1, 64, 65, 1000, LONGEST_KEPT, LONGEST_KEPT + 1])
def test_tables_have_any_length(length: int) -> None:
    table = sinusoids(length, 8, torch.zeros(0))
    assert table.shape == (length, 8)
    assert table.dtype == torch.float32


def test_far_positions_are_exact_in_float32() -> None:
    table = sinusoids(100_001, 4, torch.zeros(0))
    assert table[100_000, 0].item() == pytest.approx(math.sin(100_000.0), abs=1e-7)
    assert table[99_999, 2].item() == pytest.approx(math.sin(99_999.0 / 100.0), abs=1e-7)


def test_a_table_first_made_in_inference_mode_serves_training() -> None:
    width = 34  # of no other test, since tables are kept
    with torch.inference_mode():
        sinusoids(5, width, torch.zeros(0))
    table = sinusoids(5, width, torch.zeros(0))
    x = torch.ones(5, width, requires_grad=True)
    (x * table).sum().backward()
    assert torch.equal(x.grad, table)


def test_turned_query_and_key_table_give_the_relative_position() -> None:
    torch.manual_seed(0)
    width, length = 8, 9
    relative = RelativePositions.of(Ragged.of([length]), width, DOUBLE)
    s = torch.randn(length, width, dtype=torch.float64)
    fast = turn(s, relative.query_turn[:, 0]) @ relative.table.T
    for t in range(length):
        for j in range(length):
            angles = [(t - j) / 10000 ** (2 * i / width) for i in range(width // 2)]
            r = torch.tensor([f(a) for a in angles for f in (math.sin, math.cos)], dtype=torch.float64)
            assert fast[t, j].item() == pytest.approx((s[t] @ r).item(), abs=1e-12)
