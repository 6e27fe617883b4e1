"""Padding of sequences in buckets of similar length, and gather, sum and softmax by segments."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from spacy_tener.nn.ragged_torch import Ragged, Segments

LENGTHS = st.lists(st.one_of(st.integers(0, 12), st.integers(0, 90), st.integers(0, 400)), max_size=40)


def flat(lengths: list[int], heads: int, width: int = 3) -> torch.Tensor:
    """Return rows with a different value for each token, head and column."""
    return torch.arange(sum(lengths) * heads * width, dtype=torch.float64).view(-1, width)


def sequences(x: torch.Tensor, lengths: list[int], heads: int) -> list[torch.Tensor]:
    """Return each sequence as `[heads, length, width]`, split by torch."""
    tokens = x.view(sum(lengths), heads, x.shape[1])
    return [part.transpose(0, 1) for part in tokens.split(lengths)]


@settings(max_examples=40, deadline=None)
@given(LENGTHS, st.integers(1, 5))
def test_pad_and_join_round_trip_keeps_rows_in_order(lengths: list[int], heads: int) -> None:
    ragged = Ragged.of(lengths, heads=heads)
    x = flat(lengths, heads)
    if ragged.buckets:
        assert torch.equal(ragged.join(ragged.pad(x)), x)
    assert sorted(s for bucket in ragged.buckets for s in bucket.sequences) == [i for i, n in enumerate(lengths) if n]
    assert ragged.positions.tolist() == [t for n in lengths for t in range(n)]
    assert ragged.longest == max(lengths, default=0)


@settings(max_examples=30, deadline=None)
@given(LENGTHS, st.integers(1, 3))
def test_padded_buckets_contain_sequences_and_masks(lengths: list[int], heads: int) -> None:
    ragged = Ragged.of(lengths, heads=heads)
    x = flat(lengths, heads)
    expected = sequences(x, lengths, heads)
    for padded, bucket in zip(ragged.pad(x), ragged.buckets, strict=True):
        assert padded.shape == (len(bucket.sequences), heads, bucket.length, 3)
        for row, sequence in enumerate(bucket.sequences):
            length = lengths[sequence]
            assert torch.equal(padded[row, :, :length], expected[sequence])
            # Padding repeats the last token of the same sequence, so that its values are finite.
            assert torch.equal(
                padded[row, :, length:], padded[row, :, length - 1 : length].expand_as(padded[row, :, length:])
            )
            mask = torch.zeros(bucket.length) if bucket.key_mask is None else bucket.key_mask[row, 0, 0]
            assert mask.exp().tolist() == [t < length for t in range(bucket.length)]


def test_equal_lengths_use_single_bucket_without_mask() -> None:
    ragged = Ragged.of([30] * 20, heads=4)
    assert len(ragged.buckets) == 1
    assert ragged.buckets[0].key_mask is None
    assert ragged.mask is None


def test_negative_length_raises_error() -> None:
    with pytest.raises(ValueError, match="cannot be negative, got -2"):
        Ragged.of([3, -2])


INDEX = np.array([2, 0, 2, 5, 2, 0])
N_SEGMENTS = 7


def segments() -> Segments:
    return Segments.of(INDEX, N_SEGMENTS)


def rows(n: int) -> Tensor:
    torch.manual_seed(0)
    return torch.randn(n, 3, dtype=torch.float64, requires_grad=True)


def test_gather_returns_row_of_segment() -> None:
    x = rows(N_SEGMENTS)
    assert torch.equal(segments().gather(x), x[torch.from_numpy(INDEX)])


def test_segment_sum_and_mean_equal_loop_over_segments() -> None:
    x = rows(len(INDEX))
    members = [torch.from_numpy(np.flatnonzero(segment == INDEX)) for segment in range(N_SEGMENTS)]
    expected = torch.stack([x[rows].sum(0) for rows in members])
    assert torch.allclose(segments().sum(x), expected)
    assert not segments().sum(x)[[1, 3, 4, 6]].any()
    means = torch.stack([x[rows].mean(0) if len(rows) else x.new_zeros(3) for rows in members])
    assert torch.allclose(segments().mean(x), means)


def test_segment_softmax_equals_torch_softmax() -> None:
    x = rows(len(INDEX))
    probabilities = segments().softmax(x)
    for segment in np.unique(INDEX):
        members = torch.from_numpy(np.flatnonzero(segment == INDEX))
        assert torch.allclose(probabilities[members], torch.softmax(x[members], dim=0))


def test_segment_softmax_is_stable_for_large_scores() -> None:
    x = torch.tensor([[1e4], [-1e4], [1e4 + 1], [-1e4], [0.0], [-1e4]])
    probabilities = segments().softmax(x)[:, 0]
    assert torch.allclose(probabilities, torch.tensor([0.26894, 0.5, 0.73106, 1.0, 0.0, 0.5]), atol=1e-4)


@pytest.mark.parametrize(("name", "n_rows"), [("gather", N_SEGMENTS), ("sum", len(INDEX)), ("softmax", len(INDEX))])
def test_segment_gradients_pass_gradcheck(name: str, n_rows: int) -> None:
    assert torch.autograd.gradcheck(getattr(segments(), name), rows(n_rows))


@pytest.mark.parametrize("n_segments", [0, 3])
def test_segments_support_empty_input(n_segments: int) -> None:
    empty = Segments.of(np.zeros(0, dtype=np.int64), n_segments)
    assert torch.equal(empty.sum(torch.zeros(0, 2)), torch.zeros(n_segments, 2))
    assert empty.gather(torch.zeros(n_segments, 2)).shape == (0, 2)
    assert empty.softmax(torch.zeros(0, 2)).shape == (0, 2)
