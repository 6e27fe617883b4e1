from __future__ import annotations

import itertools
import math

import pytest
import torch
from paper_forms import assert_same, reference_attention
from torch import Tensor

from spacy_tener.layers.attention import AdaptedAttention, RelativePositions
from spacy_tener.layers.ragged import Ragged

LENGTHS = [7, 1, 0, 40, 12]
OPTIONS = [
    {"scaled": scaled, "key_projection": projection}
    for scaled, projection in itertools.product([False, True], repeat=2)
]


def make(width: int = 24, n_heads: int = 3, dropout: float = 0.0, **options: bool) -> AdaptedAttention:
    torch.manual_seed(0)
    return AdaptedAttention(width=width, n_heads=n_heads, dropout=dropout, **options).double()


def context(module: AdaptedAttention, lengths: list[int], x: Tensor) -> tuple[Ragged, RelativePositions]:
    ragged = Ragged.of(lengths, heads=module.n_heads)
    return ragged, RelativePositions.of(ragged, x.shape[1] // module.n_heads, x)


def reference(module: AdaptedAttention, x: Tensor, lengths: list[int]) -> Tensor:
    return torch.cat([reference_attention(module, sequence) for sequence in x.split(lengths)])


@pytest.mark.parametrize("options", OPTIONS)
def test_the_fast_form_and_its_gradients_equal_the_papers_form(options: dict[str, bool]) -> None:
    module = make(**options)
    x = torch.randn(sum(LENGTHS), 24, dtype=torch.float64, requires_grad=True)
    got = module(x, *context(module, LENGTHS, x))
    assert_same(got, reference(module, x, LENGTHS), [x, *module.parameters()])


def test_scores_are_those_of_equation_18_by_hand() -> None:
    """One head of width 2 whose projections are the identity, so that every term can be written out."""
    module = make(width=2, n_heads=1)
    with torch.no_grad():
        module.query.weight.copy_(torch.eye(2))
        module.u.copy_(torch.tensor([[0.3, -0.2]], dtype=torch.float64))
        module.v.copy_(torch.tensor([[-0.5, 0.7]], dtype=torch.float64))
    x = torch.tensor([[1.0, 0.5], [-0.4, 0.2], [0.3, 0.9]], dtype=torch.float64)
    heads = module.heads(x, context(module, [3], x)[1])
    got = heads.q[:, 0] @ heads.k[:, 0].T + heads.q_position[:, 0] @ heads.table[:3].T
    for t in range(3):
        scores = []
        for j in range(3):
            q, k, r = x[t].tolist(), x[j].tolist(), (math.sin(t - j), math.cos(t - j))
            content = (q[0] + 0.3) * k[0] + (q[1] - 0.2) * k[1]
            scores.append(content + (q[0] - 0.5) * r[0] + (q[1] + 0.7) * r[1])
        assert got[t].tolist() == pytest.approx(scores, abs=1e-12)


def test_keys_are_the_input_itself_by_default() -> None:
    module = make()
    x = torch.randn(4, 24, dtype=torch.float64)
    assert torch.equal(module.project(x)[1], x.view(4, 3, 8))
    assert sum(p.numel() for p in module.parameters()) == 2 * 24 * 24 + 2 * 24


def test_a_key_projection_is_one_more_matrix_without_bias() -> None:
    module = make(key_projection=True)
    x = torch.randn(4, 24, dtype=torch.float64)
    assert torch.allclose(module.project(x)[1].flatten(1), x @ module.key.weight.T)
    assert sum(p.numel() for p in module.parameters()) == 3 * 24 * 24 + 2 * 24


def test_u_and_v_start_xavier_normal() -> None:
    torch.manual_seed(0)
    module = AdaptedAttention(width=512, n_heads=8)
    deviation = (2.0 / (8 + 64)) ** 0.5
    for parameter in (module.u, module.v):
        assert parameter.std().item() == pytest.approx(deviation, rel=0.15)
    assert not torch.equal(module.u, module.v)
