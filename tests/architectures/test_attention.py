"""Test the attention of TENER and of a vanilla transformer, for batches of sequences and for chunks of queries."""

from __future__ import annotations

import itertools
import math
import sys
from typing import Any

import pytest
import torch
from paper_equations import assert_same, assert_slopes, reference_attention
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from spacy_tener.architectures.tener.tener_torch import (
    AdaptedAttention,
    RelativePositions,
    VanillaAttention,
    multiply_pairs,
)
from spacy_tener.nn import attention_torch as attention
from spacy_tener.nn.attention_torch import Heads, attend, interleave, sinusoids
from spacy_tener.nn.ragged_torch import Ragged

LENGTHS = [5, 0, 1, 60, 7, 3]


def random_heads(lengths: list[int], *, n_heads: int = 3, q_position: bool = True) -> Heads:
    torch.manual_seed(0)
    n = sum(lengths)
    sizes = [(n, n_heads, 4), (n, n_heads, 4), (n, n_heads, 5)]
    sizes += [(n, n_heads, 6), (max(lengths), 6)] if q_position else []
    return Heads(*(torch.randn(*size, dtype=torch.float64, requires_grad=True) for size in sizes))


def inputs(heads: Heads) -> list[Tensor]:
    return [x for x in (heads.q, heads.k, heads.v, heads.q_position) if x is not None]


def attend_separately(heads: Heads, lengths: list[int]) -> tuple[Tensor, list[Tensor]]:
    """Compute attention sequence by sequence and head by head.

    RETURNS: The output with the shape (units, heads * head width), and the attention maps of the sequences.
    """
    mixed, maps, start = [], [], 0
    for length in lengths:
        rows = slice(start, start + length)
        scores = torch.stack([heads.q[rows, h] @ heads.k[rows, h].T for h in range(heads.q.shape[1])])
        if heads.q_position is not None and heads.table is not None:
            position_scores = [heads.q_position[rows, h] @ heads.table[:length].T for h in range(heads.q.shape[1])]
            scores = scores + torch.stack(position_scores)
        maps.append(torch.softmax(scores, dim=-1))
        mixed.append(torch.cat([weights @ heads.v[rows, h] for h, weights in enumerate(maps[-1])], dim=-1))
        start += length
    return torch.cat(mixed), maps


@pytest.fixture
def chunked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute the attention of sequences longer than 4 in chunks of 32 queries."""
    monkeypatch.setattr(attention, "MAX_UNCHUNKED_LENGTH", 4)
    monkeypatch.setattr(attention, "SCORES_PER_CHUNK", 1)


@pytest.mark.parametrize("max_unchunked_length", [4, attention.MAX_UNCHUNKED_LENGTH])
@pytest.mark.parametrize("q_position", [True, False])
def test_batched_and_chunked_attention_equal_single_sequences(
    q_position: bool, max_unchunked_length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "MAX_UNCHUNKED_LENGTH", max_unchunked_length)
    monkeypatch.setattr(attention, "SCORES_PER_CHUNK", 1)
    heads = random_heads(LENGTHS, q_position=q_position)
    assert_same(
        attend(heads, Ragged.of(LENGTHS, heads=3), 0.0),
        attend_separately(heads, LENGTHS)[0],
        inputs(heads),
        within=1e-11,
    )


def test_checkpointing_finds_all_tensors_of_heads() -> None:
    heads = random_heads([4])
    assert [id(leaf) for leaf in tree_leaves(heads) if leaf is not None] == [*map(id, (*inputs(heads), heads.table))]


@pytest.mark.usefixtures("chunked")
def test_chunked_backward_pass_repeats_dropout_mask() -> None:
    ragged = Ragged.of([40], heads=1)
    heads = random_heads([40], n_heads=1)

    def seeded(*parts: Tensor) -> Tensor:
        torch.manual_seed(3)
        return attend(Heads(*parts, heads.table), ragged, 0.4)[:, 0]

    # The numerical gradients use the same dropout mask.
    assert_slopes(seeded, *inputs(heads))


@pytest.mark.usefixtures("chunked")
def test_chunked_backward_pass_restores_rng_state() -> None:
    heads = random_heads([40], n_heads=1)
    mixed = attend(heads, Ragged.of([40], heads=1), 0.4)
    before = torch.get_rng_state()
    mixed.sum().backward()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.usefixtures("chunked")
def test_chunked_attention_does_not_import_torch_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch._dynamo", None)
    heads = random_heads([40])
    got = attend(heads, Ragged.of([40], heads=3), 0.0)
    got.sum().backward()
    assert torch.allclose(got, attend_separately(heads, [40])[0], atol=1e-12)


def test_attention_dropout_keeps_mean_weight() -> None:
    lengths = [50] * 40
    heads = random_heads(lengths)
    ones = Heads(heads.q, heads.k, torch.ones_like(heads.v))
    mixed = attend(ones, Ragged.of(lengths, heads=3), 0.3)
    assert mixed.std() > 0.05
    assert mixed.mean().item() == pytest.approx(1.0, abs=0.03)
    # All columns of a head have the same attention map.
    assert torch.allclose(mixed.view(-1, 3, 5), mixed.view(-1, 3, 5)[..., :1].expand(-1, -1, 5))


class LargestResult(TorchDispatchMode):
    """Record the size of the largest tensor that any operation returns."""

    numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for x in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(x, Tensor):
                self.numel = max(self.numel, x.numel())
        return result


def test_chunked_attention_allocates_no_quadratic_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "SCORES_PER_CHUNK", 1 << 14)
    length = 640
    heads = random_heads([length], n_heads=1)
    with LargestResult() as chunked:
        attend(heads, Ragged.of([length], heads=1), 0.2).sum().backward()
    assert chunked.numel <= 32 * length
    monkeypatch.setattr(attention, "MAX_UNCHUNKED_LENGTH", length)
    with LargestResult() as unchunked:
        attend(heads, Ragged.of([length], heads=1), 0.2)
    assert unchunked.numel == length**2


@pytest.mark.parametrize("scaled", [True, False])
def test_vanilla_attention_equals_torch_multi_head_attention(scaled: bool) -> None:
    torch.manual_seed(0)
    vanilla = VanillaAttention(width=12, n_heads=3, scaled=scaled).double()
    multi_head = torch.nn.MultiheadAttention(12, 3, batch_first=True, dtype=torch.float64)
    parts = (vanilla.query, vanilla.key, vanilla.value)
    with torch.no_grad():
        multi_head.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
        multi_head.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
        multi_head.out_proj.weight.copy_(vanilla.out.weight)
        multi_head.out_proj.bias.copy_(vanilla.out.bias)
        if not scaled:
            multi_head.in_proj_weight[:12] *= 2.0  # The scale of torch is 1 / sqrt(4).
            multi_head.in_proj_bias[:12] *= 2.0
    lengths = [4, 9, 1]
    x = torch.randn(14, 12, dtype=torch.float64)
    ragged = Ragged.of(lengths, heads=3)
    got = vanilla(x, ragged).split(lengths)
    for sequence, mixed in zip(x.split(lengths), got, strict=True):
        expected, _ = multi_head(*[sequence[None]] * 3)
        assert torch.allclose(mixed, expected[0], atol=1e-12)


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
def test_adapted_attention_and_gradients_equal_paper_equations(options: dict[str, bool]) -> None:
    module = make(**options)
    x = torch.randn(sum(LENGTHS), 24, dtype=torch.float64, requires_grad=True)
    got = module(x, *context(module, LENGTHS, x))
    assert_same(got, reference(module, x, LENGTHS), [x, *module.parameters()])


def test_attention_scores_equal_equation_18() -> None:
    """Use one head of width 2 whose projections are the identity, so that every term can be written out."""
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


def test_u_and_v_have_xavier_normal_initialization() -> None:
    torch.manual_seed(0)
    module = AdaptedAttention(width=512, n_heads=8)
    deviation = (2.0 / (8 + 64)) ** 0.5
    for parameter in (module.u, module.v):
        assert parameter.std().item() == pytest.approx(deviation, rel=0.15)
    assert not torch.equal(module.u, module.v)


DOUBLE = torch.zeros(0, dtype=torch.float64)


def test_sinusoid_table_equals_paper_equation() -> None:
    table = interleave(*sinusoids(7, 6, DOUBLE))
    for t in range(7):
        for i in range(3):
            angle = t / 10000 ** (2 * i / 6)
            pair = [math.sin(angle), math.cos(angle)]
            assert table[t, 2 * i : 2 * i + 2].tolist() == pytest.approx(pair, abs=1e-15)


def test_sinusoids_of_far_positions_are_exact_in_float32() -> None:
    table = interleave(*sinusoids(100_001, 4, torch.zeros(0)))
    assert table[100_000, 0].item() == pytest.approx(math.sin(100_000.0), abs=1e-7)
    assert table[99_999, 2].item() == pytest.approx(math.sin(99_999.0 / 100.0), abs=1e-7)


def test_query_factors_and_key_table_give_relative_positions() -> None:
    torch.manual_seed(0)
    width, length = 8, 9
    relative = RelativePositions.of(Ragged.of([length]), width, DOUBLE)
    s = torch.randn(length, width, dtype=torch.float64)
    fast = multiply_pairs(s, relative.query_factors[:, 0]) @ relative.key_table.T
    for t in range(length):
        for j in range(length):
            angles = [(t - j) / 10000 ** (2 * i / width) for i in range(width // 2)]
            r = torch.tensor([f(a) for a in angles for f in (math.sin, math.cos)], dtype=torch.float64)
            assert fast[t, j].item() == pytest.approx((s[t] @ r).item(), abs=1e-12)
