"""Test calibration: outcomes of predicted entities, calibration errors, temperatures and thresholds."""

import math
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import spacy
from spacy.tokens import Span
from spacy.training import Example

from spacy_tener.errors import UserError
from spacy_tener.evaluation.calibration import (
    Outcomes,
    bins,
    check_sample_size,
    cross_validate,
    errors,
    find_outcomes,
    fit_temperature,
    fit_thresholds,
    smallest_sample,
)


def sigmoid(odds):
    return 1.0 / (1.0 + np.exp(-odds))


@dataclass
class SimulatedOutcomes:
    """Simulated outcomes. As in a CRF, the log-odds are divided by the temperature."""

    odds: np.ndarray
    right: np.ndarray
    text: np.ndarray

    def probabilities(self, temperature=1.0):
        return sigmoid(self.odds / temperature)


def simulate(count=4000, *, temperature=2.0, seed=0):
    """Draw correct entities with their probabilities at a temperature."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(1.5, 2.5, count) * temperature
    return SimulatedOutcomes(odds, rng.random(count) < sigmoid(odds / temperature), np.arange(count) // 3)


def test_calibration_errors_equal_manual_calculation():
    probability, right = np.array([0.2, 0.2, 0.9, 0.9]), np.array([False, True, True, True])
    first, second = bins(probability, right, 2)
    assert (first.probability, first.right, first.count) == (pytest.approx(0.2), 0.5, 2)
    assert (second.probability, second.right, second.count) == (pytest.approx(0.9), 1.0, 2)
    found = errors(probability, right)
    assert found.brier == pytest.approx((0.04 + 0.64 + 0.01 + 0.01) / 4)
    assert found.nll == pytest.approx(-np.log([0.8, 0.2, 0.9, 0.9]).mean())
    assert found.count == 4
    assert found.ece == pytest.approx((0.2 + 0.8 + 0.1 + 0.1) / 4)  # bins of one entity each
    assert errors(np.full(25, 0.9), np.ones(25, dtype=bool)).ece == pytest.approx(0.1)  # bins of two or three
    assert errors(np.array([0.0, 1.0]), np.array([True, False])).nll == pytest.approx(-math.log(1e-9))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_fitted_temperature_reduces_calibration_error(temperature):
    outcomes = simulate(temperature=temperature)
    fitted = fit_temperature(outcomes)
    assert fitted == pytest.approx(temperature, rel=0.15)
    before, after = (errors(outcomes.probabilities(temperature), outcomes.right).ece for temperature in (1.0, fitted))
    assert after < 0.03
    assert temperature == 1.0 or before > 2 * after


def test_fitted_temperature_minimizes_log_loss():
    outcomes = simulate(300)
    fitted = fit_temperature(outcomes)
    best = errors(outcomes.probabilities(fitted), outcomes.right).nll
    assert all(best <= errors(outcomes.probabilities(fitted * f), outcomes.right).nll for f in (0.8, 0.95, 1.05, 1.25))


def test_cross_validation_fits_temperature_on_other_folds():
    outcomes = simulate(300)
    found = cross_validate(outcomes)
    for fold in range(5):
        out = outcomes.text % 5 == fold
        np.testing.assert_array_equal(found[out], outcomes.probabilities(fit_temperature(outcomes, ~out))[out])


@pytest.mark.parametrize("texts", [[0, 5], [3, 4, 8]])
def test_few_texts_are_cross_validated_by_leave_one_out(texts):
    outcomes = simulate(120)
    outcomes.text = np.resize(np.array(texts), 120)
    found = cross_validate(outcomes)
    for text in texts:
        out = outcomes.text == text
        np.testing.assert_array_equal(found[out], outcomes.probabilities(fit_temperature(outcomes, ~out))[out])


def draw_sample(count, *, seed, shift=0.0):
    rng = np.random.default_rng(seed)
    probability = rng.beta(4, 1.5, count)
    return probability, rng.random(count) < np.clip(probability - shift, 0.0, 1.0)


@pytest.mark.parametrize("module", ["scipy.optimize", "scipy.stats"])
def test_missing_scipy_raises_error(monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match="pip install scipy"):
        fit_temperature(simulate(40))


def test_smallest_sample_allows_a_single_error():
    count = smallest_sample(0.9, 0.9)
    # The probability of at most one error in this sample and in a smaller one, if 90 % of the entities are correct.
    probability, smaller = (0.9**n + n * 0.1 * 0.9 ** (n - 1) for n in (count, count - 1))
    assert probability <= 0.1 < smaller


@pytest.mark.parametrize("shift", [0.0, 0.05], ids=["calibrated", "too sure"])
def test_threshold_reaches_precision_with_given_confidence(shift):
    """With a confidence of 0.9, at most one in ten samples yields a threshold with a precision below 0.8."""
    n_failed = n_thresholds = 0
    truth, right = draw_sample(200_000, seed=0, shift=shift)
    for seed in range(1, 201):
        probability, hits = draw_sample(400, seed=seed, shift=shift)
        (found,) = fit_thresholds(probability, np.zeros(400, dtype=int), hits, ["A"], 0.8, 0.9)
        if found.value is not None:
            n_thresholds += 1
            n_failed += right[truth >= found.value].mean() < 0.8
    assert n_thresholds > 20
    assert n_failed <= 0.13 * 200


def test_rare_labels_share_a_threshold():
    rng = np.random.default_rng(0)
    label = np.repeat([0, 1, 2], [400, 60, 60])
    probability = rng.random(520)
    right = np.where(label == 0, rng.random(520) < 0.3, rng.random(520) < 0.99)
    first, rest = fit_thresholds(probability, label, right, ["A", "B", "C", "D"], 0.9, 0.9)
    assert (first.labels, rest.labels) == (["A"], ["B", "C", "D"])
    assert (first.value, first.n_above, first.right) == (None, 0, 0)
    assert rest.value is not None
    assert rest.value < 0.2
    assert (rest.count, rest.n_above, rest.right) == (
        120,
        int((probability[label > 0] >= rest.value).sum()),
        int(right[(label > 0) & (probability >= rest.value)].sum()),
    )


def test_threshold_includes_equal_probabilities():
    (found,) = fit_thresholds(np.full(300, 0.9), np.zeros(300, dtype=int), np.arange(300) % 50 > 0, ["A"], 0.9, 0.9)
    assert (found.value, found.n_above, found.right) == (0.9, 300, 294)


def test_threshold_search_stops_at_first_failure():
    """The 80 most probable entities are correct, the next 60 are wrong, and the other 260 are correct: 85 % in all."""
    right = np.repeat([True, False, True], [80, 60, 260])
    (found,) = fit_thresholds(np.linspace(0.99, 0.1, 400), np.zeros(400, dtype=int), right, ["A"], 0.8, 0.9)
    assert 80 <= found.n_above < 140


def test_label_with_100_entities_has_separate_threshold():
    label = np.repeat([0, 1], [100, 99])
    found = fit_thresholds(np.full(199, 0.9), label, np.ones(199, dtype=bool), ["A", "B"], 0.8, 0.9)
    assert [group.labels for group in found] == [["A"], ["B"]]
    found = fit_thresholds(np.full(198, 0.9), label[1:], np.ones(198, dtype=bool), ["A", "B"], 0.8, 0.9)
    assert [group.labels for group in found] == [["A", "B"]]


def test_threshold_requires_significant_binomial_test():
    def tail(right, count=300, precision=0.8):
        """Return the probability of at least this number of correct entities."""
        rest = range(right, count + 1)
        return sum(math.comb(count, k) * precision**k * (1 - precision) ** (count - k) for k in rest)

    minimum = next(right for right in range(301) if tail(right) <= 0.1)
    for right, is_significant in ((minimum, True), (minimum - 1, False)):
        (found,) = fit_thresholds(np.full(300, 0.9), np.zeros(300, dtype=int), np.arange(300) < right, ["A"], 0.8, 0.9)
        assert (found.value is not None) == is_significant


def test_first_threshold_covers_a_fifth_of_entities():
    probability = np.linspace(1.0, 0.0, 1000)
    (found,) = fit_thresholds(probability, np.zeros(1000, dtype=int), np.arange(1000) < 200, ["A"], 0.9, 0.9)
    assert 200 <= found.n_above < 250
    assert found.right == 200


# Outcomes of predicted entities in annotated texts

TEXT, SOURCE = "王小明去了上海", Path("dev.spacy")
PERSON, PLACE = (0, 3, "PER"), (5, 7, "GPE")


@pytest.fixture
def nlp(saved):
    return spacy.load(saved["tener"])


def example(nlp, *entities, missing=(), text=TEXT):
    doc = nlp.make_doc(text)
    doc.set_ents([Span(doc, a, z, label) for a, z, label in entities], missing=[doc[a:z] for a, z in missing])
    return Example(nlp.make_doc(text), doc)


def test_outcomes_have_text_index_and_correctness(nlp):
    """With batches of 200 units, the 40 texts are two batches."""
    nlp.get_pipe("tener_ner").cfg.update(max_units=200)
    examples = [example(nlp, PERSON, *([PLACE] if i % 3 else [])) for i in range(40)]
    found = find_outcomes(nlp, "tener_ner", examples, SOURCE)
    assert len(found.batches) == 2
    labels = nlp.get_pipe("tener_ner").labels
    rows = [(text, label, label == "PER" or text % 3 > 0) for text in range(40) for label in ("PER", "GPE")]
    assert list(zip(found.text, [labels[i] for i in found.label], found.right, strict=True)) == rows
    decodings = nlp.get_pipe("tener_ner").decode(example.predicted for example in examples)
    expected = [entity.probability for decoding in decodings for entity in decoding.entities]
    np.testing.assert_allclose(found.probabilities(), expected, atol=1e-6)
    assert (found.probabilities(4.0) < found.probabilities()).all()


def test_entities_without_annotation_are_not_counted(nlp):
    between = example(nlp, missing=[(3, 5)])
    examples = [example(nlp, missing=[(2, 3)]), example(nlp, PERSON, missing=[(3, 4)]), between]
    found = find_outcomes(nlp, "tener_ner", examples, SOURCE)
    assert found.counted.tolist() == [False, *[True] * 5]
    assert (found.text.tolist(), found.right.tolist()) == ([0, 1, 1, 2, 2], [False, True, False, False, False])
    assert found.probabilities().shape == (5,)


def test_corpus_without_predicted_entities_raises_error(nlp):
    with pytest.raises(UserError, match=r"dev\.spacy: the pipeline predicts no entities"):
        find_outcomes(nlp, "tener_ner", [example(nlp, (0, 1, "PER"), text="去了")], SOURCE)


@pytest.mark.parametrize(("right", "wrong", "is_sufficient"), [(10, 10, True), (9, 10, False), (10, 9, False)])
def test_ten_correct_and_wrong_entities_are_required(right, wrong, is_sufficient):
    mask = np.arange(right + wrong) < right
    outcomes = Outcomes([], mask, mask, mask, mask)
    if is_sufficient:
        check_sample_size(outcomes, SOURCE)
    else:
        with pytest.raises(UserError, match=rf"{right} correct, {wrong} wrong"):
            check_sample_size(outcomes, SOURCE)
