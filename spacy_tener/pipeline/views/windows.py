"""Overlapping windows over long documents, and batches of limited size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Window:
    """Units from `start` to `end` are the input; the emissions from `core_start` to `core_end` are used.

    The cores of a document's windows cover it without gap or overlap. The units around a core are its context.
    """

    start: int
    end: int
    core_start: int
    core_end: int

    def __len__(self) -> int:
        return self.end - self.start

    @property
    def core(self) -> slice:
        """The core, counted from the window's start."""
        return slice(self.core_start - self.start, self.core_end - self.start)


def cut_windows(length: int, ends: NDArray[np.bool_], *, size: int, overlap: int) -> list[Window]:
    """Windows of at most `size` units with `overlap` units of context on each side, fewer at the document's ends.

    A core ends behind the last sentence end of its second half; where there is none, it is as long as it may be.

    ends: which units are sentence ends. *Shape* [length]
    """
    windows = []
    start = 0
    while start < length:
        context_start = max(0, start - overlap)
        if length - context_start <= size:
            end = length
        else:
            longest = context_start + size - overlap
            middle = (start + longest) // 2
            seen = np.flatnonzero(ends[middle:longest])
            end = middle + int(seen[-1]) + 1 if seen.size else longest
        windows.append(Window(context_start, min(length, end + overlap), start, end))
        start = end
    return windows


class Sized(Protocol):
    def __len__(self) -> int: ...


SizedT = TypeVar("SizedT", bound=Sized)


def batch_by_size(items: Iterable[SizedT], limit: int) -> Iterator[list[SizedT]]:
    """Batches whose items together hold at most `limit` units; a larger item is a batch of its own."""
    batch: list[SizedT] = []
    held = 0
    for item in items:
        if batch and held + len(item) > limit:
            yield batch
            batch, held = [], 0
        batch.append(item)
        held += len(item)
    if batch:
        yield batch
