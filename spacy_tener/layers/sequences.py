"""Sequences of different lengths, joined end to end: the index arithmetic that all plans of a batch share.

numpy only: lengths are known on the host, whatever device holds the floats.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from ..types import IntArray

Lengths = Sequence[int] | IntArray | Tensor


def as_lengths(lengths: Lengths, n_tokens: int | None = None) -> IntArray:
    """The lengths as an array, checked; 0 is legal. n_tokens: what they must sum to, if known. *Shape: [n]*"""
    host = lengths.tolist() if isinstance(lengths, Tensor) else lengths
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
