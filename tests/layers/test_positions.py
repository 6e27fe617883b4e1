from __future__ import annotations

import math

import pytest
import torch

from spacy_tener.layers import attention
from spacy_tener.layers.attention import LONGEST_KEPT, interleave, sinusoids, turn

DOUBLE = torch.zeros(0, dtype=torch.float64)


def test_tables_are_those_of_the_paper() -> None:
    sin, cos = sinusoids(7, 6, DOUBLE)
    for t in range(7):
        for i in range(3):
            angle = t / 10000 ** (2 * i / 6)
            assert sin[t, i].item() == pytest.approx(math.sin(angle), abs=1e-15)
            assert cos[t, i].item() == pytest.approx(math.cos(angle), abs=1e-15)


@pytest.mark.parametrize("length", [1, 64, 65, 1000, LONGEST_KEPT, LONGEST_KEPT + 1])
def test_tables_have_any_length(length: int) -> None:
    sin, cos = sinusoids(length, 8, torch.zeros(0))
    assert sin.shape == cos.shape == (length, 4)
    assert sin.dtype == torch.float32


def test_far_positions_are_exact_in_float32() -> None:
    sin, _ = sinusoids(100_001, 4, torch.zeros(0))
    assert sin[100_000, 0].item() == pytest.approx(math.sin(100_000.0), abs=1e-7)
    assert sin[99_999, 1].item() == pytest.approx(math.sin(99_999.0 / 100.0), abs=1e-7)


def test_few_tables_serve_all_lengths_and_long_ones_are_not_kept() -> None:
    attention._kept.cache_clear()
    for length in range(1, 300):
        sinusoids(length, 10, torch.zeros(0))
    assert attention._kept.cache_info().currsize == 4
    sinusoids(LONGEST_KEPT + 1, 10, torch.zeros(0))
    assert attention._kept.cache_info().currsize == 4


def test_a_table_first_made_in_inference_mode_serves_training() -> None:
    attention._kept.cache_clear()
    with torch.inference_mode():
        sinusoids(5, 12, torch.zeros(0))
    sin, _ = sinusoids(5, 12, torch.zeros(0))
    x = torch.ones(5, 6, requires_grad=True)
    (x * sin).sum().backward()
    assert torch.equal(x.grad, sin)


def test_interleaving_alternates() -> None:
    even, odd = torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0, 3.0]])
    assert interleave(even, odd).tolist() == [[0.0, 1.0, 2.0, 3.0]]


def test_turning_multiplies_pairs_as_complex_numbers() -> None:
    x = torch.tensor([[1.0, 2.0, 3.0, -1.0]])
    by = torch.tensor([[0.5 + 1.0j, -2.0j]])
    expected = [(1 + 2j) * (0.5 + 1j), (3 - 1j) * -2j]
    assert turn(x, by).tolist() == [[part for z in expected for part in (z.real, z.imag)]]


def test_turned_query_and_key_table_give_the_relative_position() -> None:
    torch.manual_seed(0)
    width, length = 8, 9
    sin, cos = sinusoids(length, width, DOUBLE)
    s = torch.randn(length, width, dtype=torch.float64)
    fast = turn(s, torch.complex(sin, -cos)) @ interleave(cos, sin).T
    for t in range(length):
        for j in range(length):
            angles = [(t - j) / 10000 ** (2 * i / width) for i in range(width // 2)]
            r = torch.tensor([f(a) for a in angles for f in (math.sin, math.cos)], dtype=torch.float64)
            assert fast[t, j].item() == pytest.approx((s[t] @ r).item(), abs=1e-12)
