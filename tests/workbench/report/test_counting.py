"""Confusion, against spaCy's own scores of the same documents."""

from __future__ import annotations

import random

import pytest
import spacy
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import prf
from spacy.scorer import get_ner_prf
from spacy.tokens import Doc, Span
from spacy.training import Example
from spacy.vocab import Vocab

from spacy_tener.workbench.report.scores import Confusion, CountingScorer, count_entities, total

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
