"""A Doc in passages that a page has room for, each with the stretch of the Doc that the model reads it in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..pipeline.settings import NERSettings
from ..pipeline.units import DocView
from ..pipeline.windows import Window, cut_windows
from ..types import BoolArray

LONGEST = 64
"""Most units of a passage, which limits the size of a map of attention. An entity may make it longer."""


@dataclass(frozen=True)
class Stretch:
    """Units `start` to `end` of a Doc, inside of the window that the model reads."""

    start: int
    end: int
    window: Window

    @property
    def within(self) -> slice:
        """The units, counted from the window's start."""
        return slice(self.start - self.window.start, self.end - self.window.start)


def stretches(view: DocView, entities: Sequence[tuple[int, int]], settings: NERSettings) -> list[Stretch]:
    """The passages of a Doc, in order, together all of it.

    entities: Where entities lie, in units. They are not cut, unless they are longer than a window.
    """
    ends = view.sentence_ends()
    for start, end in entities:
        ends[start : end - 1] = False
    windows = cut_windows(len(view), ends, size=settings.window, overlap=settings.overlap) if len(view) else []
    found: list[Stretch] = []
    for window in windows:
        found.extend(_cut(window, found[-1].end if found else 0, ends, entities))
    return found


def _cut(window: Window, start: int, ends: BoolArray, entities: Sequence[tuple[int, int]]) -> Iterator[Stretch]:
    while start < window.core_end:
        end = min(start + LONGEST, window.core_end)
        if end < window.core_end:
            seen = np.flatnonzero(ends[start + LONGEST // 2 : end])
            end = start + LONGEST // 2 + int(seen[-1]) + 1 if seen.size else end
        end = min(next((last for first, last in entities if first < end < last), end), window.end)
        yield Stretch(start, end, window)
        start = end
