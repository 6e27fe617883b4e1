"""Precision, recall and F1, the counts behind them, and the files that hold them. All scores are fractions of one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import ReportError

METRICS = {"p": "precision", "r": "recall", "f": "F1"}
COUNTS_KEY = "ents_counts"


@dataclass(frozen=True)
class Score:
    """Precision, recall and F1."""

    p: float
    r: float
    f: float


@dataclass(frozen=True)
class Counts:
    """Entities found that are right (`tp`), found that are wrong (`fp`), and missed (`fn`)."""

    tp: int
    fp: int
    fn: int

    @property
    def gold(self) -> int:
        return self.tp + self.fn

    @property
    def score(self) -> Score:
        p = self.tp / (self.tp + self.fp) if self.tp else 0.0
        r = self.tp / (self.tp + self.fn) if self.tp else 0.0
        return Score(p=p, r=r, f=2 * self.tp / (2 * self.tp + self.fp + self.fn) if self.tp else 0.0)


@dataclass(frozen=True)
class Metrics:
    """The scores of one run on one part of a corpus.

    labels: The scores by label.
    counts: The counts by label, where the file has them: `spacy evaluate` writes none, `spacy tener evaluate` does.
    speed: Words per second.
    """

    overall: Score
    labels: Mapping[str, Score]
    counts: Mapping[str, Counts] | None
    speed: float | None


def check_metric(metric: str) -> None:
    if metric not in METRICS:
        raise ReportError(f"Unknown metric '{metric}'", f"Use one of: {', '.join(METRICS)}.")


def total(counts: Iterable[Counts]) -> Counts:
    """The counts of several labels taken together, for micro-averaged scores."""
    each = list(counts)
    return Counts(tp=sum(c.tp for c in each), fp=sum(c.fp for c in each), fn=sum(c.fn for c in each))


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file that holds an object."""
    try:
        data = json.loads(path.read_text(encoding="utf8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ReportError(f"{path}: cannot be read: {error}", "Check the file.") from error
    except json.JSONDecodeError as error:
        raise ReportError(f"{path}: broken JSON: {error}", "Write it again, or remove the run.") from error
    if not isinstance(data, dict):
        raise ReportError(f"{path}: expected a JSON object, but got: {type(data).__name__}", "Write it again.")
    return data


def read_metrics(path: Path) -> Metrics:
    """What `spacy evaluate --output` or `spacy tener evaluate --output` wrote."""
    return parse_metrics(read_json(path), path)


def parse_metrics(data: Mapping[str, Any], source: Path) -> Metrics:
    """The scores of entities among those that spaCy reports.

    source: The file, for errors.
    """
    try:
        counts = data.get(COUNTS_KEY)
        return Metrics(
            overall=Score(p=float(data["ents_p"]), r=float(data["ents_r"]), f=float(data["ents_f"])),
            labels={label: Score(**each) for label, each in (data.get("ents_per_type") or {}).items()},
            counts=None if counts is None else {label: Counts(**each) for label, each in counts.items()},
            speed=None if data.get("speed") is None else float(data["speed"]),
        )
    except KeyError as error:
        raise ReportError(f"{source}: there is no {error}", "Score a pipeline that finds entities.") from error
    except (TypeError, ValueError, AttributeError) as error:
        reason = f"{source}: these are no scores of entities: {error}"
        raise ReportError(reason, "Score on data that has entities annotated.") from error
