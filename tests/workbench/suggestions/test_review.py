"""Where gold annotation and a model disagree, and what is made of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import spacy
from spacy.language import Language
from spacy.tokens import Doc

from spacy_tener.pipeline.entities import FoundEntity
from spacy_tener.workbench.suggestions.review import (
    Doubt,
    JudgedDoc,
    disagreements,
    judge,
    of_most_suspicious_texts,
    rank_doubts,
)
from spacy_tener.workbench.suggestions.review_page import docs_jsonl, doubts_jsonl

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
def test_entities_of_one_place_make_one_doubt_of_a_kind(
    gold: list[FoundEntity], found: list[FoundEntity], kind: str
) -> None:
    (doubt,) = disagreements(3, gold, found)
    assert (doubt.doc, doubt.kind, doubt.suspicion) == (3, kind, 0.0), "not ranked yet"
    assert (list(doubt.gold), list(doubt.found)) == (gold, found)
    assert (doubt.start, doubt.end) == ((5, 7) if found == [GPE] else (0, 3))


def test_entities_that_models_overlook_are_less_suspicious_the_more_they_overlook() -> None:
    docs = [gold((0, 3, "PER"), (5, 7, "GPE")), gold((0, 3, "PER"), (5, 7, "GPE"))]
    doubts = [Doubt(0, (ORG,), (PER,)), Doubt(0, (), (GPE,)), Doubt(1, (ORG,), ())]
    of_docs = [JudgedDoc(n, doc, 0.5, tuple(d for d in doubts if d.doc == n), 0) for n, doc in enumerate(docs)]
    found = rank_doubts(of_docs)
    assert [(entity.doc, entity.kind) for entity in found] == [(0, "label"), (0, "missing"), (1, "extra")]
    # Two of four entities of gold are not found.
    assert [entity.suspicion for entity in found] == pytest.approx([0.9 * 0.95, 0.8, 0.5 * 0.95])
    # One of them has a label that the model does not know: two of three are not found.
    found = rank_doubts([of_docs[0], replace(of_docs[1], unknown=1)])
    assert found[-1].suspicion == pytest.approx(0.95 / 3)
    # The only one of all is not found, and where there is none at all, none is overlooked.
    (only,) = rank_doubts([JudgedDoc(0, gold((0, 3, "ORG")), 0.5, (Doubt(0, (ORG,), ()),), 0)])
    (missing,) = rank_doubts([JudgedDoc(0, gold(), 0.5, (Doubt(0, (), (GPE,)),), 0)])
    assert (only.suspicion, missing.suspicion) == (0.0, 0.8)


def test_what_both_have_is_no_doubt_and_what_touches_only_is_two() -> None:
    agreed = entity(0, 3, "PER", 0.2)
    assert list(disagreements(0, [agreed], [PER])) == []
    annotated, found = entity(3, 5, "X", 0.1), entity(5, 7, "X", 0.9)
    assert [(d.start, d.end) for d in disagreements(0, [agreed, annotated], [PER, found])] == [(3, 5), (5, 7)]


@pytest.fixture(scope="module")
def nlp(saved: dict[str, Path]) -> Language:
    return spacy.load(saved["tener"])


def gold(*spans: Span, missing: tuple[int, int] = (0, 0)) -> Doc:
    """Gold annotation in another vocabulary than the model's."""
    doc = spacy.blank("zh").make_doc(TEXT)
    ents = [doc.char_span(start, end, label=label) for start, end, label in spans]
    doc.set_ents(ents, missing=[doc[slice(*missing)]] if missing[1] else [], default="outside")  # type: ignore[list-item]
    return doc


def judged(nlp: Language, doc: Doc) -> JudgedDoc:
    (answer,) = judge(nlp, [(7, doc)])
    return answer


def test_wrong_gold_is_found_and_right_gold_is_not(nlp: Language) -> None:
    right = judged(nlp, gold((0, 3, "PER"), (5, 7, "GPE")))
    assert right.doubts == ()
    assert right.probability > 0.9
    wrong = judged(nlp, gold((0, 3, "ORG")))
    assert [(doubt.doc, doubt.kind, doubt.start, doubt.end) for doubt in wrong.doubts] == [
        (7, "label", 0, 3),
        (7, "missing", 5, 7),
    ]
    assert wrong.probability < 0.01
    assert min(doubt.suspicion for doubt in rank_doubts([right, wrong])) > 0.8


def test_each_text_is_read_once_and_judged_by_itself(
    nlp: Language, groups_read: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(nlp.get_pipe("tener_ner").cfg, "max_units", 200)
    docs = [gold((0, 3, "ORG")), gold((0, 3, "PER"), (5, 7, "GPE")), gold(missing=(3, 5)), Doc(nlp.vocab), gold()]
    alone = [judged(nlp, doc) for doc in docs]
    groups_read.clear()
    together = list(judge(nlp, [(7, doc) for doc in docs * 60]))
    assert len(groups_read) > 5
    assert [text for group in groups_read for text in group] == [doc.text for doc in docs * 60]
    for found, expected in zip(together, alone * 60, strict=True):
        assert [(doubt.kind, doubt.start, doubt.end) for doubt in found.doubts] == [
            (doubt.kind, doubt.start, doubt.end) for doubt in expected.doubts
        ]
        assert probabilities(found) == pytest.approx(probabilities(expected), abs=1e-6)


def probabilities(doc: JudgedDoc) -> list[float]:
    entities = [entity for doubt in doc.doubts for entity in (*doubt.gold, *doubt.found)]
    return [doc.probability, *(entity.probability or 0.0 for entity in entities)]


def test_tokens_without_annotation_raise_no_doubt(nlp: Language) -> None:
    partial = judged(nlp, gold((0, 3, "PER"), missing=(5, 7)))
    assert partial.doubts == ()
    assert partial.probability > 0.9
    between = judged(nlp, gold(missing=(3, 5)))
    assert [(doubt.kind, doubt.start, doubt.end) for doubt in between.doubts] == [("missing", 0, 3), ("missing", 5, 7)]


def test_labels_that_the_model_does_not_know_are_counted_and_left_out(nlp: Language) -> None:
    hero = judged(nlp, gold((0, 3, "HERO"), (5, 7, "GPE")))
    assert (hero.doubts, hero.unknown) == ((), 1)


def test_tokens_and_gold_of_the_corpus_stay_as_they_are(nlp: Language) -> None:
    doc = Doc(nlp.vocab, words=["王小明", "去了", "上海"], spaces=[False] * 3, ents=["B-PER", "O", "B-GPE"])
    before = doc.to_bytes()
    judged(nlp, doc)
    assert doc.to_bytes() == before


def test_texts_are_read_with_the_tokens_of_the_pipeline_unless_it_was_chosen_on_gold_s(nlp: Language) -> None:
    characters = gold((0, 3, "PER"), (5, 7, "GPE"))
    words = Doc(nlp.vocab, words=["王小明", "去了", "上海"], spaces=[False] * 3, ents=["B-PER", "O", "B-GPE"])
    by_words, by_characters = judged(nlp, words), judged(nlp, characters)
    assert by_words.doubts == by_characters.doubts == ()
    assert by_words.probability == pytest.approx(by_characters.probability)
    nlp.config["corpora"]["dev"]["gold_preproc"] = True
    try:
        assert judged(nlp, words).probability < by_words.probability / 2
    finally:
        nlp.config["corpora"]["dev"]["gold_preproc"] = False


def test_a_page_has_all_doubts_about_the_most_suspicious_texts() -> None:
    ranked = [
        Doubt(doc, (entity(start, start + 1, "PER", 0.1),), ()) for doc, start in ((4, 0), (2, 0), (4, 5), (7, 0))
    ]
    shown = {n: [(doubt.doc, doubt.start) for doubt in of_most_suspicious_texts(ranked, n)] for n in (1, 2, 3)}
    assert shown == {1: [(4, 0), (4, 5)], 2: [(4, 0), (2, 0), (4, 5)], 3: [(4, 0), (2, 0), (4, 5), (7, 0)]}


# The page and the JSON


def doubtful() -> tuple[list[Doubt], dict[int, JudgedDoc]]:
    text = "王<b>&明" + "在" * 100 + "上海"
    doc = spacy.blank("zh").make_doc(text)
    doubts = [
        Doubt(0, (entity(0, 6, "PER", 0.1),), (entity(0, 4, 'A"&<', 0.8),)),
        Doubt(0, (), (entity(len(text) - 2, len(text), "GPE", 0.7),)),
    ]
    return doubts, {0: JudgedDoc(0, doc, 0.25, tuple(doubts), 0)}


def test_the_json_has_a_line_for_each_place_with_the_entities_of_both_sides() -> None:
    doubts, docs = doubtful()
    records = [json.loads(line) for line in doubts_jsonl(doubts, docs).splitlines()]
    assert [(record["kind"], record["span"]) for record in records] == [("edges", "王<b>&明"), ("missing", "上海")]
    assert "上海" in doubts_jsonl(doubts, docs)
    text, found = records[0]["text"], records[0]["found"][0]
    assert text[found["start"] : found["end"]] == "王<b>"
    likely = replace(docs[0], number=1, probability=0.5)
    lines = docs_jsonl([likely, *docs.values()]).splitlines()
    assert [(json.loads(line)["doc"], json.loads(line)["probability"]) for line in lines] == [(0, 0.25), (1, 0.5)]
    assert "上海" in lines[0]
