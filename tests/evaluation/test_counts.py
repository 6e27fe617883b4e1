"""Test counts of true positives, false positives and false negatives against spaCy's scores."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import spacy
from run_directories import prf
from spacy.scorer import get_ner_prf
from spacy.tokens import Doc, Span
from spacy.training import Example
from spacy.vocab import Vocab

from spacy_tener.evaluation.scores import (
    Confusion,
    CountingScorer,
    compare_characters,
    compare_tokens,
    count_confusions,
    count_entities,
    f1_interval,
    total,
)
from spacy_tener.pipeline.entities import UnitEntity, add_entities
from spacy_tener.pipeline.scoring import score_char_entities
from spacy_tener.pipeline.settings import NERSettings
from spacy_tener.pipeline.units import CharacterView

VOCAB = Vocab()
TEXT = "abcdefgh"
LABELS = ("PER", "PER", "PER", "ORG.NAM")


def random_doc(rng: random.Random, n_cuts: Sequence[int], *, missing: bool) -> Doc:
    """Split the text into random tokens, with random entities.

    n_cuts (Sequence[int]): Possible numbers of cuts.
    missing (bool): Whether some tokens have no annotation.
    """
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
    """Return random examples. With `exact`, predicted entities can start and end inside of tokens."""
    rng = random.Random(seed)
    examples = [
        Example(random_doc(rng, range(3, 8), missing=False), random_doc(rng, range(1, 6), missing=True))
        for _ in range(4)
    ]
    for doc in (example.predicted for example in examples if exact):
        bounds = sorted(rng.sample(range(len(TEXT) + 1), 4))
        spans = list(zip(bounds[::2], bounds[1::2], strict=True))
        entities = [UnitEntity(*span, rng.choice(LABELS)) for span in spans]
        doc.set_ents([], default="missing")
        add_entities(CharacterView(doc), entities, NERSettings(view="characters"))
    return examples


RULES: dict[bool, tuple[Any, Any]] = {
    False: (compare_tokens, get_ner_prf),
    True: (compare_characters, score_char_entities),
}


@pytest.mark.parametrize("exact", RULES)
def test_counts_reproduce_scores(exact: bool) -> None:
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
            assert prf(*overall) == pytest.approx({part: expected[f"ents_{part}"] for part in "prf"})
        everything = total([everything, overall])
    assert min(everything) > 30


def test_missing_annotation_is_not_counted() -> None:
    predicted, reference = Doc(VOCAB, words=["a"]), Doc(VOCAB, words=["a"])
    predicted.ents = [Span(predicted, 0, 1, "PER")]
    assert count_entities(Example(predicted, reference)) == {}


def test_scorer_adds_counts() -> None:
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
        **{key: scores[key] for key in ("ents_counts", "ents_counts_per_doc", "ents_f_interval")},
    }
    assert scores["speed"] > 0


def test_interval_contains_f1_and_narrows_with_more_texts() -> None:
    counts = [Confusion(2, 1, 0), Confusion(1, 0, 1), Confusion(3, 0, 0), Confusion(0, 1, 2)]
    low, high = f1_interval(counts) or (0.0, 0.0)
    f1 = 2 * 6 / (2 * 6 + 2 + 3)
    assert 0.0 <= low < f1 < high <= 1.0
    narrow_low, narrow_high = f1_interval(counts * 25) or (0.0, 0.0)
    assert low < narrow_low < f1 < narrow_high < high
    assert (narrow_high - narrow_low) == pytest.approx((high - low) / 5, rel=0.5)


def test_interval_covers_true_f1_in_most_samples() -> None:
    rng = np.random.default_rng(1)
    # Each text has two gold entities. Each is found with probability 0.8, and each text has a false positive with 0.2.
    tp, fp = 2 * 0.8, 0.2
    true = 2 * tp / (2 * tp + fp + (2 - tp))
    covered = 0
    for _ in range(200):
        found, extra = rng.binomial(2, 0.8, 80), rng.random(80) < 0.2
        docs = [Confusion(int(t), int(f), 2 - int(t)) for t, f in zip(found, extra, strict=True)]
        low, high = f1_interval(docs) or (0.0, 0.0)
        covered += low <= true <= high
    assert 0.9 <= covered / 200 <= 0.99


@pytest.mark.parametrize("counts", [[], [Confusion(1, 0, 0)], [Confusion(1, 0, 0), Confusion(0, 0, 0)]])
def test_interval_needs_two_texts_with_entities(counts: list[Confusion]) -> None:
    assert f1_interval(counts) is None


def test_entities_are_counted_by_label() -> None:
    gold, found = {(0, 2, "PER"), (3, 5, "ORG")}, {(0, 2, "PER"), (3, 5, "PER"), (6, 7, "GPE")}
    assert count_confusions(gold, found) == {
        "PER": Confusion(1, 1, 0),
        "ORG": Confusion(0, 0, 1),
        "GPE": Confusion(0, 1, 0),
    }
