"""Read precision, recall and F1 from metrics.json, and compute them from counts of true and false positives.

Scores are fractions between 0 and 1. Scores of several labels can only be combined by adding up counts: the F1 of a
group of labels is not the mean of its F1 scores. Comparisons of two systems need the counts of each document.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spacy_tener.errors import UserError
from spacy_tener.evaluation.scores import COUNTS_KEY, DOCS_KEY, read_json

METRICS = {"p": "precision", "r": "recall", "f": "F1"}
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Score:
    """Precision, recall and F1, as fractions."""

    p: float
    r: float
    f: float


class Confusion(NamedTuple):
    """Counts of predicted entities: true positives (`tp`), false positives (`fp`) and false negatives (`fn`)."""

    tp: int
    fp: int
    fn: int

    @property
    def gold(self) -> int:
        return self.tp + self.fn

    @property
    def score(self) -> Score:
        return Score(*(float(score_counts(np.array(self), metric)) for metric in METRICS))


@dataclass(frozen=True)
class Scores:
    """The scores of one run on one data set. Counts are only available from `spacy tener evaluate`; `spacy evaluate`
    writes none.

    overall (Score): Scores over all labels.
    labels (Mapping[str, Score]): Scores by label.
    counts (Mapping[str, Confusion] | None): Counts by label.
    docs (tuple[Confusion, ...] | None): Counts by document.
    speed (float | None): Tokens per second.
    """

    overall: Score
    labels: Mapping[str, Score]
    counts: Mapping[str, Confusion] | None = None
    docs: tuple[Confusion, ...] | None = None
    speed: float | None = None


def total(counts: Iterable[Confusion]) -> Confusion:
    """Add up the counts of several labels or documents, to compute micro-averaged scores."""
    return Confusion(*map(sum, zip((0, 0, 0), *counts, strict=True)))


def read_scores(path: Path) -> Scores:
    """Read the output file of `spacy evaluate` or `spacy tener evaluate`."""
    return parse_scores(read_json(path), path)


def parse_scores(data: Mapping[str, Any], source: Path) -> Scores:
    """Extract the entity scores from the scores that spaCy reports.

    source (Path): The file of the scores, for error messages.
    """
    try:
        counts, docs = data.get(COUNTS_KEY), data.get(DOCS_KEY)
        return Scores(
            overall=Score(p=float(data["ents_p"]), r=float(data["ents_r"]), f=float(data["ents_f"])),
            labels={label: Score(**score) for label, score in (data.get("ents_per_type") or {}).items()},
            counts=None if counts is None else {label: Confusion(**count) for label, count in counts.items()},
            docs=None if docs is None else tuple(Confusion(*map(int, count)) for count in docs),
            speed=None if data.get("speed") is None else float(data["speed"]),
        )
    except KeyError as error:
        raise UserError(f"{source}: there is no {error}", "Score a pipeline that finds entities.") from error
    except (TypeError, ValueError, AttributeError) as error:
        reason = f"{source}: these are no scores of entities: {error}"
        raise UserError(reason, "Score on data that has entities annotated.") from error


def dev_scores(meta: Path, metrics: Path | None = None) -> Scores | None:
    """Return the scores on the development set: from the file `metrics` if it exists, otherwise from a pipeline's
    meta.json."""
    if metrics is not None and metrics.is_file():
        return read_scores(metrics)
    performance = read_json(meta).get("performance", {}) if meta.is_file() else {}
    return parse_scores(performance, meta) if performance.get("ents_f") is not None else None


def score_counts(counts: NDArray[np.int64] | Floats, metric: str) -> Floats:
    """Compute precision, recall or F1 from counts of true positives, false positives and false negatives.

    counts: *Shape:* (..., 3)
    RETURNS: *Shape:* (...)
    """
    tp, fp, fn = np.moveaxis(counts, -1, 0)
    below = {"p": tp + fp, "r": tp + fn, "f": tp + (fp + fn) / 2}[metric]
    found: Floats = tp / np.maximum(below, 0.5)
    return found
