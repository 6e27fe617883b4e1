"""Sequences of different lengths, joined end to end: the index arithmetic that everything in this room shares.

numpy only: lengths are known on the host, whatever device holds the floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ..types import IntArray


class ArrayLike(Protocol):
    """An array of whatever library."""

    def __len__(self) -> int: ...

    def tolist(self) -> list[int]: ...


Lengths = Sequence[int] | IntArray | ArrayLike


def as_lengths(lengths: Lengths, n_tokens: int | None = None) -> IntArray:
    """The lengths as an array, checked; 0 is legal. n_tokens: what they must sum to, if known. *Shape: [n]*"""
    host = lengths if isinstance(lengths, Sequence | np.ndarray) else lengths.tolist()
    array = np.asarray(host, dtype=np.int64).reshape(-1)
    if array.size and array.min() < 0:
        raise ValueError(f"lengths of sequences cannot be negative, got {array.min()}")
    if n_tokens is not None and array.sum() != n_tokens:
        raise ValueError(f"lengths must sum to the number of tokens: got {array.sum()} for {n_tokens} tokens")
    return array


def starts(lengths: IntArray) -> IntArray:
    """Where each sequence begins. *Shape: [n]*"""
    begins: IntArray = np.cumsum(lengths) - lengths
    return begins


def ranges(begins: IntArray, lengths: IntArray) -> IntArray:
    """`begin, begin + 1, .., begin + length - 1` for each sequence, joined. *Shape: [N]*"""
    numbers: IntArray = np.arange(lengths.sum()) + np.repeat(begins - starts(lengths), lengths)
    return numbers


def bucket_cuts(lengths: IntArray, price: int) -> list[int]:
    """Where to cut sequences, sorted longest first, into buckets. price: of a bucket, in pairs of tokens."""
    return cuts_by_cost(lengths**2, price)


def cuts_by_cost(costs: IntArray, price: int) -> list[int]:
    """The same by what each sequence costs, sorted from the most; price: of a bucket.

    A bucket is cut in two, where that saves most, as long as it saves more than a bucket costs. So no cut of a
    finished bucket saves more than `price`, and its padding wastes at most `price * (1 + ln n)`.
    """
    cuts = {0, len(costs)}
    todo = [(0, len(costs))] if len(costs) else []
    while todo:
        begin, end = todo.pop()
        own = costs[begin:end]
        saved = (own[0] - own) * np.arange(end - begin, 0, -1)
        best = int(saved.argmax())
        if saved[best] > price:
            cuts.add(begin + best)
            todo += [(begin, begin + best), (begin + best, end)]
    return sorted(cuts)
