"""Bucketing of sequences by cost, and padding with the last row of a sequence."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_tener.sequences import pad_arrays, pad_rows, plan_buckets, starts

COSTS = st.lists(st.one_of(st.integers(0, 12), st.integers(0, 400)), max_size=20)
LENGTHS = st.lists(st.integers(1, 12), min_size=1, max_size=8)


def cut_naively(costs: list[int], bucket_cost: int) -> list[list[int]]:
    """Split descending costs where it saves the most padding, until no split saves more than `bucket_cost`."""

    def padded(bucket: list[int]) -> int:
        return len(bucket) * max(bucket)

    cuts = [(padded(costs) - padded(costs[:i]) - padded(costs[i:]), -i) for i in range(1, len(costs))]
    saved, cut = max(cuts, default=(0, 0))
    if saved <= bucket_cost:
        return [costs]
    return cut_naively(costs[:-cut], bucket_cost) + cut_naively(costs[-cut:], bucket_cost)


@settings(max_examples=100)
@given(COSTS, st.integers(0, 200))
def test_buckets_match_naive_implementation(costs: list[int], bucket_cost: int) -> None:
    buckets = plan_buckets(np.array(costs, np.int64), bucket_cost=bucket_cost)
    assert sorted(i for bucket in buckets for i in bucket) == [i for i, cost in enumerate(costs) if cost]
    ordered = sorted((cost for cost in costs if cost), reverse=True)
    assert [[costs[i] for i in bucket] for bucket in buckets] == (cut_naively(ordered, bucket_cost) if ordered else [])
    for bucket in buckets:
        wasted = sum(costs[bucket[0]] - costs[i] for i in bucket)
        assert wasted <= bucket_cost * (1 + math.log(len(bucket)))


@settings(max_examples=50)
@given(COSTS, st.integers(1, 1000))
def test_bucket_of_several_sequences_respects_maximum_cost(costs: list[int], max_cost: int) -> None:
    buckets = plan_buckets(np.array(costs, np.int64), bucket_cost=1 << 30, max_cost=max_cost)
    assert sum(map(len, buckets)) == sum(cost > 0 for cost in costs)
    assert all(len(bucket) == 1 or len(bucket) * costs[bucket[0]] <= max_cost for bucket in buckets)


@settings(max_examples=50)
@given(LENGTHS)
def test_padding_repeats_last_row_of_sequence(lengths: list[int]) -> None:
    rows, is_real = pad_rows(starts(np.array(lengths)), np.array(lengths))
    longest = max(lengths)
    expected, begin = [], 0
    for length in lengths:
        expected.append([begin + min(i, length - 1) for i in range(longest)])
        begin += length
    assert rows.tolist() == expected
    assert is_real.tolist() == [[i < length for i in range(longest)] for length in lengths]


def test_arrays_are_padded_with_last_value() -> None:
    padded, is_real = pad_arrays([np.array([5, 7]), np.array([2])])
    assert padded.tolist() == [[5, 7], [2, 2]]
    assert is_real.tolist() == [[True, True], [True, False]]
