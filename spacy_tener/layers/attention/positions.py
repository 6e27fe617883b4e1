"""Sines and cosines of positions: absolute (eq. 8, 9), and as the turns that make them relative (eq. 17)."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

# Tables up to this length are kept, rounded up to a power of two, so that few of them serve all batches.
LONGEST_KEPT = 8192


def sinusoids(length: int, width: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """`sin(t c_i)` and `cos(t c_i)` for the positions `t < length`, with `c_i = 10000^(-2i / width)`.

    like: the tables get its device and dtype.
    Returns two tables. *Shape: [length, width / 2]*
    """
    if length > LONGEST_KEPT:
        return _angles(length, width, like.dtype, like.device)
    rounded = 1 << max(length - 1, 63).bit_length()
    sin, cos = _kept(rounded, width, like.dtype, like.device)
    return sin[:length], cos[:length]


def interleave(even: Tensor, odd: Tensor) -> Tensor:
    """`[even_0, odd_0, even_1, odd_1, ...]` along the last dimension, the order of eq. 8, 9 and 17."""
    return torch.stack((even, odd), dim=-1).flatten(-2)


def turn(x: Tensor, by: Tensor) -> Tensor:
    """Read the last dimension of `x` as complex numbers, pair after pair, and multiply them.

    x: *Shape: [..., w]*; by: complex, broadcast against it. *Shape: [..., w / 2]*
    """
    return torch.view_as_real(torch.view_as_complex(x.view(*x.shape[:-1], by.shape[-1], 2)) * by).flatten(-2)


@lru_cache(maxsize=32)
def _kept(length: int, width: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    # A table first made under inference_mode must serve training later.
    with torch.inference_mode(False):
        return _angles(length, width, dtype, device)


def _angles(length: int, width: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    # In float32 the angle itself would be off by some 0.004 at position 100,000.
    frequencies = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.outer(torch.arange(length, dtype=torch.float64), frequencies)
    return angles.sin().to(device, dtype), angles.cos().to(device, dtype)
