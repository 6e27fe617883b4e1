"""Padding: which sequences of a batch share a length, and which row each slot of them holds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..types import BoolArray, IntArray
from .sequences import starts


def plan_buckets(costs: IntArray, *, price: int, most: int | None = None) -> list[IntArray]:
    """Sort sequences into buckets, in which each is padded to the costliest.

    A bucket is cut in two where that saves most padding, as long as it saves more than `price`. So no cut of a
    finished bucket saves more than `price`, and its padding wastes at most `price * (1 + ln n)`.

    costs (IntArray): Cost of each sequence; those that cost nothing are in no bucket. *Shape:* (sequences,)
    price (int): Cost of one more bucket.
    most (Optional[int]): Maximum cost of a bucket of more than one sequence.
    RETURNS (List[IntArray]): The sequences of each bucket, the costliest first.
    """
    order = np.argsort(-costs, kind="stable")[: np.count_nonzero(costs)]
    buckets = []
    unfinished = [order] if len(order) else []
    while unfinished:
        bucket = unfinished.pop()
        savings = (costs[bucket[0]] - costs[bucket]) * np.arange(len(bucket), 0, -1)
        cut = int(savings.argmax())
        if savings[cut] > price:
            unfinished += [bucket[cut:], bucket[:cut]]
        else:
            size = len(bucket) if most is None else max(1, most // int(costs[bucket[0]]))
            buckets += [bucket[first : first + size] for first in range(0, len(bucket), size)]
    return buckets


def pad_rows(begins: IntArray, lengths: IntArray) -> tuple[IntArray, BoolArray]:
    """Return the row that each slot of padded sequences holds, and whether the slot is no padding.

    Padding holds the last row of its sequence.

    begins (IntArray): First row of each sequence. *Shape:* (sequences,)
    lengths (IntArray): Rows of each sequence, at least one. *Shape:* (sequences,)
    RETURNS (Tuple[IntArray, BoolArray]): *Shape:* (sequences, longest) each
    """
    slots = np.arange(lengths.max(initial=0))
    last = lengths[:, None] - 1
    return begins[:, None] + np.minimum(slots, last), slots <= last


def pad_arrays(arrays: Sequence[IntArray]) -> tuple[IntArray, BoolArray]:
    """Return arrays as rows of one, padded with the last number of each, and whether a slot is no padding.

    RETURNS (Tuple[IntArray, BoolArray]): *Shape:* (arrays, longest) each
    """
    lengths = np.array([len(array) for array in arrays])
    rows, is_real = pad_rows(starts(lengths), lengths)
    return np.concatenate(arrays)[rows], is_real
