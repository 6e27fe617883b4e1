"""Scores and counts against spaCy's own, metrics.json, and whether two systems differ."""

from __future__ import annotations

import json
import math
import random
import sys
from pathlib import Path

import numpy as np
import pytest
import spacy
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import metrics, prf, write_json
from spacy.scorer import get_ner_prf
from spacy.tokens import Doc, Span
from spacy.training import Example
from spacy.vocab import Vocab

from spacy_tener.errors import RemedyError
from spacy_tener.workbench.report import scores
from spacy_tener.workbench.report.scores import (
    METRICS,
    Confusion,
    CountingScorer,
    Score,
    Summary,
    bootstrap_p,
    count_entities,
    read_scores,
    score_counts,
    summarize,
    total,
    welch_p,
)

COUNTS = {"PER": (6, 2, 4), "ORG": (0, 5, 1)}
NUMBER = st.integers(0, 50)


@given(NUMBER, NUMBER, NUMBER)
def test_score_of_counts_is_by_definition(tp: int, fp: int, fn: int) -> None:
    score = Confusion(tp=tp, fp=fp, fn=fn).score
    expected = prf(tp, fp, fn)
    assert (score.p, score.r, score.f) == pytest.approx((expected["p"], expected["r"], expected["f"]))


def test_counts_of_labels_add_up() -> None:
    assert total([Confusion(1, 2, 3), Confusion(10, 20, 30)]) == Confusion(11, 22, 33)
    assert total([]).score == Score(0.0, 0.0, 0.0)
    assert Confusion(11, 22, 33).gold == 44


def test_everything_is_read(tmp_path: Path) -> None:
    write_json(tmp_path / "m.json", {**metrics(COUNTS, speed=123.5), "token_acc": 1.0})
    read = read_scores(tmp_path / "m.json")
    assert read.overall.p == pytest.approx(6 / 13)
    assert read.overall.r == pytest.approx(6 / 11)
    assert read.overall.f == pytest.approx(12 / 24)
    assert read.labels["PER"] == Score(p=0.75, r=0.6, f=pytest.approx(2 / 3))
    assert read.counts == {"PER": Confusion(6, 2, 4), "ORG": Confusion(0, 5, 1)}
    assert read.speed == 123.5


def test_what_spacy_evaluate_writes_has_no_counts(tmp_path: Path) -> None:
    write_json(tmp_path / "m.json", metrics(COUNTS, speed=None, with_counts=False))
    read = read_scores(tmp_path / "m.json")
    assert read.counts is None
    assert read.speed is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"ents_p": 1,', ["not valid JSON"]),
        ("[1]", ["expected a JSON object", "list"]),
        ('{"ents_p": 1, "ents_r": 1}', ["there is no 'ents_f'", "finds entities"]),
        ('{"ents_p": null, "ents_r": null, "ents_f": null}', ["no scores of entities", "annotated"]),
        ('{"ents_p": 1, "ents_r": 1, "ents_f": "x"}', ["no scores of entities", "'x'"]),
        ('{"ents_p": 1, "ents_r": 1, "ents_f": 1, "ents_per_type": {"A": {"p": 1}}}', ["no scores of entities"]),
        ('{"ents_p": 1, "ents_r": 1, "ents_f": 1, "ents_per_type": [1]}', ["no scores of entities"]),
        ('{"ents_p": 1, "ents_r": 1, "ents_f": 1, "ents_counts": {"A": {"tp": 1}}}', ["no scores of entities"]),
    ],
)
def test_what_is_wrong_is_named_with_its_file(tmp_path: Path, text: str, words: list[str]) -> None:
    path = tmp_path / "metrics.json"
    path.write_text(text, encoding="utf8")
    with pytest.raises(RemedyError) as error:
        read_scores(path)
    for word in [str(path), *words]:
        assert word in str(error.value)


def test_a_file_that_is_not_there_or_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    with pytest.raises(RemedyError, match=r"metrics\.json: cannot be read: No such file or directory\. Check"):
        read_scores(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RemedyError, match=r"metrics\.json: not valid JSON"):
        read_scores(path)


def test_labels_may_be_missing(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps({"ents_p": 1, "ents_r": 0.5, "ents_f": 0.75, "ents_per_type": None}), encoding="utf8")
    assert read_scores(path).labels == {}


VOCAB = Vocab()
TEXT = "abcdefgh" * 3
LABELS = ("PER", "ORG.NAM", "ORG.NOM")


def random_doc(rng: random.Random, *, missing: bool) -> Doc:
    """The text cut at random, with random entities and, if asked, tokens without annotation."""
    cuts = sorted(rng.sample(range(1, len(TEXT)), rng.randrange(8, 20)))
    words = [TEXT[start:end] for start, end in zip([0, *cuts], [*cuts, len(TEXT)], strict=True)]
    doc = Doc(VOCAB, words=words, spaces=[False] * len(words))
    bounds = sorted(rng.sample(range(len(words) + 1), 2 * rng.randrange(0, 4)))
    spans = [Span(doc, start, end, rng.choice(LABELS)) for start, end in zip(bounds[::2], bounds[1::2], strict=True)]
    unknown = [doc[i : i + 1] for i in range(len(words)) if missing and rng.random() < 0.2]
    inside = {token.i for span in spans for token in span}
    doc.set_ents(spans, missing=[span for span in unknown if span.start not in inside], default="outside")
    return doc


def random_examples(seed: int) -> list[Example]:
    rng = random.Random(seed)
    return [Example(random_doc(rng, missing=False), random_doc(rng, missing=True)) for _ in range(4)]


def counted(examples: list[Example]) -> dict[str, dict[str, int]]:
    each = [count_entities(example) for example in examples]
    labels = set().union(*each)
    return {label: total(counts[label] for counts in each if label in counts)._asdict() for label in labels}


@settings(max_examples=40)
@given(st.integers(0, 10_000))
def test_counts_give_the_scores_of_spacy(seed: int) -> None:
    examples = random_examples(seed)
    expected = get_ner_prf(examples)
    counts = counted(examples)
    assert set(counts) == set(expected["ents_per_type"] or {})
    for label, each in counts.items():
        assert prf(**each) == pytest.approx(expected["ents_per_type"][label])
    overall = [sum(each[part] for each in counts.values()) for part in ("tp", "fp", "fn")]
    if sum(overall):
        scores = prf(*overall)
        assert [scores[part] for part in "prf"] == pytest.approx([expected[f"ents_{part}"] for part in "prf"])


def test_the_random_documents_have_something_of_everything() -> None:
    counts = [counted(random_examples(seed)) for seed in range(20)]
    for part in ("tp", "fp", "fn"):
        assert sum(each[part] for count in counts for each in count.values()) > 0


def test_a_hand_made_example() -> None:
    words = list("abcdef")
    predicted, reference = Doc(VOCAB, words=words), Doc(VOCAB, words=words)
    predicted.ents = [Span(predicted, 0, 2, "PER"), Span(predicted, 3, 4, "PER"), Span(predicted, 5, 6, "ORG")]
    reference.ents = [Span(reference, 0, 2, "PER"), Span(reference, 3, 5, "PER"), Span(reference, 5, 6, "LOC")]
    assert count_entities(Example(predicted, reference)) == {
        "LOC": Confusion(tp=0, fp=0, fn=1),
        "ORG": Confusion(tp=0, fp=1, fn=0),
        "PER": Confusion(tp=1, fp=1, fn=1),
    }


def test_a_reference_without_annotation_does_not_count() -> None:
    predicted, reference = Doc(VOCAB, words=["a"]), Doc(VOCAB, words=["a"])
    predicted.ents = [Span(predicted, 0, 1, "PER")]
    assert count_entities(Example(predicted, reference)) == {}


def test_the_scorer_adds_counts_to_what_a_pipeline_is_scored_by() -> None:
    nlp = spacy.blank("zh")
    nlp.add_pipe("entity_ruler").add_patterns([{"label": "PER", "pattern": "王"}])
    text = "王王李"
    examples = [Example.from_dict(nlp.make_doc(text), {"entities": [(0, 1, "PER"), (1, 2, "ORG"), (2, 3, "PER")]})]
    scores = nlp.evaluate(examples, scorer=CountingScorer(nlp))
    assert scores["ents_counts"] == {"ORG": {"tp": 0, "fp": 0, "fn": 1}, "PER": {"tp": 1, "fp": 1, "fn": 1}}
    assert scores["ents_counts_per_doc"] == [(1, 1, 2)]
    plain = nlp.evaluate(examples)
    assert {key: value for key, value in scores.items() if key != "speed"} == {
        **{key: value for key, value in plain.items() if key != "speed"},
        **{key: scores[key] for key in ("ents_counts", "ents_counts_per_doc")},
    }
    assert scores["speed"] > 0


@pytest.fixture
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "RESAMPLES", 1000)


def made(rng: np.random.Generator, *, seeds: int, docs: int, skill: float, spread: float = 0.0) -> np.ndarray:
    """Confusion of a system on documents of 0 to 5 entities; seeds differ in skill. *Shape* [seeds, docs, 3]"""
    gold = np.random.default_rng(docs).integers(6, size=docs)
    found = [rng.binomial(gold, np.clip(skill + spread * rng.normal(), 0, 1)) for _ in range(seeds)]
    wrong = rng.binomial(2, 0.3, size=(seeds, docs))
    return np.stack([np.stack(found), wrong, gold - np.stack(found)], axis=-1)


def test_summary_has_mean_and_deviation() -> None:
    assert summarize([1.0, 2.0, 6.0]) == Summary(mean=3.0, sd=pytest.approx(math.sqrt(7)), n=3)
    assert summarize([5.0]) == Summary(mean=5.0, sd=None, n=1)


@pytest.mark.parametrize("metric", METRICS)
def test_scores_are_those_of_the_counts(metric: str) -> None:
    counts = [(6, 2, 4), (0, 3, 1), (0, 0, 0), (5, 0, 0)]
    expected = [getattr(Confusion(*each).score, metric) for each in counts]
    assert score_counts(np.array(counts), metric).tolist() == pytest.approx(expected)


@pytest.mark.parametrize("seeds", [(1, 1), (2, 3)])
def test_the_bootstrap_is_that_of_a_loop(seeds: tuple[int, int]) -> None:
    """A plain form: documents and seeds drawn one by one, and scored by their sums."""
    rng = np.random.default_rng(0)
    systems = [made(rng, seeds=n, docs=12, skill=skill, spread=0.1) for n, skill in zip(seeds, (0.6, 0.5), strict=True)]

    def f1(counts: np.ndarray) -> float:
        return Confusion(*counts.sum(axis=0).tolist()).score.f

    scored: list[list[list[float]]] = [[], []]
    for _ in range(2000):
        docs = rng.integers(12, size=12)
        for of_system, system in zip(scored, systems, strict=True):
            of_system.append([f1(counts[docs]) for counts in system])
    means: list[list[float]] = [[], []]
    for of_system, system, drawn in zip(scored, systems, means, strict=True):
        n = len(system)
        scale = 0.0
        if n > 1:
            both = np.mean([np.var(each, ddof=1) for each in of_system])
            scale = math.sqrt(max(2 * np.var([f1(counts) for counts in system], ddof=1) - both, 0) / both)
        for each in of_system:
            seed_mean = np.mean([each[rng.integers(n)] for _ in range(max(n - 1, 1))])
            drawn.append(float(np.mean(each) + scale * (seed_mean - np.mean(each))))
    ours, theirs = (np.mean([f1(counts) for counts in system]) for system in systems)
    farther = [abs(x - y - (ours - theirs)) >= abs(ours - theirs) for x, y in zip(*means, strict=True)]
    expected = float(np.mean(farther))
    assert 0.02 < expected < 0.98
    assert bootstrap_p(*systems, "f") == pytest.approx(expected, abs=4 * math.sqrt(expected / 2000))


@pytest.mark.parametrize(("seeds", "spread"), [(1, 0.0), (4, 0.0), (4, 0.03)])
@pytest.mark.usefixtures("few_resamples")
def test_without_a_difference_p_is_spread_evenly(seeds: int, spread: float) -> None:
    rng = np.random.default_rng(1)
    trials = [[made(rng, seeds=seeds, docs=80, skill=0.6, spread=spread) for _ in range(2)] for _ in range(200)]
    found = np.array([bootstrap_p(ours, theirs, "f") for ours, theirs in trials])
    assert (found <= 0.05).mean() < 0.1
    for level in (0.3, 0.5, 0.8):
        assert (found <= level).mean() == pytest.approx(level, abs=0.13)


@pytest.mark.usefixtures("few_resamples")
def test_a_plain_difference_is_seen_and_its_sign_is_of_no_matter() -> None:
    rng = np.random.default_rng(2)
    good, bad = (made(rng, seeds=3, docs=80, skill=skill, spread=0.02) for skill in (0.8, 0.5))
    assert bootstrap_p(good, bad, "f") == bootstrap_p(bad, good, "f") == 1 / 1001
    assert bootstrap_p(good, good, "f") == 1.0


@pytest.mark.usefixtures("few_resamples")
def test_seeds_count_beside_documents() -> None:
    """Where seeds are far apart, the same mean difference says less."""
    rng = np.random.default_rng(3)
    near = [made(rng, seeds=4, docs=300, skill=skill) for skill in (0.6, 0.5)]
    # The same sums of right entities over all seeds, but the first two seeds found more of them, the others fewer.
    moved = np.minimum(near[0][:2, :, 0] // 3, near[0][2:, :, 2])
    far = [near[0].copy(), near[1]]
    for part, change in ((0, -moved), (2, moved)):
        far[0][:2, :, part] += change
        far[0][2:, :, part] -= change
    assert bootstrap_p(*near, "f") < 0.01 < bootstrap_p(*far, "f")


def test_welchs_test_is_that_of_unequal_variances() -> None:
    # t = -2 / sqrt(1/3 + 4/3) with 2.94 degrees of freedom; with the 4 of equal variances it were 0.1963.
    ours, theirs = [1.0, 2.0, 3.0], [2.0, 4.0, 6.0]
    assert welch_p(ours, theirs) == pytest.approx(0.2209, abs=1e-4)
    assert welch_p(theirs, ours) == welch_p(ours, theirs)
    assert welch_p([1.0, 2.0], theirs) is not None, "two seeds have a deviation"


@pytest.mark.parametrize("values", [([1.0], [2.0, 3.0]), ([1.0, 1.0], [2.0, 2.0])])
def test_without_a_deviation_there_is_no_test(values: tuple[list[float], list[float]]) -> None:
    assert welch_p(*values) is None


def test_without_scipy_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    with pytest.raises(RemedyError, match=r"pip install 'spacy_tener\[stats\]'"):
        welch_p([1.0, 2.0], [3.0, 5.0])
