"""Scores and counts against spaCy's own, and metrics.json."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st
from made_runs import metrics, prf, write_json
from spacy.scorer import get_ner_prf
from spacy.tokens import Doc, Span, SpanGroup
from spacy.training import Example
from spacy.vocab import Vocab

from spacy_tener.errors import RemedyError
from spacy_tener.pipeline.entities import CHAR_OFFSETS
from spacy_tener.pipeline.scoring import score_char_entities
from spacy_tener.pipeline.settings import CHARS_KEY
from spacy_tener.workbench.scores import (
    METRICS,
    Confusion,
    CountingScorer,
    Score,
    compare_characters,
    compare_tokens,
    count_entities,
    read_scores,
    score_counts,
    total,
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
TEXT = "abcdefgh"
LABELS = ("PER", "PER", "PER", "ORG.NAM")


def random_doc(rng: random.Random, n_cuts: Sequence[int], *, missing: bool) -> Doc:
    """The text cut at random, with random entities and, if asked, tokens without annotation. n_cuts: How often."""
    cuts = sorted(rng.sample(range(1, len(TEXT)), rng.choice(n_cuts)))
    words = [TEXT[start:end] for start, end in zip([0, *cuts], [*cuts, len(TEXT)], strict=True)]
    doc = Doc(VOCAB, words=words, spaces=[False] * len(words))
    bounds = sorted(rng.sample(range(len(words) + 1), 2 * rng.randrange(0, min(len(words) + 1, 5) // 2 + 1)))
    spans = [Span(doc, start, end, rng.choice(LABELS)) for start, end in zip(bounds[::2], bounds[1::2], strict=True)]
    unknown = [doc[i : i + 1] for i in range(len(words)) if missing and rng.random() < 0.2]
    inside = {token.i for span in spans for token in span}
    doc.set_ents(spans, missing=[span for span in unknown if span.start not in inside], default="outside")
    return doc


def random_examples(seed: int, *, exact: bool) -> list[Example]:
    """exact: Whether what is found has edges inside of tokens, too."""
    rng = random.Random(seed)
    examples = [
        Example(random_doc(rng, range(3, 8), missing=False), random_doc(rng, range(1, 6), missing=True))
        for _ in range(4)
    ]
    for doc in (example.predicted for example in examples if exact):
        bounds = sorted(rng.sample(range(len(TEXT) + 1), 4))
        places = list(zip(bounds[::2], bounds[1::2], strict=True))
        spans = [doc.char_span(*place, label=rng.choice(LABELS), alignment_mode="expand") for place in places]
        doc.spans[CHARS_KEY] = SpanGroup(doc, spans=spans, attrs={CHAR_OFFSETS: places})
    return examples


RULES: dict[bool, tuple[Any, Any]] = {
    False: (compare_tokens, get_ner_prf),
    True: (partial(compare_characters, chars_key=CHARS_KEY), score_char_entities),
}


@pytest.mark.parametrize("exact", RULES)
def test_counts_give_the_scores_of_the_scorer(exact: bool) -> None:
    compare, scorer = RULES[exact]
    everything = Confusion(0, 0, 0)
    for seed in range(200):
        examples = random_examples(seed, exact=exact)
        expected = scorer(examples)
        counts_of_docs = [count_entities(example, compare) for example in examples]
        counts = {
            label: total(labels[label] for labels in counts_of_docs if label in labels)
            for label in set().union(*counts_of_docs)
        }
        assert set(counts) == set(expected["ents_per_type"] or {})
        for label, count in counts.items():
            assert prf(*count) == pytest.approx(expected["ents_per_type"][label])
        overall = total(counts.values())
        if sum(overall):
            assert vars(overall.score) == pytest.approx({part: expected[f"ents_{part}"] for part in "prf"})
        everything = total([everything, overall])
    assert min(everything) > 30


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


@pytest.mark.parametrize("metric", METRICS)
def test_scores_are_those_of_the_counts(metric: str) -> None:
    counts = [(6, 2, 4), (0, 3, 1), (0, 0, 0), (5, 0, 0)]
    expected = [getattr(Confusion(*count).score, metric) for count in counts]
    assert score_counts(np.array(counts), metric).tolist() == pytest.approx(expected)
