"""Apply the decisions of a review to Docs. Decisions that do not fit the current annotation are reported."""

from __future__ import annotations

from typing import Any

import pytest
import spacy
from spacy.tokens import Doc

from spacy_tener.review.page import apply_decisions

TEXT = "王小明去了上海"


@pytest.fixture
def doc() -> Doc:
    """A Doc with two entities, in which the annotation of 去 is missing."""
    doc = spacy.blank("zh").make_doc(TEXT)
    spans = [doc.char_span(0, 3, "PER"), doc.char_span(5, 7, "GPE", kb_id="Q8686")]
    doc.set_ents(spans, missing=[doc[3:4]], default="outside")
    return doc


def decide(
    doc: Doc, *places: tuple[Any, Any], number: int = 0, text: str = TEXT, **keys: bool
) -> tuple[int, int, list[str]]:
    decisions = [{"gold": gold, "entities": entities} for gold, entities in places]
    applied = apply_decisions([doc], [{"text": text, "doc": number, "decisions": decisions, **keys}])
    return applied.changed, applied.unchanged, applied.rejected


def entities(doc: Doc) -> list[tuple[str, str, str]]:
    return [(ent.text, ent.label_, ent.kb_id_) for ent in doc.ents]


def test_undecided_entities_keep_attributes(doc: Doc) -> None:
    assert decide(doc, ([[0, 3, "PER"]], [[1, 3, "ORG"]])) == (1, 0, [])
    assert entities(doc) == [("小明", "ORG", ""), ("上海", "GPE", "Q8686")]
    assert [token.ent_iob_ for token in doc] == ["O", "B", "I", "", "O", "B", "I"]


def test_entity_can_extend_into_removed_entity(doc: Doc) -> None:
    assert decide(doc, ([], [[3, 6, "X"]]), ([[5, 7, "GPE"]], [])) == (2, 0, [])
    assert entities(doc) == [("王小明", "PER", ""), ("去了上", "X", "")]


def test_decisions_equal_to_annotation_change_nothing(doc: Doc) -> None:
    before = doc.to_json()
    matching_decisions = [([[0, 3, "PER"]], [[0, 3, "PER"]]), ([[3, 4, "X"]], []), ([[5, 7, "LOC"]], [[5, 7, "GPE"]])]
    assert decide(doc, *matching_decisions) == (0, 3, [])
    assert doc.to_json() == before


def test_span_groups_are_updated_by_decisions(doc: Doc) -> None:
    nested = doc.char_span(0, 1, "SURNAME")
    doc.spans["sc"] = [nested, *doc.ents]
    doc.spans["incorrect_spans"] = [doc.char_span(1, 3, "PER"), doc.char_span(5, 6, "GPE")]
    assert decide(doc, ([[0, 3, "PER"]], [[1, 3, "PER"]]), ([[5, 7, "GPE"]], [[5, 7, "GPE"]])) == (1, 1, [])
    assert [(span.text, span.label_) for span in doc.spans["sc"]] == [
        ("王", "SURNAME"),
        ("小明", "PER"),
        ("上海", "GPE"),
    ]
    assert [(span.text, span.label_) for span in doc.spans["incorrect_spans"]] == [("上", "GPE")]


PER, GPE = "王小明 PER", "上海 GPE"


@pytest.mark.parametrize(
    ("places", "group", "tags"),
    [
        ([([], [[5, 6, "X"]])], [PER, "上 X", GPE], "BII-OBI"),
        ([([], [[0, 3, "ORG"]])], ["王小明 ORG", PER, GPE], "BII-OBI"),
        ([([], [[4, 7, "ORG"]])], [PER, "了上海 ORG", GPE], "BII-BII"),
        ([([], [[0, 1, "X"]]), ([[0, 3, "PER"]], [])], ["王 X", GPE], "BOO-OBI"),
        # `doc.ents` contains the longest of partially overlapping entities. As after `convert`, annotation is missing
        # in the rest of the other entities.
        ([([], [[2, 5, "X"]])], [PER, "明去了 X", GPE], "BII--BI"),
        ([([], [[1, 6, "X"]])], [PER, "小明去了上 X", GPE], "-BIIII-"),
    ],
)
def test_nested_decisions_update_span_group_and_outermost_entities(
    doc: Doc, places: Any, group: list[str], tags: str
) -> None:
    assert decide(doc, *places, nested=True)[2][0].endswith("convert the corpus with `--overlap spans`")
    doc.spans["sc"] = list(doc.ents)
    for answer in ((len(places), 0, []), (0, len(places), [])):
        assert decide(doc, *places, nested=True) == answer
        assert sorted(f"{span.text} {span.label_}" for span in doc.spans["sc"]) == sorted(group)
        assert "".join(token.ent_iob_ or "-" for token in doc) == tags
    assert tags.endswith("BI") == (("上海", "GPE", "Q8686") in entities(doc))


@pytest.mark.parametrize("is_reversed", [False, True])
def test_entity_can_be_removed_and_restored(doc: Doc, is_reversed: bool) -> None:
    before = doc.to_json()
    removed, restored = ([[5, 7, "GPE"]], []), ([], [[5, 7, "GPE"]])
    assert decide(doc, *((restored, removed) if is_reversed else (removed, restored))) == (1, 1, [])
    assert doc.to_json() == before


def test_conflict_with_existing_entity_is_reported(doc: Doc) -> None:
    first, second = ([[5, 7, "GPE"]], [[4, 6, "X"]]), ([[5, 7, "OLD"]], [[5, 7, "GPE"]])
    assert decide(doc, first, second) == (1, 0, [f"'{TEXT}': 上海 GPE: another entity is there"])
    assert entities(doc) == [("王小明", "PER", ""), ("了上", "X", "")]


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        (([[0, 2, "PER"]], []), "王小 PER: the annotation has changed"),
        (([[0, 2, "PER"]], [[0, 1, "X"]]), "王小 PER: the annotation has changed"),
        (([], [[2, 4, "X"]]), "明去 X: another entity is there"),
        (([[0, 3, "PER"]], [[0, 7, "X"]]), "王小明去了上海 X: another entity is there"),
    ],
)
def test_outdated_or_overlapping_decisions_are_rejected(doc: Doc, place: Any, reason: str) -> None:
    before = doc.to_json()
    changed, _, rejected = decide(doc, place)
    assert (changed, rejected) == (0, [f"'{TEXT}': {reason}"])
    assert doc.to_json() == before


def test_misaligned_entities_are_rejected() -> None:
    doc = spacy.blank("en").make_doc("Berlin calls")
    assert decide(doc, ([], [[0, 3, "X"]]), text=doc.text)[2] == [
        "'Berlin calls': Ber X: it does not align with tokens"
    ]
    assert not doc.ents


def test_moved_text_is_found_unless_duplicated(doc: Doc) -> None:
    assert decide(doc, ([[0, 3, "PER"]], []), number=7) == (1, 0, [])
    record = {"text": TEXT, "doc": 7, "decisions": [{"gold": [], "entities": []}]}
    assert apply_decisions([doc, doc.copy()], [record]).rejected == [f"'{TEXT}': the corpus has this text 2 times"]
