"""Calibration: fit the temperature and the probability thresholds of a component to annotated texts.

A model is calibrated if a fraction p of the entities that it predicts with the probability p are right.

    outcomes = find_outcomes(nlp, "tener_ner", examples, path)     # predicted entities, right or wrong
    temperature = fit_temperature(outcomes)                        # divides all scores of the CRF
    fit_thresholds(...)                                            # thresholds that ensure a precision
    errors(outcomes.probabilities(temperature), outcomes.right)    # expected calibration error, Brier score

Used by the command `calibrate`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from spacy.language import Language
from spacy.training import Example

from ..errors import RemedyError, counted, install
from ..pipeline.batch_decoding import BatchDecoding, Probabilities
from ..pipeline.entities import without_entities
from ..pipeline.finding import find_crf_pipe
from ..pipeline.scoring import CharComparison
from ..pipeline.tener_ner import TenerNER
from ..types import BoolArray, IntArray

# Minimum number of right entities, and minimum number of wrong entities, to fit a temperature.
MIN_OUTCOMES = 10
N_FOLDS = 5
_MIN_TEMPERATURE, _MAX_TEMPERATURE = 0.1, 20.0

# Approximate number of candidate thresholds that are tested for a group of labels.
MAX_CANDIDATES = 20
# Minimum number of entities with a label to fit a separate threshold. All other labels share a threshold.
MIN_ENTITIES = 100
BINS = 10
_MARGIN = 1e-9

# Mapping of names in a legend to the probabilities of entities and the mask of right entities.
Series = Mapping[str, tuple[Probabilities, BoolArray]]


# Outcomes


@dataclass(frozen=True)
class Outcomes:
    """The entities that a component finds in annotated texts, and whether they are right.

    An entity is counted if its tokens are annotated, and if it isn't an existing entity.

    batches (Sequence[BatchDecoding]): The decoded batches of texts, which compute probabilities at any temperature.
    counted (BoolArray): Mask of the entities that are counted. *Shape:* (found,)
    label (IntArray): Index of the label of each counted entity. *Shape:* (counted,)
    right (BoolArray): Mask of the counted entities that are right. *Shape:* (counted,)
    text (IntArray): Index of the text that contains each counted entity. *Shape:* (counted,)
    """

    batches: Sequence[BatchDecoding]
    counted: BoolArray
    label: IntArray
    right: BoolArray
    text: IntArray

    def probabilities(self, temperature: float = 1.0) -> Probabilities:
        """Return the probability of each counted entity at a temperature. *Shape:* (counted,)"""
        batches = [(replace(batch, temperature=temperature), batch.best) for batch in self.batches]
        counted: Probabilities = np.concatenate([batch.probabilities(best) for batch, best in batches])[self.counted]
        return counted


def find_outcomes(nlp: Language, name: str, examples: Sequence[Example], source: Path) -> Outcomes:
    """Find entities by a component of a pipeline, and compare them with the gold entities.

    name (str): Name of the component. Components before it are run as well.
    source (Path): The file that contains the examples, for messages.
    """
    pipe = find_crf_pipe(nlp, name)
    _check_labels({span.label_ for example in examples for span in example.reference.ents}, pipe.labels, name, source)
    with nlp.select_pipes(enable=list(nlp.pipe_names[: nlp.pipe_names.index(name)])):
        docs = list(nlp.pipe(without_entities(example.predicted) for example in examples))
    key = pipe.overlap_key
    if key is not None and not any(key in example.reference.spans for example in examples):
        remedy = "Convert the corpus with `--overlap spans`, so that nested entities are annotated."
        raise RemedyError(f"{source}: the Docs have no doc.spans['{key}']", remedy)
    compared = [CharComparison(example.reference, doc, key) for example, doc in zip(examples, docs, strict=True)]
    batches, rows = list[BatchDecoding](), []
    for number, (comparison, decoding) in enumerate(zip(compared, pipe.decode(docs), strict=True)):
        if decoding.index == 0:
            batches.append(decoding.batch)
        existing = {entity.offsets for entity in decoding.existing}  # their probability is always 1
        spans, _ = decoding.batch.best_by_text[decoding.index]
        for start, end, index in zip(*(column.tolist() for column in spans[1:]), strict=True):
            offsets = (*decoding.view.char_span(start, end), pipe.labels[index])
            is_right = None if offsets in existing else comparison.is_correct(comparison.key(offsets))
            rows.append((number, index, is_right))
    if not rows:
        raise RemedyError(f"{source}: the pipeline finds no entity", "Use texts with entities of its labels.")
    text, label, comparisons = zip(*rows, strict=True)
    counted = np.array([is_right is not None for is_right in comparisons])
    right = np.array([is_right for is_right in comparisons if is_right is not None], dtype=bool)
    return Outcomes(batches, counted, np.array(label)[counted], right, np.array(text)[counted])


def check_sample_size(outcomes: Outcomes, source: Path) -> None:
    """Raise an error if there are too few right or wrong entities to fit a temperature."""
    right = int(outcomes.right.sum())
    wrong = outcomes.right.size - right
    if min(right, wrong) < MIN_OUTCOMES:
        raise RemedyError(
            f"{source}: too few entities to fit a temperature: {right} right, {wrong} wrong",
            f"Annotate more texts: at least {MIN_OUTCOMES} right and {MIN_OUTCOMES} wrong entities are needed.",
        )


def _check_labels(annotated: set[str], labels: Sequence[str], name: str, source: Path) -> None:
    if not annotated:
        raise RemedyError(f"{source}: no entities are annotated", "Use texts with annotated entities.")
    if not annotated & set(labels):
        raise RemedyError(
            f"{source}: its labels ({', '.join(sorted(annotated))}) are not labels of '{name}' ({', '.join(labels)})",
            "Use texts that are annotated with the labels of the pipeline.",
        )


# Errors of probabilities


@dataclass(frozen=True)
class Bin:
    """A bin of predictions with similar probabilities.

    probability (float): Mean probability.
    right (float): Fraction of right predictions.
    count (int): Number of predictions.
    """

    probability: float
    right: float
    count: int


@dataclass(frozen=True)
class Errors:
    """Errors of probabilities.

    ece (float): Expected calibration error: the mean difference of probability and accuracy over bins of equal size.
    brier (float): Brier score: the mean squared error.
    nll (float): Mean negative log-likelihood, in nats.
    count (int): Number of predictions.
    """

    ece: float
    brier: float
    nll: float
    count: int


def bins(probability: Probabilities, right: BoolArray, n_bins: int = BINS) -> list[Bin]:
    """Divide predictions into bins of equal size, sorted by probability."""
    # Probabilities are rounded, so that rounding errors do not determine the order of equal probabilities.
    order = np.argsort(probability.round(6), kind="stable")
    groups = [part for part in np.array_split(order, n_bins) if part.size]
    return [Bin(float(probability[part].mean()), float(right[part].mean()), part.size) for part in groups]


def errors(probability: Probabilities, right: BoolArray) -> Errors:
    """Return the errors of the probabilities of one or more predictions."""
    ece = sum(part.count * abs(part.probability - part.right) for part in bins(probability, right)) / right.size
    brier = float(np.square(probability - right).mean())
    return Errors(ece, brier, float(losses(probability, right).mean()), right.size)


def losses(probability: Probabilities, right: BoolArray) -> Probabilities:
    """Return the negative log-likelihood of each prediction. It is finite even for errors with the probability 1.

    *Shape:* (counted,)
    """
    inside = np.clip(probability, _MARGIN, 1.0 - _MARGIN)
    loss: Probabilities = -np.log(np.where(right, inside, 1.0 - inside))
    return loss


# Temperature and thresholds


def _scipy() -> Any:
    try:
        import scipy.optimize
        import scipy.stats
    except ImportError as error:
        raise RemedyError("Calibration requires scipy", install("scipy")) from error
    return scipy


def fit_temperature(outcomes: Outcomes, chosen: BoolArray | None = None) -> float:
    """Return the maximum-likelihood temperature of the found entities (temperature scaling, Guo et al. 2017).

    The temperature divides all scores of the CRF. The probabilities are still marginals of one distribution over tag
    sequences. The likelihood is computed for single entities instead of whole sequences, because a single annotation
    error makes a sequence very improbable.

    chosen (BoolArray | None): Mask of the entities to use. None for all entities. *Shape:* (counted,)
    """
    right, rows = outcomes.right, slice(None) if chosen is None else chosen

    def loss(log_temperature: float) -> float:
        return float(losses(outcomes.probabilities(math.exp(log_temperature))[rows], right[rows]).mean())

    bounds = math.log(_MIN_TEMPERATURE), math.log(_MAX_TEMPERATURE)
    return math.exp(
        _scipy().optimize.minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 0.005}).x
    )


def cross_validate(outcomes: Outcomes) -> Probabilities:
    """Return the probability of each entity at the temperature that is fitted to the other folds of the texts.

    *Shape:* (counted,)
    """
    texts, rank = np.unique(outcomes.text, return_inverse=True)
    if len(texts) < 2:
        raise RemedyError(
            "Cross-validation needs more than one text with entities",
            "Annotate more texts, or pass other texts with --test.",
        )
    probabilities = np.zeros(outcomes.right.size)
    for fold in range(N_FOLDS):
        held_out = rank % N_FOLDS == fold
        probabilities[held_out] = outcomes.probabilities(fit_temperature(outcomes, ~held_out))[held_out]
    return probabilities


@dataclass(frozen=True)
class Threshold:
    """A probability threshold for a group of labels.

    labels (list[str]): The labels.
    value (float | None): The threshold. None if no threshold ensures the precision.
    count (int): Number of found entities.
    n_above (int): Number of found entities at or above the threshold.
    right (int): Number of right entities at or above the threshold.
    """

    labels: list[str]
    value: float | None
    count: int
    n_above: int = 0
    right: int = 0


def new_thresholds(
    pipe: TenerNER, outcomes: Outcomes, temperature: float, precision: float, confidence: float
) -> tuple[list[Threshold], dict[str, float]]:
    """Return the fitted thresholds, and the resulting threshold for each label.

    The threshold of a label is 0 if no threshold can be fitted for the label. Its present threshold is not kept, since
    it refers to probabilities at another temperature. Raise an error if no threshold can be fitted for any label.

    precision (float): The required precision.
    confidence (float): The required confidence that the precision is reached.
    """
    probability = outcomes.probabilities(temperature)
    fitted = fit_thresholds(probability, outcomes.label, outcomes.right, pipe.labels, precision, confidence)
    if all(group.value is None for group in fitted):
        found = counted(outcomes.right.size, "entity", "entities")
        raise RemedyError(
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
    """Return a threshold for each label with at least `MIN_ENTITIES` entities, and one for all other labels
    together."""
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
    """Return the lowest threshold that ensures the precision, by fixed-sequence testing.

    Candidates are tested in decreasing order, beginning with the threshold that a fifth of the entities reach. At each
    candidate, an exact binomial test has the null hypothesis that the precision is lower than required. The sequence
    ends at the first candidate for which the hypothesis is not rejected. Therefore the last rejection has the required
    confidence without a correction for multiple tests (Learn then Test, Angelopoulos et al. 2021).
    """
    binom = _scipy().stats.binom
    order = np.argsort(-probability, kind="stable")
    hits = np.cumsum(right[order])
    passed = Threshold(labels, None, right.size)
    first = max(smallest_sample(precision, confidence), right.size // 5)
    for size in range(first, right.size + 1, max(1, right.size // MAX_CANDIDATES)):
        # The threshold is rounded down, because probabilities differ slightly between batches. So all entities with
        # an equal probability reach it.
        value = math.floor(float(probability[order[size - 1]]) * 1e4) / 1e4
        count = int((probability >= value).sum())
        if binom.sf(hits[count - 1] - 1, count, precision) > 1.0 - confidence:
            break
        passed = Threshold(labels, value, right.size, count, int(hits[count - 1]))
    return passed


def smallest_sample(precision: float, confidence: float) -> int:
    """Return the minimum number of entities that ensures a precision with a confidence if one entity is wrong."""
    binom = _scipy().stats.binom
    return next(n for n in itertools.count(2) if binom.sf(n - 2, n, precision) <= 1.0 - confidence)
