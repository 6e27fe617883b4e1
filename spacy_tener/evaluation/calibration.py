"""Calibration of entity probabilities: fit a temperature and probability thresholds on annotated texts.

A model is calibrated if its probabilities match its accuracy: for example, 80 % of the entities that are predicted with
a probability of 0.8 are correct.

    outcomes = find_outcomes(nlp, "tener_ner", examples, path)     # predicted entities, correct or not
    temperature = fit_temperature(outcomes)                        # divides all CRF scores
    fit_thresholds(...)                                            # thresholds that ensure a precision
    errors(outcomes.probabilities(temperature), outcomes.right)    # expected calibration error, Brier score

Used by the command `calibrate`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from spacy.language import Language
from spacy.training import Example

from ..errors import UserError, install, pluralize
from ..pipeline.batch_decoding import BatchDecoding, Probabilities
from ..pipeline.entities import without_entities
from ..pipeline.finding import find_crf_pipe
from ..pipeline.scoring import CharComparison
from ..pipeline.tener_ner import TenerNER
from ..types import BoolArray, IntArray

# Minimum number of correct entities, and also of incorrect entities, that are needed to fit a temperature.
MIN_OUTCOMES = 10
# With fewer correct or incorrect entities than this number, the temperature is uncertain: on Weibo with 20 incorrect
# entities, the calibration increased the error (research/results/calibration-folds.md).
RELIABLE_OUTCOMES = 50
N_FOLDS = 5
_MIN_TEMPERATURE, _MAX_TEMPERATURE = 0.1, 20.0

# Approximate number of candidate thresholds for a group of labels.
MAX_CANDIDATES = 20
# Minimum number of entities to fit a separate threshold for a label. All other labels share a threshold.
MIN_ENTITIES = 100
BINS = 10
_MARGIN = 1e-9

# Predictions to compare, such as those before and after calibration: maps a name to the probabilities of the predicted
# entities and a mask of the correct entities.
Series = Mapping[str, tuple[Probabilities, BoolArray]]


# Predictions and their correctness


@dataclass(frozen=True)
class Outcomes:
    """Entities that a component predicts for annotated texts, and whether they are correct.

    Some predicted entities are excluded: those in text parts without annotation, and those that were already in the Doc
    before the component was called. The remaining entities are called "counted".

    batches (Sequence[BatchDecoding]): The decoded texts, which can compute probabilities at any temperature.
    counted (BoolArray): Mask that is False for excluded entities. *Shape:* (predicted,)
    label (IntArray): Label index of each entity. *Shape:* (counted,)
    right (BoolArray): Whether each entity is correct. *Shape:* (counted,)
    text (IntArray): Index of the text that contains each entity. *Shape:* (counted,)
    """

    batches: Sequence[BatchDecoding]
    counted: BoolArray
    label: IntArray
    right: BoolArray
    text: IntArray

    def probabilities(self, temperature: float = 1.0) -> Probabilities:
        """Return each counted entity's probability at the given temperature. *Shape:* (counted,)"""
        batches = [(replace(batch, temperature=temperature), batch.best) for batch in self.batches]
        counted: Probabilities = np.concatenate([batch.probabilities(best) for batch, best in batches])[self.counted]
        return counted


def find_outcomes(nlp: Language, name: str, examples: Sequence[Example], source: Path) -> Outcomes:
    """Predict entities with a pipeline component, and compare them with the gold-standard annotation.

    nlp (Language): The pipeline.
    name (str): The component name. The components before it are also run.
    examples (Sequence[Example]): The annotated texts.
    source (Path): Path to the file with the texts, for error messages.
    RETURNS (Outcomes): The predicted entities, and whether they are correct.
    """
    labels = find_crf_pipe(nlp, name).labels
    _check_labels({span.label_ for example in examples for span in example.reference.ents}, labels, name, source)
    found = _find_outcomes(nlp, name, examples, source, labels)
    _check_found(found, source)
    return found


def find_fold_outcomes(folds: Iterable[tuple[Language, Sequence[Example]]], pipe: TenerNER, source: Path) -> Outcomes:
    """Predict entities with the pipelines of a cross-validation, each on the texts that it was not trained on.

    The temperature that fits these pipelines also fits a pipeline that is trained on all texts with the same config.

    folds (Iterable[tuple[Language, Sequence[Example]]]): The pipeline of each fold, and its annotated texts.
    pipe (TenerNER): The component to calibrate. The folds have a component with the same name.
    source (Path): Path to the file with the texts, for error messages.
    RETURNS (Outcomes): The predicted entities of all folds, and whether they are correct.
    """
    parts, n_texts = list[Outcomes](), 0
    for nlp, examples in folds:
        unknown = set(find_crf_pipe(nlp, pipe.name).labels) - set(pipe.labels)
        if unknown:
            reason = (
                f"The pipelines of the folds have labels that '{pipe.name}' does not have: {', '.join(sorted(unknown))}"
            )
            raise UserError(reason, "Use folds that were trained on the same texts as the pipeline.")
        part = _find_outcomes(nlp, pipe.name, examples, source, pipe.labels)
        parts.append(replace(part, text=part.text + n_texts))
        n_texts += len(examples)
    counted, label, right, text = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("counted", "label", "right", "text")
    )
    found = Outcomes([batch for part in parts for batch in part.batches], counted, label, right, text)
    _check_found(found, source)
    return found


def _check_found(outcomes: Outcomes, source: Path) -> None:
    if not outcomes.counted.size:
        fix = "Check that the pipeline is trained, and that the texts contain entities with its labels."
        raise UserError(f"{source}: the pipeline predicts no entities in these texts", fix)


def _find_outcomes(
    nlp: Language, name: str, examples: Sequence[Example], source: Path, labels: Sequence[str]
) -> Outcomes:
    """Predict entities, and compare them with the gold-standard annotation. The result may be empty.

    labels (Sequence[str]): The labels to which the label indices refer.
    """
    pipe = find_crf_pipe(nlp, name)
    with nlp.select_pipes(enable=list(nlp.pipe_names[: nlp.pipe_names.index(name)])):
        docs = list(nlp.pipe(without_entities(example.predicted) for example in examples))
    key = pipe.nested_key
    if key is not None and not any(key in example.reference.spans for example in examples):
        fix = "Convert the corpus with `--overlap spans`, so that nested entities are annotated."
        raise UserError(f"{source}: the Docs have no doc.spans['{key}']", fix)
    compared = [CharComparison(example.reference, doc, key) for example, doc in zip(examples, docs, strict=True)]
    batches, rows = list[BatchDecoding](), []
    for number, (comparison, decoding) in enumerate(zip(compared, pipe.decode(docs), strict=True)):
        if decoding.index == 0:
            batches.append(decoding.batch)
        existing = {entity.offsets for entity in decoding.existing}  # existing entities always have the probability 1
        spans, _ = decoding.batch.best_by_text[decoding.index]
        for start, end, index in zip(*(column.tolist() for column in spans[1:]), strict=True):
            offsets = (*decoding.view.char_span(start, end), pipe.labels[index])
            is_right = None if offsets in existing else comparison.is_correct(comparison.key(offsets))
            rows.append((number, labels.index(pipe.labels[index]), is_right))
    counted = np.array([is_right is not None for _, _, is_right in rows], dtype=bool)
    right = np.array([is_right for _, _, is_right in rows if is_right is not None], dtype=bool)
    text, label = np.array([row[:2] for row in rows], dtype=np.int64).reshape(-1, 2)[counted].T
    return Outcomes(batches, counted, label, right, text)


def check_sample_size(outcomes: Outcomes, source: Path) -> None:
    """Raise a UserError if there are not enough correct or incorrect entities to fit a temperature."""
    right = int(outcomes.right.sum())
    wrong = outcomes.right.size - right
    if min(right, wrong) < MIN_OUTCOMES:
        raise UserError(
            f"{source}: too few predicted entities to fit a temperature: {right} correct, {wrong} wrong",
            f"At least {MIN_OUTCOMES} correct and {MIN_OUTCOMES} wrong entities are needed. Annotate more texts, or "
            "calibrate on the training texts: cross-validate the training texts with `tener review CONFIG DATA`, and "
            "pass the output directory of this command with --folds.",
        )


def _check_labels(annotated: set[str], labels: Sequence[str], name: str, source: Path) -> None:
    if not annotated:
        raise UserError(f"{source}: no entities are annotated", "Use texts with annotated entities.")
    if not annotated & set(labels):
        raise UserError(
            f"{source}: none of the annotated labels ({', '.join(sorted(annotated))}) is a label of '{name}' "
            f"({', '.join(labels)})",
            "Use texts that are annotated with the labels of the pipeline.",
        )


# Calibration metrics


@dataclass(frozen=True)
class Bin:
    """Predictions with similar probabilities, as a point in a reliability diagram.

    probability (float): Mean probability of the predictions.
    right (float): Fraction of correct predictions.
    count (int): Number of predictions.
    """

    probability: float
    right: float
    count: int


@dataclass(frozen=True)
class Errors:
    """Metrics that measure how well predicted probabilities match the actual outcomes. Lower is better.

    ece (float): Expected calibration error: the mean absolute difference between probability and accuracy in bins with
        an equal number of predictions.
    brier (float): Brier score: the mean squared error of the probabilities.
    nll (float): Mean negative log-likelihood, in nats.
    count (int): Number of predictions.
    """

    ece: float
    brier: float
    nll: float
    count: int


def bins(probability: Probabilities, right: BoolArray, n_bins: int = BINS) -> list[Bin]:
    """Sort predictions by probability, and divide them into bins with an equal number of predictions.

    probability (Probabilities): Predicted probabilities.
    right (BoolArray): Whether each prediction is correct.
    n_bins (int): Number of bins.
    RETURNS (list[Bin]): The bins that are not empty.
    """
    # Round the probabilities, so that the order of equal probabilities does not depend on rounding errors.
    order = np.argsort(probability.round(6), kind="stable")
    groups = [part for part in np.array_split(order, n_bins) if part.size]
    return [Bin(float(probability[part].mean()), float(right[part].mean()), part.size) for part in groups]


def errors(probability: Probabilities, right: BoolArray) -> Errors:
    """Compute the calibration metrics for one or more predictions.

    probability (Probabilities): Predicted probabilities.
    right (BoolArray): Whether each prediction is correct.
    RETURNS (Errors): The metrics.
    """
    ece = sum(part.count * abs(part.probability - part.right) for part in bins(probability, right)) / right.size
    brier = float(np.square(probability - right).mean())
    return Errors(ece, brier, float(losses(probability, right).mean()), right.size)


def losses(probability: Probabilities, right: BoolArray) -> Probabilities:
    """Return the negative log-likelihood of each prediction.

    Probabilities are clipped, so that the loss is finite even for a wrong prediction with probability 1.

    probability (Probabilities): Predicted probabilities. *Shape:* (counted,)
    right (BoolArray): Whether each prediction is correct. *Shape:* (counted,)
    RETURNS (Probabilities): The losses. *Shape:* (counted,)
    """
    inside = np.clip(probability, _MARGIN, 1.0 - _MARGIN)
    loss: Probabilities = -np.log(np.where(right, inside, 1.0 - inside))
    return loss


# Fitting the temperature and the thresholds


def _scipy() -> Any:
    try:
        import scipy.optimize
        import scipy.stats
    except ImportError as error:
        raise UserError("Calibration requires scipy, which is not installed", f"Run `{install('scipy')}`.") from error
    return scipy


def fit_temperature(outcomes: Outcomes, chosen: BoolArray | None = None) -> float:
    """Fit the CRF's temperature by maximum likelihood (temperature scaling, Guo et al. 2017).

    The temperature divides all emission and transition scores. The likelihood is computed for individual entities
    instead of complete tag sequences, so that a single annotation error does not dominate a text's likelihood.

    outcomes (Outcomes): The predicted entities, and whether they are correct.
    chosen (BoolArray | None): Mask of the entities to use. None for all entities. *Shape:* (counted,)
    RETURNS (float): The temperature.
    """
    right, rows = outcomes.right, slice(None) if chosen is None else chosen

    def loss(log_temperature: float) -> float:
        return float(losses(outcomes.probabilities(math.exp(log_temperature))[rows], right[rows]).mean())

    bounds = math.log(_MIN_TEMPERATURE), math.log(_MAX_TEMPERATURE)
    return math.exp(
        _scipy().optimize.minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 0.005}).x
    )


def cross_validate(outcomes: Outcomes) -> Probabilities:
    """Return calibrated entity probabilities, computed by cross-validation.

    The texts are divided into folds. The entity probabilities in a fold are computed with the temperature that was
    fitted on all other folds.

    outcomes (Outcomes): The predicted entities, and whether they are correct.
    RETURNS (Probabilities): The entity probabilities. *Shape:* (counted,)
    """
    texts, rank = np.unique(outcomes.text, return_inverse=True)
    if len(texts) < 2:
        raise UserError(
            "Cross-validation needs more than one text with entities",
            "Annotate more texts, or pass a test set with --test.",
        )
    probabilities = np.zeros(outcomes.right.size)
    for fold in range(N_FOLDS):
        held_out = rank % N_FOLDS == fold
        probabilities[held_out] = outcomes.probabilities(fit_temperature(outcomes, ~held_out))[held_out]
    return probabilities


@dataclass(frozen=True)
class Threshold:
    """A probability threshold that was fitted for one or more labels.

    labels (list[str]): The labels.
    value (float | None): The threshold. None if no threshold ensures the required precision.
    count (int): Number of predicted entities with these labels.
    n_above (int): Number of predicted entities whose probability reaches the threshold.
    right (int): Number of correct entities among them.
    """

    labels: list[str]
    value: float | None
    count: int
    n_above: int = 0
    right: int = 0


def new_thresholds(
    pipe: TenerNER, outcomes: Outcomes, temperature: float, precision: float, confidence: float
) -> tuple[list[Threshold], dict[str, float]]:
    """Fit probability thresholds for a component's labels.

    Raises a UserError if no threshold can be fitted.

    pipe (TenerNER): The component.
    outcomes (Outcomes): The predicted entities, and whether they are correct.
    temperature (float): The CRF's temperature.
    precision (float): The required precision.
    confidence (float): The confidence level at which the precision must be reached, such as 0.95.
    RETURNS (tuple[list[Threshold], dict[str, float]]): The fitted thresholds, and a dictionary with every label's
        threshold. The threshold is 0 for a label for which none can be fitted. Its current threshold is not kept, since
        it refers to probabilities at another temperature.
    """
    probability = outcomes.probabilities(temperature)
    fitted = fit_thresholds(probability, outcomes.label, outcomes.right, pipe.labels, precision, confidence)
    if all(group.value is None for group in fitted):
        found = pluralize(outcomes.right.size, "entity", "entities")
        raise UserError(
            f"{found} are not enough to ensure --precision {precision}; nothing was saved",
            "Annotate more texts, or set a lower precision.",
        )
    fitted_thresholds = {label: group.value for group in fitted for label in group.labels if group.value is not None}
    return fitted, dict.fromkeys(pipe.labels, 0.0) | fitted_thresholds


def fit_thresholds(
    probability: Probabilities,
    label: IntArray,
    right: BoolArray,
    labels: Sequence[str],
    precision: float,
    confidence: float,
) -> list[Threshold]:
    """Fit a probability threshold for each label that has enough entities, and a shared threshold for all other labels.

    A label needs at least `MIN_ENTITIES` entities for its own threshold.

    probability (Probabilities): The entity probabilities.
    label (IntArray): Label index of each entity.
    right (BoolArray): Whether each entity is correct.
    labels (Sequence[str]): The label names.
    precision (float): The required precision.
    confidence (float): The confidence level at which the precision must be reached.
    RETURNS (list[Threshold]): The thresholds.
    """
    counts = np.bincount(label, minlength=len(labels))
    groups = [[i] for i in range(len(labels)) if counts[i] >= MIN_ENTITIES]
    groups.append([i for i in range(len(labels)) if counts[i] < MIN_ENTITIES])
    found = []
    for group in groups:
        if group:
            is_of_group = np.isin(label, group)
            names = [labels[i] for i in group]
            found.append(_fit_threshold(probability[is_of_group], right[is_of_group], names, precision, confidence))
    return found


def _fit_threshold(
    probability: Probabilities, right: BoolArray, labels: list[str], precision: float, confidence: float
) -> Threshold:
    """Find the lowest probability threshold that ensures the required precision at the confidence level.

    The method is fixed-sequence testing (Learn then Test, Angelopoulos et al. 2021). Candidate thresholds are tested in
    descending order, starting with the threshold that 20 % of the entities reach. For each candidate, an exact binomial
    test is performed. The null hypothesis is that the precision is lower than required. The procedure stops at the
    first candidate whose null hypothesis is not rejected, and returns the candidate before it. No correction for
    multiple testing is needed, because the order of the tests is fixed in advance.
    """
    binom = _scipy().stats.binom
    order = np.argsort(-probability, kind="stable")
    hits = np.cumsum(right[order])
    passed = Threshold(labels, None, right.size)
    first = max(smallest_sample(precision, confidence), right.size // 5)
    for size in range(first, right.size + 1, max(1, right.size // MAX_CANDIDATES)):
        # Round the threshold down, because an entity's probability differs slightly between batches. All entities with
        # the same probability then reach the threshold.
        value = math.floor(float(probability[order[size - 1]]) * 1e4) / 1e4
        count = int((probability >= value).sum())
        # The p-value: the probability of at least this many correct entities if the precision is exactly as required.
        if binom.sf(hits[count - 1] - 1, count, precision) > 1.0 - confidence:
            break
        passed = Threshold(labels, value, right.size, count, int(hits[count - 1]))
    return passed


def smallest_sample(precision: float, confidence: float) -> int:
    """Return the minimum number of entities for which a threshold can be accepted despite one wrong entity.

    The binomial test in `_fit_threshold` is applied to a sample in which all entities except one are correct.

    precision (float): The required precision.
    confidence (float): The required confidence level.
    RETURNS (int): The number of entities.
    """
    binom = _scipy().stats.binom
    return next(n for n in itertools.count(2) if binom.sf(n - 2, n, precision) <= 1.0 - confidence)
