"""Suspected annotation errors: detection, ranking, and files with the results."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import spacy
from spacy.language import Language
from spacy.tokens import Doc

from spacy_tener.pipeline.entities import FoundEntity
from spacy_tener.review.page import docs_jsonl, suspected_errors_jsonl
from spacy_tener.review.suspected_errors import (
    ReviewedDoc,
    SuspectedError,
    disagreements,
    find_suspected_errors,
    rank_suspected_errors,
)

TEXT = "王小明去了上海"
Span = tuple[int, int, str]


def entity(start: int, end: int, label: str, probability: float) -> FoundEntity:
    return FoundEntity(start, end, label, probability)


PER, ORG = entity(0, 3, "PER", 0.9), entity(0, 3, "ORG", 0.05)
SHORT, GPE = entity(0, 2, "PER", 0.03), entity(5, 7, "GPE", 0.8)


@pytest.mark.parametrize(
    ("gold", "found", "kind"),
    [
        ([ORG], [PER], "label"),
        ([SHORT], [PER], "edges"),
        ([], [GPE], "missing"),
        ([ORG], [], "extra"),
        ([SHORT, entity(2, 3, "GPE", 0.2)], [PER], "edges"),
    ],
)
def test_overlapping_entities_form_one_error(gold: list[FoundEntity], found: list[FoundEntity], kind: str) -> None:
    (error,) = disagreements(3, gold, found)
    assert (error.doc, error.kind, error.suspicion) == (3, kind, 0.0), "not ranked yet"
    assert (list(error.gold), list(error.found)) == (gold, found)
    assert (error.start, error.end) == ((5, 7) if found == [GPE] else (0, 3))


def test_low_recall_lowers_suspicion_of_extra_entities() -> None:
    docs = [gold((0, 3, "PER"), (5, 7, "GPE")), gold((0, 3, "PER"), (5, 7, "GPE"))]
    errors = [SuspectedError(0, (ORG,), (PER,)), SuspectedError(0, (), (GPE,)), SuspectedError(1, (ORG,), ())]
    of_docs = [ReviewedDoc(n, doc, 0.5, tuple(d for d in errors if d.doc == n), 0) for n, doc in enumerate(docs)]
    found = rank_suspected_errors(of_docs)
    assert [(entity.doc, entity.kind) for entity in found] == [(0, "label"), (0, "missing"), (1, "extra")]
    # Two of four gold entities are false negatives.
    assert [entity.suspicion for entity in found] == pytest.approx([0.9 * 0.95, 0.8, 0.5 * 0.95])
    # One of them has a label that the model does not support: two of three are false negatives.
    found = rank_suspected_errors([of_docs[0], replace(of_docs[1], unknown=1)])
    assert found[-1].suspicion == pytest.approx(0.95 / 3)
    # If all gold entities are false negatives, the suspicion is 0. A corpus without gold entities has full recall.
    (only,) = rank_suspected_errors([ReviewedDoc(0, gold((0, 3, "ORG")), 0.5, (SuspectedError(0, (ORG,), ()),), 0)])
    (missing,) = rank_suspected_errors([ReviewedDoc(0, gold(), 0.5, (SuspectedError(0, (), (GPE,)),), 0)])
    assert (only.suspicion, missing.suspicion) == (0.0, 0.8)


@pytest.mark.parametrize(
    ("gold", "found", "errors"),
    [
        ([(0, 7, "ORG")], [(0, 7, "ORG"), (0, 2, "GPE")], [((), (0, 2, "GPE"))]),
        ([(0, 7, "ORG"), (0, 2, "GPE")], [(0, 4, "ORG")], [((0, 7, "ORG"), (0, 4, "ORG")), ((0, 2, "GPE"), ())]),
        # One of two labels of a span is wrong.
        ([(0, 2, "GPE"), (0, 2, "PER")], [(0, 2, "GPE"), (0, 2, "ORG")], [((0, 2, "PER"), (0, 2, "ORG"))]),
        # The pair with the largest overlap, and in case of a tie the pair with the same label.
        ([(0, 4, "A")], [(0, 3, "A"), (0, 4, "B")], [((), (0, 3, "A")), ((0, 4, "A"), (0, 4, "B"))]),
        ([(1, 4, "A")], [(0, 4, "B"), (1, 5, "A")], [((), (0, 4, "B")), ((1, 4, "A"), (1, 5, "A"))]),
        # Partially overlapping spans are not paired, since both may be correct.
        ([(0, 4, "A")], [(2, 7, "A")], [((0, 4, "A"), ()), ((), (2, 7, "A"))]),
    ],
)
def test_nested_entities_are_paired_by_overlap(
    gold: list[Span], found: list[Span], errors: list[tuple[Any, Any]]
) -> None:
    sides = [[entity(*span, 0.5) for span in side] for side in (gold, found)]
    pairs = {
        tuple(side[0].offsets if side else () for side in (d.gold, d.found))
        for d in disagreements(0, *sides, nested=True)
    }
    assert pairs == set(errors)


def test_equal_entities_agree_and_adjacent_errors_are_separate() -> None:
    agreed = entity(0, 3, "PER", 0.2)
    assert list(disagreements(0, [agreed], [PER])) == []
    annotated, found = entity(3, 5, "X", 0.1), entity(5, 7, "X", 0.9)
    assert [(d.start, d.end) for d in disagreements(0, [agreed, annotated], [PER, found])] == [(3, 5), (5, 7)]


@pytest.fixture(scope="module")
def nlp(saved: dict[str, Path]) -> Language:
    return spacy.load(saved["tener"])


def gold(*spans: Span, missing: tuple[int, int] = (0, 0)) -> Doc:
    """Create gold annotation whose vocabulary is not shared with the model."""
    doc = spacy.blank("zh").make_doc(TEXT)
    ents = [doc.char_span(start, end, label=label) for start, end, label in spans]
    doc.set_ents(ents, missing=[doc[slice(*missing)]] if missing[1] else [], default="outside")  # type: ignore[list-item]
    return doc


def reviewed(nlp: Language, doc: Doc) -> ReviewedDoc:
    (answer,) = find_suspected_errors(nlp, [(7, doc)])
    return answer


def test_wrong_gold_entities_are_found(nlp: Language) -> None:
    right = reviewed(nlp, gold((0, 3, "PER"), (5, 7, "GPE")))
    assert right.suspected_errors == ()
    assert right.probability > 0.9
    wrong = reviewed(nlp, gold((0, 3, "ORG")))
    assert [(error.doc, error.kind, error.start, error.end) for error in wrong.suspected_errors] == [
        (7, "label", 0, 3),
        (7, "missing", 5, 7),
    ]
    assert wrong.probability < 0.01
    assert min(error.suspicion for error in rank_suspected_errors([right, wrong])) > 0.8


def test_results_do_not_depend_on_the_batch(
    nlp: Language, encoded_batches: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(nlp.get_pipe("tener_ner").cfg, "max_units", 200)
    docs = [gold((0, 3, "ORG")), gold((0, 3, "PER"), (5, 7, "GPE")), gold(missing=(3, 5)), Doc(nlp.vocab), gold()]
    alone = [reviewed(nlp, doc) for doc in docs]
    encoded_batches.clear()
    together = list(find_suspected_errors(nlp, [(7, doc) for doc in docs * 60]))
    assert len(encoded_batches) > 5
    assert [text for group in encoded_batches for text in group] == [doc.text for doc in docs * 60]
    for found, expected in zip(together, alone * 60, strict=True):
        assert [(error.kind, error.start, error.end) for error in found.suspected_errors] == [
            (error.kind, error.start, error.end) for error in expected.suspected_errors
        ]
        assert probabilities(found) == pytest.approx(probabilities(expected), abs=1e-6)


def probabilities(doc: ReviewedDoc) -> list[float]:
    entities = [entity for error in doc.suspected_errors for entity in (*error.gold, *error.found)]
    return [doc.probability, *(entity.probability or 0.0 for entity in entities)]


def test_missing_annotation_is_not_an_error(nlp: Language) -> None:
    partial = reviewed(nlp, gold((0, 3, "PER"), missing=(5, 7)))
    assert partial.suspected_errors == ()
    assert partial.probability > 0.9
    between = reviewed(nlp, gold(missing=(3, 5)))
    assert [(error.kind, error.start, error.end) for error in between.suspected_errors] == [
        ("missing", 0, 3),
        ("missing", 5, 7),
    ]


def test_unknown_labels_are_counted(nlp: Language) -> None:
    hero = reviewed(nlp, gold((0, 3, "HERO"), (5, 7, "GPE")))
    assert (hero.suspected_errors, hero.unknown) == ((), 1)


def test_corpus_is_unchanged(nlp: Language) -> None:
    doc = Doc(nlp.vocab, words=["王小明", "去了", "上海"], spaces=[False] * 3, ents=["B-PER", "O", "B-GPE"])
    before = doc.to_bytes()
    reviewed(nlp, doc)
    assert doc.to_bytes() == before


def test_gold_tokens_are_used_with_gold_preproc(nlp: Language) -> None:
    characters = gold((0, 3, "PER"), (5, 7, "GPE"))
    words = Doc(nlp.vocab, words=["王小明", "去了", "上海"], spaces=[False] * 3, ents=["B-PER", "O", "B-GPE"])
    by_words, by_characters = reviewed(nlp, words), reviewed(nlp, characters)
    assert by_words.suspected_errors == by_characters.suspected_errors == ()
    assert by_words.probability == pytest.approx(by_characters.probability)
    nlp.config["corpora"]["dev"]["gold_preproc"] = True
    try:
        assert reviewed(nlp, words).probability < by_words.probability / 2
    finally:
        nlp.config["corpora"]["dev"]["gold_preproc"] = False


def test_jsonl_has_one_line_per_error() -> None:
    errors = [SuspectedError(0, (SHORT,), (PER,)), SuspectedError(0, (), (GPE,))]
    doc = ReviewedDoc(0, gold((0, 2, "PER")), 0.25, tuple(errors), 0)
    records = [json.loads(line) for line in suspected_errors_jsonl(errors, {0: doc}).splitlines()]
    assert [(record["kind"], record["span"]) for record in records] == [("edges", "王小明"), ("missing", "上海")]
    assert [record["found"] for record in records] == [[vars(PER)], [vars(GPE)]]
    lines = docs_jsonl([replace(doc, number=1, probability=0.5), doc]).splitlines()
    assert [(json.loads(line)["doc"], json.loads(line)["probability"]) for line in lines] == [(0, 0.25), (1, 0.5)]
    assert "上海" in lines[0]
