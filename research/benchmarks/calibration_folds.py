"""Measure how well probabilities are calibrated after `tener calibrate --folds`, with 100 and 200 training sentences.

For each corpus, size and seed, trains a pipeline on a random part of the training set, and the pipelines of a
cross-validation on the same part. The development set is small, too: a quarter of the size of the training set.
"""

from __future__ import annotations

import random
import warnings
from collections import defaultdict, deque
from collections.abc import Sequence
from pathlib import Path

import _report
import spacy
from spacy.tokens import Doc

from spacy_tener.corpora.docs import read_docs, read_examples, write_docs
from spacy_tener.errors import UserError
from spacy_tener.evaluation.calibration import (
    Outcomes,
    check_sample_size,
    errors,
    find_fold_outcomes,
    find_outcomes,
    fit_temperature,
)
from spacy_tener.pipeline.finding import find_crf_pipe
from spacy_tener.review.cross_validation import CrossValidation, cross_train, fold_examples
from spacy_tener.training.overlays import compose
from spacy_tener.training.runs import MODEL, Processes, TrainingRun, is_trained, train

CONFIG = "weibo"
SIZES, SEEDS, FOLDS, STEPS = (100, 200), (1, 2, 3), 5, 400
HEADER = (
    "corpus",
    "sentences",
    "F1",
    "uncalibrated",
    "on dev",
    "on folds",
    "T on dev",
    "T on folds",
    "wrong in dev, folds",
)
NOTE = (
    "Expected calibration error (ECE) of the predicted entities on the test set, in percent: before calibration, after "
    "calibration on a development set with a quarter of the size, and after `tener calibrate --folds` on the training "
    f"sentences. {FOLDS} folds, {STEPS} steps, TENER with the config `{CONFIG}`, which `tener config` chooses for less "
    "than 3,000 texts. Means over three seeds (training sentences and initial weights) with standard deviations. A "
    "calibration needs ten wrong predictions. `-`: the development set had fewer in all seeds. A number in brackets: "
    "the number of seeds in which it had enough. T: the temperature. Last column: mean number of wrong predictions."
)


def main() -> None:
    parser = _report.training_parser(__doc__, "{weibo,resume}/{train,dev,test}.spacy")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    rows = []
    for corpus in ("weibo", "resume"):
        for size in SIZES:
            results = [measure(args.data / corpus, args.work / f"{corpus}-{size}-{seed}", size, seed) for seed in SEEDS]
            rows.append([corpus, str(size), *cells(results)])
    _report.write_tables(
        _report.RESULTS / "calibration-folds.md", "Calibration on the folds of a cross-validation", (NOTE, HEADER, rows)
    )


def measure(data: Path, work: Path, size: int, seed: int) -> dict[str, float]:
    """Train and calibrate the pipelines of one seed. Returns a number for each column that could be measured."""
    vocab = spacy.blank("zh").vocab
    train_docs = sample(list(read_docs(data / "train.spacy", vocab)), size, seed)
    dev_docs = sample(list(read_docs(data / "dev.spacy", vocab)), size // 4, seed)
    write_docs(work / "train.spacy", train_docs)
    write_docs(work / "dev.spacy", dev_docs)
    settings = [
        f"training.max_steps={STEPS}", f"training.eval_frequency={STEPS // 4}", "training.patience=0",
        f"system.seed={seed}", f"paths.train={work / 'train.spacy'}", f"paths.dev={work / 'dev.spacy'}",
    ]  # fmt: skip
    config = compose(CONFIG, settings=settings)
    run = TrainingRun("all", work / "all", config)
    if not is_trained(run) and (failure := train(run, Processes(1))):
        raise SystemExit(f"{run.folder}: {failure}")
    # Train the pipelines of the folds. Their suspected errors are not used.
    deque(cross_train(CrossValidation(config, train_docs, work, FOLDS), begun=lambda fold, trained: None), maxlen=0)
    nlp = spacy.load(work / "all" / MODEL)
    pipe = find_crf_pipe(nlp)
    test = find_outcomes(nlp, pipe.name, read_examples(nlp, data / "test.spacy"), data)
    on_folds = find_fold_outcomes(fold_examples(work, work / "train.spacy"), pipe, work)
    scores = nlp.evaluate(read_examples(nlp, data / "test.spacy"))
    result = {
        "f": 100 * scores["ents_f"],
        "before": ece(test, 1.0),
        "wrong folds": float((~on_folds.right).sum()),
        "t folds": fit_temperature(on_folds),
    }
    result["folds"] = ece(test, result["t folds"])
    on_dev = find_outcomes(nlp, pipe.name, read_examples(nlp, work / "dev.spacy"), work)
    result["wrong dev"] = float((~on_dev.right).sum())
    try:
        check_sample_size(on_dev, work)
    except UserError:
        return result
    result["t dev"] = fit_temperature(on_dev)
    result["dev"] = ece(test, result["t dev"])
    return result


def sample(docs: Sequence[Doc], size: int, seed: int) -> list[Doc]:
    return random.Random(seed).sample(list(docs), size)


def ece(outcomes: Outcomes, temperature: float) -> float:
    return 100 * errors(outcomes.probabilities(temperature), outcomes.right).ece


def cells(results: Sequence[dict[str, float]]) -> list[str]:
    columns: dict[str, list[float]] = defaultdict(list)
    for result in results:
        for name, value in result.items():
            columns[name].append(value)
    n_dev = len(columns["dev"])
    seeds = f" ({n_dev})" if 0 < n_dev < len(results) else ""
    return [
        *(_report.mean_sd(columns[name]) for name in ("f", "before")),
        _report.mean_sd(columns["dev"]) + seeds if n_dev else "-",
        _report.mean_sd(columns["folds"]),
        _report.mean_sd(columns["t dev"]) if n_dev else "-",
        _report.mean_sd(columns["t folds"]),
        ", ".join(f"{sum(columns[name]) / len(results):.0f}" for name in ("wrong dev", "wrong folds")),
    ]


if __name__ == "__main__":
    main()
