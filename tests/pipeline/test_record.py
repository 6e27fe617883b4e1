"""The record of entities in a Doc: contents, serialization, and entities of several components."""

import pickle

import pytest
import spacy
from spacy.tokens import Doc, DocBin, Span

from spacy_tener.annotate.tasks import entity_task
from spacy_tener.explain import explain
from spacy_tener.pipeline.entities import RECORD_KEY, UnitEntity, add_entities, read_entities, without_entities
from spacy_tener.pipeline.entity_lists import EntityLists
from spacy_tener.pipeline.settings import NERSettings
from spacy_tener.pipeline.units import view_of
from spacy_tener.review.active_learning import Suggestion, make_tasks

TEXT = "吴重阳在中国银行工作。"
FOUND = [(0, 3, "PER"), (4, 8, "ORG")]


@pytest.fixture
def pipeline_with_long_tokens(learned):
    """Create a pipeline with `view = "characters"`, whose tokenizer merges a person and an organization."""

    def make(**config):
        nlp = learned(view="characters", **config)
        nlp.tokenizer = lambda text: Doc(nlp.vocab, words=["吴重阳在中国银行", "工作。"], spaces=[False, False])
        return nlp

    return make


def make_doc(words):
    return Doc(spacy.blank("zh").vocab, words=words, spaces=[False] * len(words))


def add(doc, *entities, nested=False, **settings):
    add_entities(
        view_of(doc, settings.get("view", "tokens")),
        [UnitEntity(*entity) for entity in entities],
        NERSettings(**settings),
        nested=nested,
    )
    return doc


def rows(doc, *names):
    return [tuple(getattr(entity, name) for name in names) for entity in read_entities(doc)]


def offsets(doc):
    return rows(doc, "start", "end", "label")


def test_entities_inside_single_token_are_all_returned(pipeline_with_long_tokens):
    nlp = pipeline_with_long_tokens()
    assert [(ent.text, ent.label_) for ent in nlp(TEXT).ents] == [("吴重阳在中国银行", "ORG")]
    (found,) = entity_task(nlp)([TEXT])
    assert [entity.offsets for entity in found] == FOUND
    assert all(0.5 < entity.probability < 1 for entity in found)
    (task,) = make_tasks(nlp, [Suggestion({"text": TEXT}, 1.0)], ["PER", "ORG"])
    assert [entity.offsets for entity in task.entities] == FOUND
    (explained,) = explain(nlp, TEXT).texts
    assert [(*entity.offsets, entity.is_in_output) for entity in explained.entities] == [(*e, True) for e in FOUND]


def test_second_component_keeps_existing_char_offsets(pipeline_with_long_tokens):
    nlp = pipeline_with_long_tokens()
    doc = nlp(TEXT)
    add(doc, (9, 11, "ACT", 0.7), view="characters", spans_key="sc")
    assert offsets(doc) == [*FOUND, (9, 11, "ACT")]
    group = doc.spans["tener_ner_chars"]
    offsets_and_spans = zip(group.attrs["char_offsets"], group, strict=True)
    assert [(*char_offsets, span.label_) for char_offsets, span in offsets_and_spans] == offsets(doc)


def test_shared_span_group_keeps_nested_entities():
    doc = make_doc(list("他在北京大学医学院工作"))
    add(doc, (2, 9, "ORG", 0.9), (2, 6, "ORG", 0.8), (2, 4, "GPE", 0.7), nested=True, spans_key="sc")
    add(doc, (9, 11, "ACT", 0.6), spans_key="sc")
    group = doc.spans["sc"]
    scores = zip(group, group.attrs["scores"].tolist(), strict=True)
    assert [(span.text, span.label_, score) for span, score in scores] == [
        ("北京大学医学院", "ORG", 0.9),
        ("北京大学", "ORG", 0.8),
        ("北京", "GPE", 0.7),
        ("工作", "ACT", 0.6),
    ]
    assert rows(doc, "label", "depth") == [("GPE", 2), ("ORG", 1), ("ORG", 0), ("ACT", 0)]


def test_record_stores_origin_and_probability():
    doc = make_doc(list("王小明和云海一号在京"))
    doc.set_ents([Span(doc, 9, 10, label="GPE")], default="missing")
    lists = EntityLists(doc.vocab)
    lists.add({"云海一号": "PRODUCT"})
    add(lists(doc), (0, 3, "PER", 0.9), spans_key="sc")
    assert rows(doc, "label", "origin", "probability") == [
        ("PER", "model", 0.9),
        ("PRODUCT", "list", 1.0),
        ("GPE", "existing", 1.0),
    ]


def test_record_survives_serialization_and_copying(pipeline_with_long_tokens, tmp_path):
    nlp = pipeline_with_long_tokens(spans_key="sc")
    doc = nlp(TEXT)
    expected = read_entities(doc)
    assert [entity.offsets for entity in expected] == FOUND
    doc.to_disk(tmp_path / "doc")
    DocBin(docs=[doc]).to_disk(tmp_path / "docs.spacy")
    [binned] = DocBin().from_disk(tmp_path / "docs.spacy").get_docs(spacy.blank("zh").vocab)
    loaded = Doc(spacy.blank("zh").vocab).from_disk(tmp_path / "doc")
    for copy in (
        binned,
        loaded,
        Doc(nlp.vocab).from_bytes(doc.to_bytes()),
        doc.copy(),
        pickle.loads(pickle.dumps(doc)),
    ):
        assert read_entities(copy) == expected
    with nlp.memory_zone():
        entities = read_entities(nlp(TEXT))
    assert entities == expected


def test_record_is_returned_from_worker_processes(learned):
    nlp = learned(view="characters", spans_key="sc")
    expected = read_entities(nlp(TEXT))
    for doc in nlp.pipe([TEXT, TEXT], n_process=2):
        assert [entity.offsets for entity in read_entities(doc)] == [entity.offsets for entity in expected] == FOUND
        assert [e.probability for e in read_entities(doc)] == pytest.approx([e.probability for e in expected])


def test_doc_ents_take_precedence_over_record():
    doc = add(make_doc(["王小", "明去", "了", "上海"]), (0, 3, "PER"), (5, 7, "GPE"), view="characters")
    assert offsets(doc) == [(0, 3, "PER"), (5, 7, "GPE")]
    doc.ents = [doc.ents[1], Span(doc, 2, 3, label="X")]
    assert rows(doc, "start", "end", "origin") == [(4, 5, "existing"), (5, 7, "model")]
    doc.ents = []
    assert offsets(doc) == []


def test_removing_outer_entity_removes_nested_entities():
    doc = add(make_doc(list("北京大学在")), (0, 4, "ORG"), (0, 2, "GPE"), nested=True)
    assert offsets(doc) == [(0, 2, "GPE"), (0, 4, "ORG")]
    doc.ents = []
    assert offsets(doc) == []


def test_char_offsets_survive_retokenization():
    doc = add(make_doc(["王小", "明去", "了"]), (0, 3, "PER"), view="characters")
    with doc.retokenize() as retokenizer:
        retokenizer.merge(doc[0:3])
    assert [ent.text for ent in doc.ents] == ["王小明去了"]
    assert offsets(doc) == [(0, 3, "PER")]


def test_misaligned_entities_are_kept_in_record():
    doc = add(make_doc(["王小", "明去", "了"]), (0, 3, "PER"), view="characters", alignment_mode="strict")
    assert not doc.ents
    assert offsets(add(doc, (4, 5, "X"), view="characters")) == [(0, 3, "PER"), (4, 5, "X")]


def test_without_entities_removes_record():
    doc = add(make_doc(["王小", "明去", "了"]), (0, 3, "PER"), view="characters", alignment_mode="strict")
    assert without_entities(doc) is not doc
    assert RECORD_KEY not in without_entities(doc).spans
    assert offsets(doc) == [(0, 3, "PER")]


def test_read_entities_includes_named_span_groups():
    doc = add(make_doc(list("北京大学在")), (0, 4, "ORG"), spans_key="sc")
    doc.spans["spancat"] = [Span(doc, 0, 2, label="GPE"), Span(doc, 0, 4, label="ORG")]
    assert [entity.offsets for entity in read_entities(doc, ["sc", "spancat"])] == [(0, 2, "GPE"), (0, 4, "ORG")]
    doc.spans["spancat"].attrs["scores"] = [0.3, 0.4]
    assert [entity.probability for entity in read_entities(doc, ["spancat"])] == [0.3, None]


def test_docs_without_the_attributes_of_span_groups_are_read():
    """`Doc.to_json`, `Doc.from_docs` and `Example.to_dict` keep span groups, but drop their attributes."""
    nlp = spacy.blank("zh")
    nlp.add_pipe("lac")
    doc = nlp("张三在北京市工作")
    expected = [(ent.start_char, ent.end_char, ent.label_) for ent in doc.ents]
    for copy in (Doc(nlp.vocab).from_json(doc.to_json()), Doc.from_docs([doc])):
        assert [entity.offsets for entity in read_entities(copy)] == expected
        assert [entity.offsets for entity in read_entities(nlp.get_pipe("lac")(copy))] == expected


@pytest.mark.filterwarnings("ignore:.*does not align with tokens")
def test_entities_left_out_by_one_component_are_set_by_the_next():
    nlp = spacy.blank("zh")
    words = ["张三在", "北京", "市", "工作"]
    for name, mode in (("strict", "strict"), ("expand", "expand")):
        nlp.add_pipe("lac", name=name, config={"alignment_mode": mode})
    doc = Doc(nlp.vocab, words=words, spaces=[False] * 4)
    alone = nlp.get_pipe("expand")(doc.copy())
    both = nlp.get_pipe("expand")(nlp.get_pipe("strict")(doc))
    assert [ent.text for ent in both.ents] == [ent.text for ent in alone.ents] == ["张三在", "北京市"]
    assert [entity.offsets for entity in read_entities(both)] == [entity.offsets for entity in read_entities(alone)]


@pytest.mark.filterwarnings("ignore:.*does not align with tokens")
def test_second_run_adds_no_entity_that_overlaps_a_recorded_one():
    nlp = spacy.blank("zh")
    lac = nlp.add_pipe("lac", config={"alignment_mode": "contract"})
    words = ["张三在", "北京", "市工作", "，", "加入中", "国银行", "。"]
    doc = lac(Doc(nlp.vocab, words=words, spaces=[False] * len(words)))
    before = read_entities(doc)
    after = read_entities(lac(doc))
    assert [entity.offsets for entity in after] == [entity.offsets for entity in before]
