"""Train models on folds of a corpus, so that each text is predicted by a model that was not trained on it.

A model overfits to the errors in its training data, and would reproduce them. Therefore, the corpus is split into
folds, and the predictions for each fold come from a model that is trained on the other folds. The output directory has
a subdirectory for each fold:

    OUTPUT/folds/1/train.spacy    training data: all folds except the first
    OUTPUT/folds/1/model-best     pipeline trained on this data

If `cross_train` is called again after an interruption, it skips folds whose pipeline is already trained. Used by the
command `review`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import spacy
from spacy.tokens import Doc
from thinc.api import Config

from ..corpora.docs import write_docs
from ..corpora.folds import assign_folds
from ..errors import UserError
from ..nn.run import use_gpu
from ..training.config_files import ConfigError, corpus_reader
from ..training.overlays import compose
from ..training.runs import MODEL, Echo, Processes, TrainingRun, is_trained, train
from .suspected_errors import ReviewedDoc, find_suspected_errors

FOLDS, DATA = "folds", "train.spacy"


@dataclass(frozen=True)
class CrossValidation:
    """Settings to review a corpus with cross-validation.

    config (Config): The training config. The path of the training data is replaced for each fold.
    docs (Sequence[Doc]): The corpus.
    output (Path): The directory for data and pipelines of all folds.
    folds (int): Number of folds.
    gpu_id (int): The GPU, or -1 for the CPU.
    code (Path | None): A Python file to import before training, with additional registered functions.
    """

    config: Config
    docs: Sequence[Doc]
    output: Path
    folds: int
    gpu_id: int = -1
    code: Path | None = None

    def folder(self, fold: int) -> Path:
        """Return a fold's directory. Fold indices start at 0, and directory names at 1."""
        return self.output / FOLDS / str(fold + 1)


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
        reason = f"{config}: there is no tener_ner in its pipeline, which is {', '.join(composed['nlp']['pipeline'])}"
        raise ConfigError(reason, "Use a config with a tener_ner, whose probabilities rank the suspected errors.")
    if dev is not None:
        composed["paths"]["dev"] = str(dev)
    path = composed["paths"].get("dev")
    if path is None or not Path(path).exists():
        raise ConfigError(
            f"paths.dev is {path}, which does not exist", "Pass texts to select the best model: --dev dev.spacy"
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
        yield from find_suspected_errors(spacy.load(validation.folder(fold) / MODEL), docs)


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
        raise ConfigError("The training corpus of the config has another path", fix)
    return TrainingRun(folder.name, folder, config, gpu_id=validation.gpu_id, code=validation.code)
