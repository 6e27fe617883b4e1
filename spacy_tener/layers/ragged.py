"""Sequences of different lengths: from one flat array to a few padded ones, and back.

Everything that treats tokens one by one (linear layers, norms, feed-forward) works on the flat `[N, d]` array of all
tokens of a batch. Only attention needs a rectangle. `Ragged` plans those rectangles once per batch: sequences of
similar length share a bucket, and each way of the crossing is one gather, forwards and backwards.

numpy plans, torch gathers: lengths are known on the host, whatever device holds the floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..types import IntArray

Lengths = Sequence[int] | IntArray | Tensor

# What one more bucket costs, in pairs of tokens: its dozen operations take as long as attention over so many pairs.
PAIRS_PER_BUCKET = {"cpu": 8192, "cuda": 1 << 22}


@dataclass(frozen=True)
class Bucket:
    """One rectangle of sequences.

    sequences: which sequences of the batch are its rows, the longest first. *Shape: n*
    length: its width, the longest sequence's length.
    mask: True at real tokens, or None where nothing is padded. *Shape: [n, length]*
    """

    sequences: tuple[int, ...]
    length: int
    mask: Tensor | None


@dataclass(frozen=True)
class Ragged:
    """A batch of sequences, each token split into `heads` rows, planned into buckets.

    lengths: tokens of each sequence; 0 is legal. *Shape: n_sequences*
    heads: rows per token.
    buckets: the rectangles, longest first; sequences of no token are in none of them.
    positions: each token's position in its sequence. *Shape: [N]*
    to_padded: the flat row that each slot reads; padding reads its sequence's last token. *Shape: [S]*
    to_flat: the slot in which each flat row lies. *Shape: [N * heads]*
    real: 1 at slots of real tokens, 0 at padding, or None where nothing is padded. *Shape: [S, 1]*
    """

    lengths: tuple[int, ...]
    heads: int
    buckets: tuple[Bucket, ...]
    positions: Tensor
    to_padded: Tensor
    to_flat: Tensor
    real: Tensor | None

    @classmethod
    def of(cls, lengths: Lengths, *, heads: int = 1, device: torch.device | str = "cpu") -> Ragged:
        """Plan the buckets for sequences that lie joined in reading order."""
        device = torch.device(device)
        sizes = _checked(lengths)
        order = np.argsort(-sizes, kind="stable")[: np.count_nonzero(sizes)]
        cuts = _plan(sizes[order], PAIRS_PER_BUCKET["cpu" if device.type == "cpu" else "cuda"])
        groups = [order[begin:end] for begin, end in pairwise(cuts)]
        grids = [_Grid.of(group, sizes, heads) for group in groups]
        positions = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        padded = any(not grid.mask.all() for grid in grids)
        return cls(
            lengths=tuple(sizes.tolist()),
            heads=heads,
            buckets=tuple(grid.bucket(device) for grid in grids),
            positions=_tensor(positions, device),
            to_padded=_tensor(_join([grid.rows.ravel() for grid in grids]), device),
            to_flat=_tensor(_slots(grids, sizes, positions, heads), device),
            real=_tensor(_join([grid.real.ravel() for grid in grids])[:, None], device).float() if padded else None,
        )

    @property
    def longest(self) -> int:
        return max(self.lengths, default=0)

    def pad(self, x: Tensor) -> list[Tensor]:
        """Lay flat rows out, one rectangle per bucket; padding holds a finite filler that takes no gradient.

        x: *Shape: [N * heads, w]*. Returns for each bucket *Shape: [n, heads, length, w]*
        """
        slots = _take(x, self.to_padded, self.to_flat, None)
        shapes = [(len(bucket.sequences), self.heads, bucket.length) for bucket in self.buckets]
        parts = torch.split(slots, [n * heads * length for n, heads, length in shapes])
        return [part.view(*shape, x.shape[-1]) for part, shape in zip(parts, shapes, strict=True)]

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """The way back: drop the padding and join the buckets.

        parts: for each bucket *Shape: [n, heads, length, w]*. Returns *Shape: [N * heads, w]*
        """
        rows = [part.reshape(-1, part.shape[-1]) for part in parts]
        slots = rows[0] if len(rows) == 1 else torch.cat(rows)
        return _take(slots, self.to_flat, self.to_padded, self.real)


@dataclass(frozen=True)
class _Grid:
    """A bucket on the host. sequences: *Shape: [n]*; mask: *Shape: [n, L]*; rows, real: *Shape: [n, heads, L]*"""

    sequences: IntArray
    mask: NDArray[np.bool_]
    rows: IntArray
    real: NDArray[np.bool_]

    @classmethod
    def of(cls, sequences: IntArray, sizes: IntArray, heads: int) -> _Grid:
        lengths = sizes[sequences][:, None]
        column = np.arange(lengths[0, 0])
        begins = (np.cumsum(sizes) - sizes)[sequences][:, None]
        tokens = begins + np.minimum(column, lengths - 1)
        mask = column < lengths
        rows = tokens[:, None, :] * heads + np.arange(heads)[:, None]
        return cls(sequences, mask, rows, np.broadcast_to(mask[:, None, :], rows.shape))

    def bucket(self, device: torch.device) -> Bucket:
        mask = None if self.mask.all() else _tensor(self.mask, device)
        return Bucket(tuple(self.sequences.tolist()), self.mask.shape[1], mask)


def _slots(grids: Sequence[_Grid], sizes: IntArray, positions: IntArray, heads: int) -> IntArray:
    """The slot of each flat row: within a sequence the slots go head after head, within a head token after token."""
    begins = np.zeros_like(sizes)
    widths = np.zeros_like(sizes)
    used = 0
    for grid in grids:
        n, length = grid.mask.shape
        begins[grid.sequences] = used + np.arange(n) * heads * length
        widths[grid.sequences] = length
        used += n * heads * length
    token = np.repeat(begins, sizes) + positions
    slots: IntArray = (token[:, None] + np.arange(heads) * np.repeat(widths, sizes)[:, None]).ravel()
    return slots


def _plan(lengths: IntArray, price: int) -> list[int]:
    """Where to cut sequences, sorted longest first, into buckets.

    A bucket is cut in two, where that saves most, as long as it saves more pairs than a bucket costs. So no cut of a
    finished bucket saves more than `price`, and its padding wastes at most `price * (1 + ln n)` pairs.
    """
    cuts = {0, len(lengths)}
    todo = [(0, len(lengths))] if len(lengths) else []
    while todo:
        begin, end = todo.pop()
        squares = lengths[begin:end] ** 2
        saved = (squares[0] - squares) * np.arange(end - begin, 0, -1)
        best = int(saved.argmax())
        if saved[best] > price:
            cuts.add(begin + best)
            todo += [(begin, begin + best), (begin + best, end)]
    return sorted(cuts)


def _checked(lengths: Lengths) -> IntArray:
    host = lengths.tolist() if isinstance(lengths, Tensor) else lengths
    sizes = np.asarray(host, dtype=np.int64).reshape(-1)
    if sizes.size and sizes.min() < 0:
        raise ValueError(f"lengths of sequences cannot be negative, got {sizes.min()}")
    return sizes


def _join(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def _tensor(array: NDArray[Any], device: torch.device) -> Tensor:
    return torch.from_numpy(array).to(device, non_blocking=True)


def _take(x: Tensor, index: Tensor, inverse: Tensor, real: Tensor | None) -> Tensor:
    taken: Tensor = _Take.apply(x, index, inverse, real)  # type: ignore[no-untyped-call]
    return taken


class _Take(torch.autograd.Function):
    """Rows by index, where `inverse` finds each row again: so the gradient is a gather as well, never a scatter.

    Rows that no index reads, where `real` is 0, get no gradient.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor, inverse: Tensor, real: Tensor | None) -> Tensor:
        ctx.inverse = inverse
        ctx.real = real
        return x.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        gradient = gradients[0].index_select(0, ctx.inverse)
        return (gradient if ctx.real is None else gradient.mul_(ctx.real)), None, None, None
