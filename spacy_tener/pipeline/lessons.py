"""What a teacher says of a text, and how far a student is from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..layers.crf.crf import CRF, cross_entropy
from ..layers.devices import on_device
from ..tagging import TagLayout
from ..types import IntArray
from .loss import tensor
from .tags import join_masks, possible_tags
from .units import Units
from .windows import Window


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


def teaching_loss(
    student: CRF, teacher: CRF, emissions: Tensor, lessons: Sequence[Lesson], units: Sequence[Units]
) -> Tensor:
    """Cross-entropy of the student's distribution over readings under the teacher's, summed over the texts.

    teacher: its labels are the student's first ones.
    *Shape* emissions: the student's, [N, n_tags], of the units of all texts joined; result: a scalar
    """
    lengths = [len(each.space) for each in units]
    masks = [possible_tags(each, student.layout) for each in units]
    total = torch.zeros(())
    for kind, loss in ((Emissions, _exact), (Paths, _listed)):
        chosen = [i for i, lesson in enumerate(lessons) if isinstance(lesson, kind)]
        if chosen:
            ends = np.cumsum(lengths)
            rows = np.concatenate([np.arange(ends[i] - lengths[i], ends[i]) for i in chosen])
            part = emissions[on_device(rows, emissions.device)]
            sizes = [lengths[i] for i in chosen]
            possible = tensor(join_masks([masks[i] for i in chosen], sizes, student.layout.n_tags))
            total = total + loss(student, teacher, part, [lessons[i] for i in chosen], sizes, possible)
    return total


def _exact(
    student: CRF,
    teacher: CRF,
    emissions: Tensor,
    lessons: Sequence[Lesson],
    lengths: list[int],
    possible: Tensor | None,
) -> Tensor:
    scores = torch.from_numpy(np.concatenate([lesson.scores for lesson in lessons if isinstance(lesson, Emissions)]))
    return cross_entropy(teacher, scores, student, emissions, lengths, possible)


def _listed(
    student: CRF,
    teacher: CRF,
    emissions: Tensor,
    lessons: Sequence[Lesson],
    lengths: list[int],
    possible: Tensor | None,
) -> Tensor:
    """log Z less the mean score of the teacher's readings, by their weights."""
    ends = np.cumsum(lengths)
    paths = [lesson for lesson in lessons if isinstance(lesson, Paths)]
    rows = np.concatenate(
        [np.tile(np.arange(end - n, end), len(each.weights)) for each, n, end in zip(paths, lengths, ends, strict=True)]
    )
    sizes = [n for each, n in zip(paths, lengths, strict=True) for _ in each.weights]
    tags = torch.from_numpy(np.concatenate([each.tags.ravel() for each in paths]))
    weights = torch.from_numpy(np.concatenate([each.weights for each in paths]))
    scores = student.path_score(emissions[on_device(rows, emissions.device)], sizes, tags)
    return student.log_partition(emissions, lengths, possible).sum() - scores @ weights.to(scores)
