"""Pretrained rows lose what they have in common, and get the length of random rows."""

from __future__ import annotations

import numpy as np
import pytest

from spacy_tener.features.vectors.forms import prepared, whitened


def correlated(n: int, width: int) -> np.ndarray:
    """Rows with a large mean, in which one direction has a hundred times the deviation of the others."""
    rng = np.random.default_rng(0)
    table = rng.normal(size=(n, width)) + rng.normal(size=(n, 1)) * 100 * rng.normal(size=width)
    return (table + 30 * rng.normal(size=width)).astype("float32")


def test_whitened_rows_have_no_mean_and_vary_equally_and_independently() -> None:
    table = whitened(correlated(4000, 12))
    assert table.dtype == np.float32
    np.testing.assert_allclose(table.mean(0), np.zeros(12), atol=1e-3)
    np.testing.assert_allclose(np.cov(table.T, bias=True), np.eye(12), atol=1e-2)


def test_of_all_whitenings_it_is_the_one_that_turns_nothing() -> None:
    """Where columns are independent, each is only scaled."""
    rng = np.random.default_rng(1)
    columns, _ = np.linalg.qr(rng.normal(size=(500, 8)))
    columns, _ = np.linalg.qr(columns - columns.mean(0))
    scales = np.array([3.0, 1.0, 0.5, 2.0, 9.0, 0.1, 1.0, 1.0])
    centred = columns - columns.mean(0)
    np.testing.assert_allclose(whitened(columns * scales + 5.0), centred / centred.std(0), atol=0.05)


def test_unrelated_rows_that_shared_a_direction_are_unrelated_after_it() -> None:
    raw = prepared(correlated(2000, 12), whiten=False, unit_length=True)
    white = prepared(correlated(2000, 12), whiten=True, unit_length=True)
    assert np.abs(raw[:1000] @ raw[1000:].T).mean() > 0.6
    assert np.abs(white[:1000] @ white[1000:].T).mean() < 0.3


@pytest.mark.parametrize("n", [0, 1, 3])
@pytest.mark.parametrize("whiten", [False, True])
def test_few_rows_stay_finite(n: int, whiten: bool) -> None:
    table = prepared(correlated(n, 6), whiten=whiten, unit_length=True)
    assert table.shape == (n, 6)
    assert np.isfinite(table).all()


def test_rows_are_scaled_to_unit_length_only_where_that_is_asked_for() -> None:
    table = correlated(50, 6)
    np.testing.assert_array_equal(prepared(table, whiten=False, unit_length=False), table)
    for whiten in (False, True):
        lengths = np.linalg.norm(prepared(table, whiten=whiten, unit_length=True), axis=1)
        np.testing.assert_allclose(lengths, np.ones(50), rtol=1e-5)
    white = np.linalg.norm(prepared(table, whiten=True, unit_length=False), axis=1)
    assert white.std() > 0.1


def test_a_row_of_zeros_is_not_divided_by_its_length() -> None:
    np.testing.assert_array_equal(
        prepared(np.zeros((2, 3), "float32"), whiten=False, unit_length=True), np.zeros((2, 3))
    )
