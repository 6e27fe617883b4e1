"""Precision, recall and F1 of entities, the counts behind them, and metrics.json, which holds both.

All scores are fractions of one. Scores by label cannot be put together again: the F1 of all named entities is not the
mean of their labels' F1, and a label of which nothing was right does not show how much was found. With counts, any
labels can be taken together, and with those of each document two systems can be compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

from spacy.scorer import Scorer
from spacy.training import Example

from ...errors import RemedyError

METRICS = {"p": "precision", "r": "recall", "f": "F1"}
COUNTS_KEY, DOCS_KEY = "ents_counts", "ents_counts_per_doc"


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
    """The scores of one run on one part of a corpus. `spacy evaluate` writes no counts, `spacy tener evaluate` does.

    labels: The scores by label.
    counts: The counts by label.
    docs: The counts of each document: right, wrong, missed.
    speed: Words per second.
    """

    overall: Score
    labels: Mapping[str, Score]
    counts: Mapping[str, Counts] | None = None
    docs: tuple[tuple[int, int, int], ...] | None = None
    speed: float | None = None


class CountingScorer(Scorer):
    """Adds counts to what spaCy's scorer returns: `ents_counts`, label -> tp, fp, fn, and `ents_counts_per_doc`, where
    the three of each document stand in that order."""

    def score(self, examples: Iterable[Example], *, per_component: bool = False) -> dict[str, Any]:
        examples = list(examples)
        docs = [count_entities(example) for example in examples]
        labels = sorted(set().union(*docs))
        counts = {label: asdict(total(each[label] for each in docs if label in each)) for label in labels}
        scores: dict[str, Any] = super().score(examples, per_component=per_component)
        return {**scores, COUNTS_KEY: counts, DOCS_KEY: [astuple(total(each.values())) for each in docs]}


def count_entities(example: Example) -> dict[str, Counts]:
    """Entities by label, right and wrong as `spacy.scorer.get_ner_prf` tells them apart.

    Where the reference says nothing about a token, an entity found there is neither right nor wrong.
    """
    if not example.reference.has_annotation("ENT_IOB"):
        return {}
    gold = {(ent.label_, ent.start, ent.end) for ent in example.reference.ents}
    counts = {label: [0, 0, 0] for label in {ent.label_ for ent in (*example.predicted.ents, *example.reference.ents)}}
    for found in _known_entities(example):
        counts[found[0]][0 if found in gold else 1] += 1
        gold.discard(found)
    for label, _, _ in gold:
        counts[label][2] += 1
    return {label: Counts(*each) for label, each in counts.items()}


def _known_entities(example: Example) -> Iterator[tuple[str, int, int]]:
    """The entities found, over the reference's tokens, where these are annotated."""
    to_reference = example.alignment.x2y
    for ent in example.predicted.ents:
        indices = to_reference[ent.start : ent.end]
        if len(indices):
            start, end = int(indices[0]), int(indices[-1]) + 1
            if all(token.ent_iob for token in example.reference[start:end]):
                yield ent.label_, start, end


def total(counts: Iterable[Counts]) -> Counts:
    """The counts of several labels or documents taken together, for micro-averaged scores."""
    each = list(counts)
    return Counts(tp=sum(c.tp for c in each), fp=sum(c.fp for c in each), fn=sum(c.fn for c in each))


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file that holds an object."""
    try:
        data = json.loads(path.read_text(encoding="utf8"))
    except (OSError, UnicodeDecodeError) as error:
        raise RemedyError(f"{path}: cannot be read: {error}", "Check the file.") from error
    except json.JSONDecodeError as error:
        raise RemedyError(f"{path}: broken JSON: {error}", "Write it again, or remove the run.") from error
    if not isinstance(data, dict):
        raise RemedyError(f"{path}: expected a JSON object, but got: {type(data).__name__}", "Write it again.")
    return data


def read_metrics(path: Path) -> Metrics:
    """What `spacy evaluate --output` or `spacy tener evaluate --output` wrote."""
    return parse_metrics(read_json(path), path)


def parse_metrics(data: Mapping[str, Any], source: Path) -> Metrics:
    """The scores of entities among those that spaCy reports.

    source: The file, for errors.
    """
    try:
        counts, docs = data.get(COUNTS_KEY), data.get(DOCS_KEY)
        return Metrics(
            overall=Score(p=float(data["ents_p"]), r=float(data["ents_r"]), f=float(data["ents_f"])),
            labels={label: Score(**each) for label, each in (data.get("ents_per_type") or {}).items()},
            counts=None if counts is None else {label: Counts(**each) for label, each in counts.items()},
            docs=None if docs is None else tuple((int(tp), int(fp), int(fn)) for tp, fp, fn in docs),
            speed=None if data.get("speed") is None else float(data["speed"]),
        )
    except KeyError as error:
        raise RemedyError(f"{source}: there is no {error}", "Score a pipeline that finds entities.") from error
    except (TypeError, ValueError, AttributeError) as error:
        reason = f"{source}: these are no scores of entities: {error}"
        raise RemedyError(reason, "Score on data that has entities annotated.") from error
