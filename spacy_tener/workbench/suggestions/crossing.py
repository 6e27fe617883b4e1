"""Cross-training: each Doc of a corpus judged by a model that was trained on the others.

    OUTPUT/folds/1/train.spacy    all but the Docs of the first part
    OUTPUT/folds/1/model-best     trained on them

The same call goes on where it was stopped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import spacy
from spacy.tokens import Doc, DocBin
from thinc.api import Config

from ...errors import RemedyError
from ...files import write_file
from ..composing.files import ConfigError
from ..report.runs import MODEL
from ..runs.processes import Echo, Processes
from ..runs.requirements import corpus_reader
from ..runs.training import is_trained, manifest_of, train
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


def cross_train(
    crossing: Crossing, jobs: int, *, begun: Callable[[int, bool], object], echo: Echo | None = None
) -> Iterator[Judged]:
    """Train a model for each part that has none, then let each judge its part.

    begun: Is told each part, and whether it is trained already.
    """
    assigned = assign(crossing.docs, crossing.folds)
    processes = Processes(jobs)

    def make(fold: int) -> None:
        rest = [doc for doc, own in zip(crossing.docs, assigned, strict=True) if own != fold]
        _train(crossing, fold, rest, processes, begun, echo if jobs == 1 else None)

    with ThreadPoolExecutor(jobs) as pool:
        try:
            list(pool.map(make, range(crossing.folds)))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            processes.stop()
            raise
    for fold in range(crossing.folds):
        part = [(n, doc) for n, (doc, own) in enumerate(zip(crossing.docs, assigned, strict=True)) if own == fold]
        yield from judge(spacy.load(crossing.folder(fold) / MODEL), part)


def _train(
    crossing: Crossing,
    fold: int,
    docs: Sequence[Doc],
    processes: Processes,
    begun: Callable[[int, bool], object],
    echo: Echo | None,
) -> None:
    folder = crossing.folder(fold)
    data = DocBin(docs=docs, store_user_data=False).to_bytes()
    if not (folder / DATA).is_file() or (folder / DATA).read_bytes() != data:
        write_file(folder / DATA, lambda file: file.write(data))
    config = crossing.config.copy()
    config["paths"]["train"] = str(folder / DATA)
    if corpus_reader(config, "train_corpus").get("path") != config["paths"]["train"]:
        raise ConfigError("The config reads other data", "Let [corpora.train] have path = ${paths.train}.")
    manifest = manifest_of(folder, config, crossing.code)
    remedy = "Choose another --output, or remove this one to begin anew."
    trained = is_trained(folder, manifest, remedy=remedy)
    begun(fold, trained)
    if not trained:
        result = train(processes, config, folder, gpu_id=crossing.gpu_id, code=crossing.code, echo=echo)
        if result.failure:
            raise RemedyError(f"{folder}: {result.failure}", "Its output.log says more.")
        manifest.finish(MODEL)
