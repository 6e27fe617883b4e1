"""How far a student is from what its teacher says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ...layers.crf import CRF, cross_entropy
from ...layers.devices import on_device
from ..views.tags import join_masks, possible_tags
from ..views.units import Units
from .lessons import Emissions, Lesson, Paths
from .loss import tensor


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
