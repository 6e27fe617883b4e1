"""Cross-training: each Doc of a corpus judged by a model that was trained on the others.

    OUTPUT/folds/1/train.spacy    all but the Docs of the first part
    OUTPUT/folds/1/model-best     trained on them

The same call goes on where it was stopped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import spacy
from spacy.tokens import Doc, DocBin
from thinc.api import Config

from ...errors import RemedyError
from ...files import write_file
from ..composing.files import ConfigError
from ..report.runs import MODEL
from ..runs.engines import Engine, Task, run_tasks
from ..runs.requirements import corpus_reader
from ..runs.training import TrainingRun, is_trained, train
from .doubts import Judged, judge
from .uncertain import key

FOLDS, DATA = "folds", "train.spacy"


@dataclass(frozen=True)
class Crossing:
    """What is asked for. config: Complete; its training data is replaced. code: A Python file with what it needs."""

    config: Config
    docs: Sequence[Doc]
    output: Path
    folds: int
    gpu_id: int = -1
    code: Path | None = None

    def folder(self, fold: int) -> Path:
        return self.output / FOLDS / str(fold + 1)


def assign(docs: Sequence[Doc], folds: int) -> list[int]:
    """The part of each Doc, 0 to folds - 1: always the same one, and one for all equal texts."""
    names = [key(doc.text) for doc in docs]
    order = sorted(set(names), key=lambda name: hashlib.blake2b(name.encode("utf8", "surrogatepass")).digest())
    if len(order) < folds:
        remedy = f"Choose at most --folds {len(order)}." if len(order) > 1 else "Name a corpus with more Docs."
        raise RemedyError(f"{folds} parts of {len(order)} different texts", remedy)
    part = {name: index % folds for index, name in enumerate(order)}
    return [part[name] for name in names]


def cross_train(crossing: Crossing, engine: Engine, *, begun: Callable[[int, bool], object]) -> Iterator[Judged]:
    """Train a model for each part that has none, then let each judge its part.

    begun: Called with each part, and whether it is trained already.
    """
    assigned = assign(crossing.docs, crossing.folds)

    def tasks() -> Iterator[tuple[TrainingRun, Task]]:
        for fold in range(crossing.folds):
            run = _run(crossing, fold, [doc for doc, own in zip(crossing.docs, assigned, strict=True) if own != fold])
            trained = is_trained(run, remedy="Choose another --output, or remove this one to begin anew.")
            begun(fold, trained)
            if not trained:
                yield run, partial(train, run)

    for run, result in run_tasks(engine, tasks()):
        if result.failure:
            raise RemedyError(f"{run.folder}: {result.failure}", "Its output.log says more.")
    for fold in range(crossing.folds):
        part = [(n, doc) for n, (doc, own) in enumerate(zip(crossing.docs, assigned, strict=True)) if own == fold]
        yield from judge(spacy.load(crossing.folder(fold) / MODEL), part)


def _run(crossing: Crossing, fold: int, docs: Sequence[Doc]) -> TrainingRun:
    """The training on some Docs, which are written to its directory."""
    folder = crossing.folder(fold)
    data = DocBin(docs=docs, store_user_data=False).to_bytes()
    if not (folder / DATA).is_file() or (folder / DATA).read_bytes() != data:
        write_file(folder / DATA, lambda file: file.write(data))
    config = crossing.config.copy()
    config["paths"]["train"] = str(folder / DATA)
    if corpus_reader(config, "train_corpus").get("path") != config["paths"]["train"]:
        raise ConfigError("The config reads other data", "Let [corpora.train] have path = ${paths.train}.")
    return TrainingRun(folder.name, folder, config, gpu_id=crossing.gpu_id, code=crossing.code)
