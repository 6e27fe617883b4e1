"""Self-training: models annotate raw text, learn from what they are sure of beside the gold annotation, and again.

OUTPUT/round-0/1/model-best     trained on gold annotation with seed 1
OUTPUT/round-1/silver/          what the models of round 0 together are sure of
OUTPUT/round-1/1/model-best     trained on both
OUTPUT/model-best               the best model of the best round, by F1 on dev
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import spacy
from thinc.api import Config

from ...errors import RemedyError
from ...files import staged
from ..report.runs import METRICS_DEV, MODEL
from ..runs.processes import Echo, Processes
from ..runs.record import is_finished, make_record, write_record
from ..runs.training import SCORE, train
from .silver import Counts, Sureness, made_of, write_silver

GOLD, SILVER = "gold", "silver"


@dataclass(frozen=True)
class Plan:
    """What is done.

    config: Complete, with its data.
    rounds: At most so many after the first training.
    texts: Makes the raw texts anew.
    sources: The files that they come from.
    limit: At most so many are taken of them; 0 for all.
    weight: What silver annotation counts in the loss.
    repeat: How often the gold annotation is read beside the silver.
    code: A Python file with what the config needs.
    """

    config: Config
    output: Path
    seeds: Sequence[int]
    rounds: int
    texts: Callable[[], Iterable[str]]
    sources: Sequence[str]
    sure: Sureness
    weight: float = 1.0
    repeat: int = 1
    limit: int = 0
    gpu_id: int = -1
    code: Path | None = None


@dataclass(frozen=True)
class Round:
    """A round that has ended: the F1 on dev of each seed's model."""

    number: int
    scores: dict[int, float]

    @property
    def mean(self) -> float:
        return fmean(self.scores.values())

    @property
    def best_seed(self) -> int:
        return max(self.scores, key=lambda seed: self.scores[seed])


@dataclass(frozen=True)
class Told:
    """Whom to tell what happens: a training begins; a part is annotated; a round has ended."""

    training: Callable[[int, int], object]
    annotated: Callable[[Counts, bool], object]
    ended: Callable[[Round], object]
    echo: Echo | None = None


def self_train(plan: Plan, processes: Processes, told: Told) -> Round:
    """Train until the mean F1 on dev stops rising, and write the best model. What is finished already is left alone."""
    best: Round | None = None
    for number in range(plan.rounds + 1):
        if best is not None:
            _annotate(plan, best, number, told)
        latest = Round(number, {seed: _train(plan, number, seed, processes, told) for seed in plan.seeds})
        told.ended(latest)
        if best is not None and latest.mean <= best.mean:
            break
        best = latest
    assert best is not None
    with staged(plan.output) as temporary:
        shutil.copytree(_folder(plan, best.number) / str(best.best_seed) / MODEL, temporary / MODEL)
        shutil.rmtree(plan.output / MODEL, ignore_errors=True)
    return best


def _folder(plan: Plan, number: int) -> Path:
    return plan.output / f"round-{number}"


def _train(plan: Plan, number: int, seed: int, processes: Processes, told: Told) -> float:
    folder = _folder(plan, number) / str(seed)
    config = config_of(plan, number, seed)
    record = make_record(config, plan.code)
    remedy = "Choose another directory, or remove this one to begin anew."
    if not is_finished(folder, record, [METRICS_DEV, f"{MODEL}/meta.json"], remedy=remedy):
        told.training(number, seed)
        result = train(processes, config, folder, gpu_id=plan.gpu_id, code=plan.code, echo=told.echo)
        if result.score is None:
            raise RemedyError(f"{folder}: {result.failure}", "Its output.log says more.")
        write_record(folder, record)
    score: float = json.loads((folder / METRICS_DEV).read_text(encoding="utf8"))[SCORE]
    return score


def config_of(plan: Plan, number: int, seed: int) -> Config:
    """The config of a round: from the second on with the silver annotation beside the gold."""
    config = plan.config.copy()
    config["system"]["seed"] = config["training"]["seed"] = seed
    if number:
        parent: dict[str, Any] = config
        *path, name = config["training"]["train_corpus"].split(".")
        for key in path:
            parent = parent[key]
        silver = {
            "@readers": "spacy.Corpus.v1",
            "path": str(_folder(plan, number) / SILVER),
            "gold_preproc": False,
            "max_length": 0,
            "limit": 0,
            "augmenter": None,
        }
        parent[name] = {
            "@readers": "spacy_tener.MixedCorpus.v1",
            "weights": {SILVER: plan.weight},
            "repeat": {GOLD: plan.repeat},
            "readers": {GOLD: parent[name], SILVER: silver},
        }
    return config


def _annotate(plan: Plan, best: Round, number: int, told: Told) -> None:
    models = [_folder(plan, best.number) / str(seed) / MODEL for seed in plan.seeds]
    output = _folder(plan, number) / SILVER
    teachers = [spacy.load(model) for model in models]
    write_silver(
        teachers,
        plan.texts(),
        output,
        plan.sure,
        settings={**made_of([str(model) for model in models], teachers, plan.sources), "limit": plan.limit},
        part_size=5000,
        done=told.annotated,
    )
