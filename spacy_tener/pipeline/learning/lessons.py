"""What a teacher says of a text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...tagging import TagLayout
from ...types import IntArray
from ..views.windows import Window


@dataclass(frozen=True)
class Emissions:
    """The teacher's emissions of the student's own units. *Shape* [n, n_tags of the teacher]"""

    scores: NDArray[np.float32]

    @property
    def nbytes(self) -> int:
        return self.scores.nbytes

    def within(self, window: Window) -> Emissions:
        return Emissions(self.scores[window.start : window.end])


@dataclass(frozen=True)
class Paths:
    """The teacher's best readings as tags of the student's units, where the two have other units.

    *Shape* tags: [k, n]; weights: [k], their probabilities, of sum 1
    """

    tags: IntArray
    weights: NDArray[np.float64]
    layout: TagLayout

    @property
    def nbytes(self) -> int:
        return self.tags.nbytes + self.weights.nbytes

    def within(self, window: Window) -> Paths:
        """Of an entity that is cut by the window's edge, what is inside."""
        start, end = window.start, window.end
        rows = []
        for path in self.tags:
            first, last, label = self.layout.decode(path)
            inside = (last > start) & (first < end)
            edges = np.clip(first[inside], start, end) - start, np.clip(last[inside], start, end) - start
            rows.append(self.layout.encode(*edges, label[inside], end - start))
        return Paths(np.array(rows), self.weights, self.layout)


Lesson = Emissions | Paths
