"""Test that entities read from Docs have exact offsets and probabilities, also if other components change the Docs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import spacy
from small_corpora import rule_pipeline
from spacy.language import Language
from spacy.tokens import Doc, Span, SpanGroup

from spacy_tener.annotate.tasks import entity_task, k_best_task
from spacy_tener.pipeline.entities import RECORD_KEY, FoundEntity, UnitEntity, add_entities, read_entities
from spacy_tener.pipeline.finding import PipelineNER, entity_labels
from spacy_tener.pipeline.settings import NERSettings
from spacy_tener.pipeline.units import view_of

TEXTS = ["王小明去了上海", "王小明去了上海，今天天气很好。"]


def offsets_and_probabilities(entities: Sequence[FoundEntity]) -> list[tuple[int, int, str, float | None]]:
    return [(*entity.offsets, entity.probability) for entity in entities]


@pytest.mark.parametrize("name", ["tener", "characters"])
def test_merge_entities_component_does_not_change_results(saved: dict[str, Path], name: str) -> None:
    nlp = spacy.load(saved[name])
    entities, answers = entity_task(nlp)(TEXTS), k_best_task(nlp, 3)(TEXTS)
    assert [len(sequences) for _, sequences in answers] == [3, 3]
    assert all(entity.probability is not None for found in entities for entity in found)
    nlp.add_pipe("merge_entities")
    assert (entity_task(nlp)(TEXTS), k_best_task(nlp, 3)(TEXTS)) == (entities, answers)


def test_sourcing_component_under_new_name_keeps_predictions(
    saved: dict[str, Path],
) -> None:
    nlp, sourcing = spacy.load(saved["tener"]), spacy.blank("zh")
    before = k_best_task(nlp, 2)(TEXTS)
    sourcing.add_pipe("tener_ner", name="names", source=nlp)
    assert k_best_task(nlp, 2)(TEXTS) == k_best_task(sourcing, 2)(TEXTS) == before
    assert PipelineNER.of(nlp).before == ()


def test_component_cfg_of_call_does_not_change_component(saved: dict[str, Path]) -> None:
    nlp = spacy.load(saved["tener"])
    settings = {"tener_ner": {"spans_key": "sure"}}
    scored = list(nlp.pipe(TEXTS, component_cfg=settings))
    assert [list(doc.spans["sure"]) for doc in scored] == [list(doc.ents) for doc in scored] != [[], []]
    assert all(0.5 < score <= 1 for doc in scored for score in doc.spans["sure"].attrs["scores"])
    assert [list(doc.spans) for doc in nlp.pipe(TEXTS)] == [[RECORD_KEY], [RECORD_KEY]]
    nlp.get_pipe("tener_ner").cfg["spans_key"] = "own"
    assert [list(doc.spans) for doc in nlp.pipe(TEXTS, component_cfg=settings)] == [[RECORD_KEY, "own"]] * 2


def test_multiple_entities_inside_a_token_are_returned() -> None:
    doc = Doc(spacy.blank("zh").vocab, words=["王小明李"])
    settings = NERSettings(view="characters", spans_key="sure")
    add_entities(view_of(doc, "characters"), [UnitEntity(0, 3, "PER", 0.9), UnitEntity(3, 4, "PER", 0.5)], settings)
    assert [ent.text for ent in doc.ents] == ["王小明李"]
    assert offsets_and_probabilities(read_entities(doc)) == [(0, 3, "PER", 0.9), (3, 4, "PER", 0.5)]


@pytest.mark.parametrize("alignment", ["expand", "contract"])
def test_offsets_are_exact_with_misaligned_tokens(saved: dict[str, Path], alignment: str) -> None:
    nlp = spacy.load(saved["characters"])
    nlp.get_pipe("tener_ner").cfg["alignment_mode"] = alignment  # type: ignore[attr-defined]
    nlp.tokenizer = lambda text: Doc(nlp.vocab, words=["王小", "明去", "了", "上", "海，"], spaces=[False] * 5)
    (found,) = entity_task(nlp)(["王小明去了上海，"])
    assert [entity.offsets for entity in found] == [(0, 3, "PER"), (5, 7, "GPE")]
    assert all(entity.probability < 1.0 for entity in found if entity.probability)


def test_exact_offsets_survive_different_alignment_modes() -> None:
    doc = Doc(spacy.blank("zh").vocab, words=["王小", "明去", "了上", "海，"], spaces=[False] * 4)
    first, second = (NERSettings(view="characters", alignment_mode=mode) for mode in ("expand", "contract"))
    view = view_of(doc, "characters")
    add_entities(view, [UnitEntity(0, 3, "PER")], first)
    add_entities(view, [UnitEntity(4, 7, "GPE")], second)
    assert [ent.text for ent in doc.ents] == ["王小明去", "了上"]
    assert [entity.offsets[:2] for entity in read_entities(doc)] == [(0, 3), (4, 7)]


def test_span_scores_of_other_component_are_ignored() -> None:
    doc = Doc(spacy.blank("zh").vocab, words=["王", "去", "京"], spaces=[False] * 3)
    settings = NERSettings(spans_key="sc")
    doc.ents = [Span(doc, 0, 1, label="PER")]
    doc.spans["sc"] = SpanGroup(doc, name="sc", spans=list(doc.ents), attrs={"scores": [0.4]})
    assert offsets_and_probabilities(read_entities(doc)) == [(0, 1, "PER", None)]
    with pytest.warns(
        UserWarning, match=r"spans\['sc'\] of another component is overwritten.* spans_key for tener_ner"
    ):
        add_entities(view_of(doc, "tokens"), [UnitEntity(2, 3, "GPE", 0.8)], settings)
    assert offsets_and_probabilities(read_entities(doc)) == [(0, 1, "PER", 1.0), (2, 3, "GPE", 0.8)]


def test_entity_labels_accept_component_without_labels() -> None:
    @Language.component("finds_something", assigns=["doc.ents"])
    def component(doc: Doc) -> Doc:
        return doc

    nlp = rule_pipeline(GPE="上海")
    nlp.add_pipe("finds_something")
    assert entity_labels(nlp) == ["GPE"]
