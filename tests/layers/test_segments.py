from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from spacy_tener.layers.segments import Segments

INDEX = np.array([2, 0, 2, 5, 2, 0])
N_GROUPS = 7


def groups() -> Segments:
    return Segments.of(INDEX, N_GROUPS)


def rows(n: int) -> Tensor:
    torch.manual_seed(0)
    return torch.randn(n, 3, dtype=torch.float64, requires_grad=True)


def test_each_row_gets_what_its_group_has() -> None:
    x = rows(N_GROUPS)
    assert torch.equal(groups().spread(x), x[torch.from_numpy(INDEX)])


def test_the_rows_of_each_group_are_added_up_and_empty_groups_are_zero() -> None:
    x = rows(len(INDEX))
    expected = torch.stack([x[torch.from_numpy(np.flatnonzero(group == INDEX))].sum(0) for group in range(N_GROUPS)])
    assert torch.allclose(groups().total(x), expected)
    assert not groups().total(x)[[1, 3, 4, 6]].any()


def test_shares_are_the_softmax_within_each_group() -> None:
    x = rows(len(INDEX))
    shares = groups().softmax(x)
    for group in np.unique(INDEX):
        own = torch.from_numpy(np.flatnonzero(group == INDEX))
        assert torch.allclose(shares[own], torch.softmax(x[own], dim=0))


def test_shares_of_huge_scores_are_numbers() -> None:
    x = torch.tensor([[1e4], [-1e4], [1e4 + 1], [-1e4], [0.0], [-1e4]])
    shares = groups().softmax(x)[:, 0]
    assert torch.allclose(shares, torch.tensor([0.26894, 0.5, 0.73106, 1.0, 0.0, 0.5]), atol=1e-4)


@pytest.mark.parametrize(("name", "n_rows"), [("spread", N_GROUPS), ("total", len(INDEX)), ("softmax", len(INDEX))])
def test_gradients_are_right(name: str, n_rows: int) -> None:
    assert torch.autograd.gradcheck(getattr(groups(), name), rows(n_rows))


@pytest.mark.parametrize("n_groups", [0, 3])
def test_no_rows_at_all_are_legal(n_groups: int) -> None:
    empty = Segments.of(np.zeros(0, dtype=np.int64), n_groups)
    assert torch.equal(empty.total(torch.zeros(0, 2)), torch.zeros(n_groups, 2))
    assert empty.spread(torch.zeros(n_groups, 2)).shape == (0, 2)
    assert empty.softmax(torch.zeros(0, 2)).shape == (0, 2)
