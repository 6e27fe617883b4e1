from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_tener.layers.ragged import PAIRS_PER_BUCKET, Ragged

LENGTHS = st.lists(st.one_of(st.integers(0, 12), st.integers(0, 90), st.integers(0, 400)), max_size=40)


def flat(lengths: list[int], heads: int, width: int = 3) -> torch.Tensor:
    """Rows that tell tokens, heads and columns apart."""
    return torch.arange(sum(lengths) * heads * width, dtype=torch.float64).view(-1, width)


def sequences(x: torch.Tensor, lengths: list[int], heads: int) -> list[torch.Tensor]:
    """Each sequence as `[heads, length, width]`, cut out without any index arithmetic."""
    tokens = x.view(sum(lengths), heads, x.shape[1])
    return [part.transpose(0, 1) for part in tokens.split(lengths)]


@settings(max_examples=40, deadline=None)
@given(LENGTHS, st.integers(1, 5))
def test_padding_and_joining_returns_every_row_once_and_in_order(lengths: list[int], heads: int) -> None:
    ragged = Ragged.of(lengths, heads=heads)
    x = flat(lengths, heads)
    if ragged.buckets:
        assert torch.equal(ragged.join(ragged.pad(x)), x)
    assert sorted(s for bucket in ragged.buckets for s in bucket.sequences) == [i for i, n in enumerate(lengths) if n]
    assert ragged.positions.tolist() == [t for n in lengths for t in range(n)]
    assert ragged.longest == max(lengths, default=0)


@settings(max_examples=30, deadline=None)
@given(LENGTHS, st.integers(1, 3))
def test_each_row_of_a_bucket_is_one_sequence_with_its_mask(lengths: list[int], heads: int) -> None:
    ragged = Ragged.of(lengths, heads=heads)
    x = flat(lengths, heads)
    expected = sequences(x, lengths, heads)
    for padded, bucket in zip(ragged.pad(x), ragged.buckets, strict=True):
        assert padded.shape == (len(bucket.sequences), heads, bucket.length, 3)
        for row, sequence in enumerate(bucket.sequences):
            length = lengths[sequence]
            assert torch.equal(padded[row, :, :length], expected[sequence])
            # The filler repeats a real token of the same sequence, so nothing foreign or infinite gets in.
            assert torch.equal(
                padded[row, :, length:], padded[row, :, length - 1 : length].expand_as(padded[row, :, length:])
            )
            mask = torch.zeros(bucket.length) if bucket.key_mask is None else bucket.key_mask[row, 0, 0]
            assert mask.exp().tolist() == [t < length for t in range(bucket.length)]


@settings(max_examples=40, deadline=None)
@given(LENGTHS)
def test_padding_wastes_no_more_than_what_a_bucket_costs(lengths: list[int]) -> None:
    price = PAIRS_PER_BUCKET["cpu"]
    for bucket in Ragged.of(lengths).buckets:
        inside = [lengths[s] for s in bucket.sequences]
        wasted = sum(bucket.length**2 - n**2 for n in inside)
        assert bucket.length == max(inside)
        assert wasted <= price * (1 + math.log(len(inside)))


def test_equal_lengths_need_one_bucket_and_no_mask() -> None:
    ragged = Ragged.of([30] * 20, heads=4)
    assert len(ragged.buckets) == 1
    assert ragged.buckets[0].key_mask is None
    assert ragged.real is None


def test_short_sequences_do_not_pay_for_a_long_one() -> None:
    ragged = Ragged.of([20] * 30 + [1000])
    assert [(len(bucket.sequences), bucket.length) for bucket in ragged.buckets] == [(1, 1000), (30, 20)]


def test_a_difference_of_a_few_tokens_does_not_pay_for_a_bucket() -> None:
    assert len(Ragged.of([20, 19, 18, 20, 17]).buckets) == 1


def test_sequences_without_tokens_are_left_out() -> None:
    ragged = Ragged.of([0, 2, 0, 3, 0])
    assert [bucket.sequences for bucket in ragged.buckets] == [(3, 1)]
    assert Ragged.of([]).buckets == ()
    assert Ragged.of([0, 0]).buckets == ()


@pytest.mark.parametrize("lengths", [np.array([3, 0, 2]), torch.tensor([3, 0, 2]), (3, 0, 2)])
def test_lengths_may_be_any_kind_of_sequence(lengths: object) -> None:
    assert Ragged.of(lengths).lengths == (3, 0, 2)  # type: ignore[arg-type]


def test_negative_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot be negative, got -2"):
        Ragged.of([3, -2])


def test_lengths_of_other_tokens_than_there_are_are_refused() -> None:
    assert Ragged.of([3, 2], n_tokens=5).lengths == (3, 2)
    with pytest.raises(ValueError, match="must sum to the number of tokens: got 5 for 6 tokens"):
        Ragged.of([3, 2], n_tokens=6)


def mean_of_sequence(ragged: Ragged, x: torch.Tensor) -> torch.Tensor:
    """Every row times the mean of its sequence's rows: real rows mix, padding must not."""
    parts = []
    for padded, bucket in zip(ragged.pad(x), ragged.buckets, strict=True):
        keep = 1.0 if bucket.key_mask is None else bucket.key_mask.double().exp().transpose(2, 3)
        count = torch.tensor([ragged.lengths[s] for s in bucket.sequences], dtype=x.dtype).view(-1, 1, 1, 1)
        parts.append(padded * (padded * keep).sum(2, keepdim=True) / count)
    return ragged.join(parts)


@pytest.mark.parametrize("lengths", [[3, 5, 0, 1], [4, 4], [90, 2, 2, 3]])
def test_gradients_of_the_crossing_are_those_of_single_sequences(lengths: list[int]) -> None:
    torch.manual_seed(0)
    ragged = Ragged.of(lengths, heads=2)
    x = torch.randn(sum(lengths) * 2, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(len(x), 3, dtype=torch.float64)
    expected = torch.cat([(s * s.mean(1, keepdim=True)).transpose(0, 1) for s in sequences(x, lengths, 2)]).reshape(
        -1, 3
    )
    (wanted,) = torch.autograd.grad((expected * weight).sum(), x)
    (got,) = torch.autograd.grad((mean_of_sequence(ragged, x) * weight).sum(), x)
    assert torch.allclose(got, wanted, atol=1e-12)


def test_filler_takes_no_gradient() -> None:
    ragged = Ragged.of([4, 1])
    x = torch.ones(5, 2, requires_grad=True)
    torch.stack([part.sum() for part in ragged.pad(x)]).sum().backward()
    assert torch.equal(x.grad, torch.ones(5, 2))
