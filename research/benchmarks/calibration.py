"""Measure how well probabilities are calibrated, before and after `tener calibrate`.

Compares the CRF of `tener_ner` with spaCy's `ner`, whose probabilities are computed by a beam. All finished runs of
`research grid` are included, so the script can be repeated when more runs are finished.
"""

from __future__ import annotations

import argparse
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import _report
import numpy as np
import spacy
from scipy.optimize import minimize
from scipy.special import expit, logit
from spacy.language import Language
from spacy.training import Corpus, Example

from research.reliability import draw_reliability
from spacy_tener.evaluation.calibration import errors, find_outcomes, fit_temperature, fit_thresholds, losses
from spacy_tener.pipeline.batch_decoding import Probabilities
from spacy_tener.pipeline.entities import offsets_of
from spacy_tener.pipeline.scoring import CharComparison
from spacy_tener.pipeline.tener_ner import TenerNER
from spacy_tener.types import BoolArray, IntArray

PRECISION, CONFIDENCE = 0.8, 0.9
HEADER = (
    "corpus", "system", "seeds", "T", "ECE", "calibrated", "Brier", "calibrated", "NLL", "calibrated",
    "kept for {precision}", "precision of these", "of all",
)  # fmt: skip
NOTE = (
    "Entities that each pipeline finds in the test part, and the probability that it gives them. ECE: expected "
    "calibration error, over ten bins of as many entities each. Brier: mean squared error. NLL: mean negative "
    "log-likelihood, in nats; 0.69 is that of one half always. Calibrated on dev, as `spacy tener calibrate` does, "
    "never on test: the temperature T of the CRF. The probability of `ner`: the sum of the scores "
    "of all parses in a beam of {width} that hold the entity found (`ner.beam_parse`, `ner.scored_ents`), calibrated "
    "by one line through its log-odds. `kept for {precision}`: the share of entities above thresholds that dev "
    "promises a precision of {precision} for, with a confidence of {confidence}, and their precision on test; 0 where "
    "dev is too small or too often wrong to promise it. Means over seeds, with their standard deviations where there "
    "are several."
)


@dataclass(frozen=True)
class Found:
    """Predictions of a pipeline on the development or test set.

    raw, calibrated: Probabilities of the predicted entities. *Shape:* (entities,)
    right: Whether the entities are correct. *Shape:* (entities,)
    label: Indices of their labels. *Shape:* (entities,)
    """

    raw: Probabilities
    calibrated: Probabilities
    right: BoolArray
    label: IntArray


@dataclass(frozen=True)
class Result:
    dev: Found
    test: Found
    labels: Sequence[str]
    temperature: float | None


def main() -> None:
    args = parse_args()
    warnings.filterwarnings("ignore")
    rows, panels = [], {}
    for corpus in args.corpora.split(","):
        series = {}
        for system in args.systems.split(","):
            paths = sorted(args.training.glob(f"{corpus}/{system}/*/model-best"))
            results = [measured(path, args.data / corpus, args.beam) for path in paths]
            if results:
                rows.append([corpus, f"`{system}`", str(len(results)), *cells(results)])
                joined = [result.test for result in results]
                right = np.concatenate([outcome.right for outcome in joined])
                series[f"{system}"] = (np.concatenate([outcome.raw for outcome in joined]), right)
                series[f"{system}, calibrated"] = (np.concatenate([outcome.calibrated for outcome in joined]), right)
        panels |= {f"{corpus}: {system}": chosen(series, system) for system in ("ner", "tener") if system in series}
    header = [cell.format(precision=PRECISION) for cell in HEADER]
    figure = _report.RESULTS / "calibration.png"
    draw_reliability(figure, panels)
    note = NOTE.format(width=args.beam, precision=PRECISION, confidence=CONFIDENCE)
    table = _report.table(header, rows)
    picture = f"![Reliability diagrams of ner and tener]({figure.name})"
    _report.write(_report.RESULTS / "calibration.md", "Calibration", note, table, picture)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--training", type=Path, required=True, help="holds CORPUS/SYSTEM/SEED/model-best")
    parser.add_argument("--data", type=Path, required=True, help="holds CORPUS/{dev,test}.spacy")
    parser.add_argument("--corpora", default="weibo,resume,wnut17")
    parser.add_argument("--systems", default="ner,tener,flat,flat-atssa,mect,char-grn,grn,transformer-crf")
    parser.add_argument("--beam", type=int, default=16, help="width of the beam for ner")
    return parser.parse_args()


def chosen(
    series: Mapping[str, tuple[Probabilities, BoolArray]], system: str
) -> dict[str, tuple[Probabilities, BoolArray]]:
    """Return the series of a system, with the names that are the same in all panels."""
    return {"before": series[system], "after": series[f"{system}, calibrated"]}


def measured(model: Path, data: Path, beam: int) -> Result:
    nlp = spacy.load(model)
    dev, test = (list(Corpus(data / f"{part}.spacy")(nlp)) for part in ("dev", "test"))
    print(model, flush=True)
    return of_crf(nlp, model, dev, test) if "tener_ner" in nlp.pipe_names else of_beam(nlp, dev, test, beam)


def of_crf(nlp: Language, model: Path, dev: Sequence[Example], test: Sequence[Example]) -> Result:
    pipe = nlp.get_pipe("tener_ner")
    assert isinstance(pipe, TenerNER)
    pipe.cfg.pop("temperature", None)
    outcomes = [find_outcomes(nlp, "tener_ner", part, model) for part in (dev, test)]
    temperature = fit_temperature(outcomes[0])
    found = [
        Found(outcome.probabilities(), outcome.probabilities(temperature), outcome.right, outcome.label)
        for outcome in outcomes
    ]
    return Result(*found, pipe.labels, temperature)


def of_beam(nlp: Language, dev: Sequence[Example], test: Sequence[Example], beam: int) -> Result:
    labels = nlp.get_pipe("ner").labels
    (dev_raw, dev_right, dev_label), (test_raw, test_right, test_label) = (
        beam_scores(nlp, part, labels, beam) for part in (dev, test)
    )
    dev_odds, test_odds = (logit(np.clip(raw, 1e-6, 1.0 - 1e-6)) for raw in (dev_raw, test_raw))
    # Platt scaling (Platt 1999): logistic regression on the log-odds.
    line = minimize(lambda weights: losses(expit(weights[0] * dev_odds + weights[1]), dev_right).sum(), [1.0, 0.0]).x
    lined = [expit(line[0] * odds + line[1]) for odds in (dev_odds, test_odds)]
    return Result(
        Found(dev_raw, lined[0], dev_right, dev_label), Found(test_raw, lined[1], test_right, test_label), labels, None
    )


def beam_scores(
    nlp: Language, examples: Sequence[Example], labels: Sequence[str], beam: int
) -> tuple[Probabilities, BoolArray, IntArray]:
    """Return the beam scores of the entities that `ner` predicts greedily, as in `nlp.pipe`."""
    pipe, rows = nlp.get_pipe("ner"), []
    docs = list(nlp.pipe(example.predicted.copy() for example in examples))
    for doc, example in zip(docs, examples, strict=True):
        if doc.ents:
            bare = example.predicted.copy()
            with nlp.select_pipes(disable=["ner"]):
                bare = nlp(bare)
            (scores,) = pipe.scored_ents(pipe.beam_parse([bare], beam, beam_density=1e-4))
            comparison = CharComparison(example.reference, doc)
            for ent in doc.ents:
                right = comparison.is_correct(comparison.key(offsets_of(ent)))
                if right is not None:
                    rows.append((scores.get((ent.start, ent.end, ent.label_), 0.0), right, labels.index(ent.label_)))
    probability, right, label = zip(*rows, strict=True)
    return np.clip(np.array(probability), 0.0, 1.0), np.array(right, dtype=bool), np.array(label)


def cells(results: Sequence[Result]) -> list[str]:
    columns: dict[str, list[float]] = defaultdict(list)
    for result in results:
        before, after = (errors(scores, result.test.right) for scores in (result.test.raw, result.test.calibrated))
        for name in ("ece", "brier", "nll"):
            columns[f"{name} before"].append(getattr(before, name))
            columns[f"{name} after"].append(getattr(after, name))
        accepted = above(result)
        columns["kept"].append(float(accepted.mean()))
        if accepted.any():
            columns["precision"].append(float(result.test.right[accepted].mean()))
        columns["all"].append(float(result.test.right.mean()))
    temperatures = [result.temperature for result in results if result.temperature is not None]
    names = [f"{name} {when}" for name in ("ece", "brier", "nll") for when in ("before", "after")]
    first = _report.mean_sd(temperatures, 2)
    return [first, *(_report.mean_sd(columns[name], 3) for name in (*names, "kept", "precision", "all"))]


def above(result: Result) -> BoolArray:
    """Return which test entities exceed the thresholds that were fitted for the target precision on the development
    set."""
    dev, test = result.dev, result.test
    thresholds = fit_thresholds(dev.calibrated, dev.label, dev.right, result.labels, PRECISION, CONFIDENCE)
    minimum = {label: 2.0 if fit.value is None else fit.value for fit in thresholds for label in fit.labels}
    accepted: BoolArray = test.calibrated >= np.array([minimum[result.labels[i]] for i in test.label])
    return accepted


if __name__ == "__main__":
    main()
