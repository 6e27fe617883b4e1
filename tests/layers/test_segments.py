from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from spacy_tener.layers.ragged import Segments

INDEX = np.array([2, 0, 2, 5, 2, 0])
N_SEGMENTS = 7


def segments() -> Segments:
    return Segments.of(INDEX, N_SEGMENTS)


def rows(n: int) -> Tensor:
    torch.manual_seed(0)
    return torch.randn(n, 3, dtype=torch.float64, requires_grad=True)


def test_each_row_gets_what_its_segment_has() -> None:
    x = rows(N_SEGMENTS)
    assert torch.equal(segments().gather(x), x[torch.from_numpy(INDEX)])


def test_the_rows_of_each_segment_are_added_up_and_empty_segments_are_zero() -> None:
    x = rows(len(INDEX))
    members = [torch.from_numpy(np.flatnonzero(segment == INDEX)) for segment in range(N_SEGMENTS)]
    expected = torch.stack([x[rows].sum(0) for rows in members])
    assert torch.allclose(segments().sum(x), expected)
    assert not segments().sum(x)[[1, 3, 4, 6]].any()
    means = torch.stack([x[rows].mean(0) if len(rows) else x.new_zeros(3) for rows in members])
    assert torch.allclose(segments().mean(x), means)


def test_shares_are_the_softmax_within_each_segment() -> None:
    x = rows(len(INDEX))
    shares = segments().softmax(x)
    for segment in np.unique(INDEX):
        members = torch.from_numpy(np.flatnonzero(segment == INDEX))
        assert torch.allclose(shares[members], torch.softmax(x[members], dim=0))


def test_shares_of_huge_scores_are_numbers() -> None:
    x = torch.tensor([[1e4], [-1e4], [1e4 + 1], [-1e4], [0.0], [-1e4]])
    shares = segments().softmax(x)[:, 0]
    assert torch.allclose(shares, torch.tensor([0.26894, 0.5, 0.73106, 1.0, 0.0, 0.5]), atol=1e-4)


@pytest.mark.parametrize(("name", "n_rows"), [("gather", N_SEGMENTS), ("sum", len(INDEX)), ("softmax", len(INDEX))])
def test_gradients_are_right(name: str, n_rows: int) -> None:
    assert torch.autograd.gradcheck(getattr(segments(), name), rows(n_rows))


@pytest.mark.parametrize("n_segments", [0, 3])
def test_no_rows_at_all_are_legal(n_segments: int) -> None:
    empty = Segments.of(np.zeros(0, dtype=np.int64), n_segments)
    assert torch.equal(empty.sum(torch.zeros(0, 2)), torch.zeros(n_segments, 2))
    assert empty.gather(torch.zeros(n_segments, 2)).shape == (0, 2)
    assert empty.softmax(torch.zeros(0, 2)).shape == (0, 2)
