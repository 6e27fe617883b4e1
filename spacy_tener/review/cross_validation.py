"""Train models on folds of a corpus, so that each text is predicted by a model that was not trained on it.

A model overfits to the errors in its training data, and would reproduce them. Therefore, the corpus is split into
folds, and the predictions for each fold come from a model that is trained on the other folds. The output directory has
a subdirectory for each fold:

    OUTPUT/folds/1/train.spacy    training data: all folds except the first
    OUTPUT/folds/1/model-best     pipeline trained on this data

If `cross_train` is called again after an interruption, it skips folds whose pipeline is already trained. The pipelines
of a learning curve, which are trained on a part of this data, are in OUTPUT/folds-25 and OUTPUT/folds-50. Used by the
commands `review` and `calibrate`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from statistics import stdev
from typing import Any, NamedTuple

import spacy
from spacy.language import Language
from spacy.scorer import PRFScore
from spacy.tokens import Doc
from spacy.training import Example
from thinc.api import Config

from ..corpora.docs import read_docs, read_examples, write_docs
from ..corpora.folds import assign_folds, text_key
from ..errors import UserError
from ..evaluation.scores import Confusion, total
from ..nn.run import use_gpu
from ..training.config_files import ConfigError, corpus_reader
from ..training.overlays import compose
from ..training.runs import MODEL, Echo, Processes, TrainingRun, is_trained, train
from .suspected_errors import ReviewedDoc, find_suspected_errors

FOLDS, DATA = "folds", "train.spacy"
# Name of the micro average over all labels.
ALL = "All"
# File name of the scores.
SCORES_FILE = "scores.json"
# For the learning curve, models are also trained on a quarter and on half of the texts.
CURVE = (4, 2)


@dataclass(frozen=True)
class CrossValidation:
    """Settings to review a corpus with cross-validation.

    config (Config): The training config. The path of the training data is replaced for each fold.
    docs (Sequence[Doc]): The corpus.
    output (Path): The directory for data and pipelines of all folds.
    folds (int): Number of folds.
    gpu_id (int): The GPU, or -1 for the CPU.
    code (Path | None): A Python file to import before training, with additional registered functions.
    share (int): Train on one of `share` parts of each fold's training data, such as 4 for a quarter.
    """

    config: Config
    docs: Sequence[Doc]
    output: Path
    folds: int
    gpu_id: int = -1
    code: Path | None = None
    share: int = 1

    def folder(self, fold: int) -> Path:
        """Return a fold's directory. Fold indices start at 0, and directory names at 1."""
        name = FOLDS if self.share == 1 else f"{FOLDS}-{100 // self.share}"
        return self.output / name / str(fold + 1)


def cross_validation(
    config: str,
    docs: Sequence[Doc],
    output: Path,
    folds: int,
    *,
    dev: Path | None,
    settings: Sequence[str],
    gpu_id: int,
    code: Path | None,
) -> CrossValidation:
    """Compose and check the config for a cross-validation.

    Raises a ConfigError if the config has no `tener_ner`, or if the development set doesn't exist.

    config (str): A path, or the name of a config in this package.
    docs (Sequence[Doc]): The corpus.
    output (Path): The directory for data and pipelines of all folds.
    folds (int): Number of folds.
    dev (Path | None): The development set, on which the best model is selected. By default, the config's `paths.dev`.
    settings (Sequence[str]): Settings that override the config, such as `training.max_steps=100`.
    gpu_id (int): The GPU, or -1 for the CPU.
    code (Path | None): A Python file to import before training, with additional registered functions.
    """
    composed = compose(config, settings=settings)
    # A component without a factory is sourced from another pipeline. It could be a `tener_ner`, so accept it.
    if not any(component.get("factory") in ("tener_ner", None) for component in composed["components"].values()):
        reason = f"{config}: the pipeline ({', '.join(composed['nlp']['pipeline'])}) contains no tener_ner"
        raise ConfigError(
            reason, "Use a config with a tener_ner. Its probabilities are used to rank the suspected errors."
        )
    if dev is not None:
        composed["paths"]["dev"] = str(dev)
    path = composed["paths"].get("dev")
    if path is None or not Path(path).exists():
        raise ConfigError(
            f"paths.dev is {path}, which does not exist",
            "Set a development set to select the best model, for example --dev dev.spacy.",
        )
    return CrossValidation(composed, docs, output, folds, gpu_id, code)


def cross_train(
    validation: CrossValidation, jobs: int = 1, *, echo: Echo | None = None, begun: Callable[[int, bool], object]
) -> Iterator[ReviewedDoc]:
    """Train a pipeline for each fold, and yield the reviewed Docs of all folds.

    Folds whose pipeline is already trained are skipped. If an error occurs, all training processes are terminated.

    jobs (int): Number of training processes to run in parallel. They share the CPU cores.
    echo (Echo | None): Callback for each line of training output. Only called if `jobs` is 1.
    begun (Callable[[int, bool], object]): Callback for each fold, with its index and whether its pipeline is already
        trained.
    """
    folds = assign_folds(validation.docs, validation.folds)
    processes = Processes(jobs, echo if jobs == 1 else None)

    def train_fold(fold: int) -> None:
        docs = [doc for doc, fold_of_doc in zip(validation.docs, folds, strict=True) if fold_of_doc != fold]
        docs = first_share(docs, validation.share)
        run = fold_run(validation, fold, docs)
        trained = is_trained(run)
        begun(fold, trained)
        if not trained and (failure := train(run, processes)):
            raise UserError(f"{run.folder}: {failure}", "See output.log in this directory.")

    with ThreadPoolExecutor(jobs) as pool:
        try:
            for trained in as_completed([pool.submit(train_fold, fold) for fold in range(validation.folds)]):
                trained.result()
        except BaseException:
            # Cancel queued folds before stopping the running processes. Otherwise, the pool would start the next fold.
            pool.shutdown(wait=False, cancel_futures=True)
            processes.stop()
            raise
    # Activate the GPU only now. Otherwise, this process would take GPU memory that the training runs need.
    use_gpu(validation.gpu_id)
    for fold in range(validation.folds):
        docs = [(number, doc) for number, doc in enumerate(validation.docs) if folds[number] == fold]
        for reviewed in find_suspected_errors(spacy.load(validation.folder(fold) / MODEL), docs):
            yield replace(reviewed, fold=fold)


def first_share(docs: Sequence[Doc], share: int) -> list[Doc]:
    """Return one of `share` equal parts of a corpus. A smaller part is contained in the larger parts."""
    return [doc for doc, part in zip(docs, assign_folds(docs, share), strict=True) if part == 0]


def fold_run(validation: CrossValidation, fold: int, docs: Sequence[Doc]) -> TrainingRun:
    """Write a fold's training data, and return the training run.

    Raises a ConfigError if the config's training corpus doesn't use the path `paths.train`.

    docs (Sequence[Doc]): The training data: all Docs outside the fold.
    """
    folder = validation.folder(fold)
    write_docs(folder / DATA, docs)
    config = validation.config.copy()
    config["paths"]["train"] = str(folder / DATA)
    if corpus_reader(config).get("path") != config["paths"]["train"]:
        fix = "Set path = ${paths.train} in [corpora.train]."
        raise ConfigError("The training corpus of the config does not use paths.train", fix)
    return TrainingRun(folder.name, folder, config, gpu_id=validation.gpu_id, code=validation.code)


@dataclass(frozen=True)
class CrossValidatedScore:
    """Precision, recall and F1 of cross-validated predictions.

    p (float): Precision.
    r (float): Recall.
    f (float): F1.
    p_std (float): Standard deviation of the precision over the folds.
    r_std (float): Standard deviation of the recall over the folds.
    f_std (float): Standard deviation of F1 over the folds.
    n_entities (int): Number of gold entities.
    """

    p: float
    r: float
    f: float
    p_std: float
    r_std: float
    f_std: float
    n_entities: int


class CurvePoint(NamedTuple):
    """A point of the learning curve: F1 of models that are trained on some of the texts.

    texts (int): Mean number of training texts.
    f (float): Cross-validated F1.
    f_std (float): Standard deviation of F1 over the folds.
    """

    texts: int
    f: float
    f_std: float


def n_training_texts(validation: CrossValidation) -> int:
    """Return the mean number of texts on which the models of a cross-validation are trained."""
    return round(len(validation.docs) * (1 - 1 / validation.folds) / validation.share)


def scores_to_json(scores: Mapping[str, CrossValidatedScore], curve: Sequence[CurvePoint]) -> str:
    """Serialize cross-validated scores and a learning curve as JSON."""
    content: dict[str, Any] = {"scores": {label: asdict(score) for label, score in scores.items()}}
    if curve:
        content["learning_curve"] = [point._asdict() for point in curve]
    return json.dumps(content, ensure_ascii=False, indent=2) + "\n"


def cross_validated_scores(reviewed: Iterable[ReviewedDoc]) -> dict[str, CrossValidatedScore]:
    """Score cross-validated predictions: the micro average over all labels (`All`), followed by each label.

    The counts of all folds are added up before the scores are computed, which is less biased than the mean of the
    folds' F1 scores (Forman and Scholz, 2010). The standard deviations are computed from the scores of the folds that
    have an entity with the label.
    """
    by_fold: dict[int, list[Mapping[str, Confusion]]] = defaultdict(list)
    for doc in reviewed:
        by_fold[doc.fold].append(doc.counts)
    labels = sorted({label for counts in chain.from_iterable(by_fold.values()) for label in counts})
    return {
        ALL: _score([total(chain.from_iterable(count.values() for count in counts)) for counts in by_fold.values()]),
        **{
            label: _score([total(count[label] for count in counts if label in count) for counts in by_fold.values()])
            for label in labels
        },
    }


def _score(folds: Sequence[Confusion]) -> CrossValidatedScore:
    """Return the scores over all folds, and their standard deviations.

    folds (Sequence[Confusion]): The counts in each fold.
    """
    pooled = total(folds)
    p, r, f = _precision_recall_f1(pooled)
    of_folds = [_precision_recall_f1(fold) for fold in folds if any(fold)]
    p_std, r_std, f_std = map(stdev, zip(*of_folds, strict=True)) if len(of_folds) > 1 else (0.0, 0.0, 0.0)
    return CrossValidatedScore(p, r, f, p_std, r_std, f_std, pooled.tp + pooled.fn)


def _precision_recall_f1(counts: Confusion) -> tuple[float, float, float]:
    """Return precision, recall and F1, with 0 for a score without entities."""
    score = PRFScore(**counts._asdict())
    return score.precision, score.recall, score.fscore


def fold_examples(output: Path, data: Path) -> Iterator[tuple[Language, list[Example]]]:
    """Yield the pipeline of each fold of a finished cross-validation, with the texts that it was not trained on.

    Raises a UserError if the directory contains no trained folds, or if the corpus is not the one that was divided.

    output (Path): The output directory of `review`.
    data (Path): The corpus, a `.spacy` file.
    """
    folders = sorted((output / FOLDS).glob(f"*/{MODEL}"), key=lambda path: int(path.parent.name))
    review = f"`tener review CONFIG {data} --output {output}`"
    if len(folders) < 2:
        raise UserError(
            f"{output}: contains no pipelines of cross-validation folds", f"Train these pipelines with {review}."
        )
    docs = list(read_docs(data))
    texts = [text_key(doc.text) for doc in docs]
    folds = assign_folds(docs, len(folders))
    for fold, folder in enumerate(folders):
        inside = {text for text, fold_of_text in zip(texts, folds, strict=True) if fold_of_text == fold}
        if {text_key(doc.text) for doc in read_docs(folder.parent / DATA)} != set(texts) - inside:
            fix = f"Pass the corpus that was reviewed, or review this corpus with a new --output: {review}."
            raise UserError(f"{folder}: the training texts of this pipeline do not match the folds of {data}", fix)
        nlp = spacy.load(folder)
        yield nlp, [example for example in read_examples(nlp, data) if text_key(example.reference.text) in inside]
