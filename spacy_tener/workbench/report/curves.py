"""How training went: the scores on dev over steps or epochs, of one run and of several seeds together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .errors import ReportError
from .groups import Group
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

    x: Where all seeds were evaluated.
    scores: The scores of all seeds there.
    tails: What each seed that trained longer did from there on, as x -> score.
    """

    x: tuple[int, ...]
    scores: tuple[Summary, ...]
    tails: tuple[Mapping[int, float], ...]


def curve(group: Group, *, x: str, metric: str) -> Curve:
    """The curve of a group's seeds. It ends where the first of them stopped: a mean over fewer seeds would jump."""
    each = [read_log(run, x=x, metric=metric) for run in group.runs]
    common = sorted(set.intersection(*(set(points) for points in each)))
    if not common:
        names = ", ".join(run.name for run in group.runs)
        raise ReportError(f"No {x} at which all of these were evaluated: {names}", "Evaluate them equally often.")
    tails = [{at: score for at, score in points.items() if at >= common[-1]} for points in each]
    return Curve(
        x=tuple(common),
        scores=tuple(summarize([points[at] for points in each]) for at in common),
        tails=tuple(tail for tail in tails if len(tail) > 1),
    )


def has_log(run: Run) -> bool:
    return (run.folder / LOG).is_file()


def read_log(run: Run, *, x: str, metric: str) -> dict[int, float]:
    """The scores of a run's log, in percent. Of several evaluations in an epoch the last one counts."""
    if x not in AXES:
        raise ReportError(f"Unknown axis '{x}'", f"Use one of: {', '.join(AXES)}.")
    path = run.folder / LOG
    if not has_log(run):
        raise ReportError(f"{run.folder}: there is no {LOG}", _REMEDY)
    points: dict[int, float] = {}
    for number, line in enumerate(path.read_text(encoding="utf8").splitlines(), start=1):
        if line.strip():
            point = _parse(line, f"{path}:{number}")
            points[_number(point, x, f"{path}:{number}")] = _score(point, metric, f"{path}:{number}")
    if not points:
        raise ReportError(f"{path}: nothing is logged there", _REMEDY)
    return points


def _parse(line: str, place: str) -> Mapping[str, Any]:
    try:
        point = json.loads(line)
    except json.JSONDecodeError as error:
        raise ReportError(f"{place}: broken JSON: {error}", _REMEDY) from error
    if not isinstance(point, dict):
        raise ReportError(f"{place}: expected a JSON object", _REMEDY)
    return point


def _number(point: Mapping[str, Any], name: str, place: str) -> int:
    if not isinstance(point.get(name), int):
        raise ReportError(f"{place}: there is no {name}", _REMEDY)
    return int(point[name])


def _score(point: Mapping[str, Any], metric: str, place: str) -> float:
    """spaCy's logger writes the scores in percent; one that writes only the final score wrote F1, as a fraction."""
    score = (point.get("scores") or {}).get(f"ents_{metric}")
    if score is not None:
        return float(score)
    if metric == "f" and not point.get("scores") and point.get("score") is not None:
        return 100 * float(point["score"])
    raise ReportError(f"{place}: there is no {METRICS[metric]} (ents_{metric})", "Name it in training.score_weights.")
