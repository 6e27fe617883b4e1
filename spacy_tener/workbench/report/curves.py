"""How training went: the scores on dev over steps or epochs, of one run and of several seeds together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import RemedyError, check_choice
from .groups import SeedGroup
from .runs import LOG, Run
from .scores import METRICS
from .statistics import Summary, summarize

AXES = {"step": "Training steps", "epoch": "Epochs"}
_REMEDY = (
    'Train with [training.logger] @loggers = "spacy.ConsoleLogger.v3" and output_file = the run\'s training.jsonl, '
    "and remove an older training.jsonl first: that logger does not write over it."
)


@dataclass(frozen=True)
class Curve:
    """One system's scores on dev, in percent.

    mean: Over all seeds, by the step (or epoch) at which all were evaluated.
    tails: What each seed that trained longer did from there on.
    """

    mean: Mapping[int, Summary]
    tails: tuple[Mapping[int, float], ...]


def curve(group: SeedGroup, *, x: str, metric: str) -> Curve:
    """The curve of a group's seeds. It ends where the first of them stopped: a mean over fewer seeds would jump."""
    each = [read_log(run, x=x, metric=metric) for run in group.runs]
    common = sorted(set.intersection(*(set(points) for points in each)))
    if not common:
        names = ", ".join(run.name for run in group.runs)
        raise RemedyError(f"No {x} at which all of these were evaluated: {names}", "Evaluate them equally often.")
    tails = [{at: score for at, score in points.items() if at >= common[-1]} for points in each]
    mean = {at: summarize([points[at] for points in each]) for at in common}
    return Curve(mean, tuple(tail for tail in tails if len(tail) > 1))


def has_log(run: Run) -> bool:
    return (run.folder / LOG).is_file()


def read_log(run: Run, *, x: str, metric: str) -> dict[int, float]:
    """The scores of a run's log, in percent. Of several evaluations in an epoch the last one counts."""
    check_choice("axis", x, AXES)
    path = run.folder / LOG
    if not has_log(run):
        raise RemedyError(f"{run.folder}: there is no {LOG}", _REMEDY)
    points: dict[int, float] = {}
    for number, line in enumerate(path.read_text(encoding="utf8").splitlines(), start=1):
        if line.strip():
            try:
                point = json.loads(line)
                points[int(point[x])] = _score(point, metric)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                what = f"there is no {error}" if isinstance(error, KeyError) else f"not a line of that log: {error}"
                raise RemedyError(f"{path}:{number}: {what}", _REMEDY) from error
    if not points:
        raise RemedyError(f"{path}: nothing is logged there", _REMEDY)
    return points


def _score(point: Mapping[str, Any], metric: str) -> float:
    """spaCy's logger writes the scores in percent; one that writes only the final score wrote F1, as a fraction."""
    scores = point.get("scores") or {}
    if metric == "f" and not scores and point.get("score") is not None:
        return 100 * float(point["score"])
    name = f"ents_{metric}"
    if scores.get(name) is None:
        raise KeyError(f"{METRICS[metric]} ({name}): name it in training.score_weights")
    return float(scores[name])
