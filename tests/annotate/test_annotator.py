"""Test that an Annotator adds the entities of `nlp.pipe` to records and tables, and isolates texts with errors."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
import spacy
from small_corpora import rule_pipeline
from spacy.language import Language

from spacy_tener.annotate import AnnotateSettings, Annotator
from spacy_tener.annotate.tasks import BATCH_CHARACTERS, answer_each, batch_by_length
from spacy_tener.errors import InputError, UserError

LONG = "吴重阳在中国银行工作。今天天气很好，王小明去了上海。" * 60
TEXTS = ["王小明去了上海", "", "今天天气很好", LONG, "吴重阳在中国银行工作。", " \n", "京"]
SURROGATE = "王小明\ud800去了"


def spans(row, name="entities"):
    return [(entity["start"], entity["end"], entity["label"]) for entity in row[name]]


@pytest.mark.parametrize("kind", ["tener", "characters"])
def test_annotator_finds_same_entities_as_pipeline(saved, kind) -> None:
    nlp = spacy.load(saved[kind])
    expected = [[(ent.start_char, ent.end_char, ent.label_) for ent in doc.ents] for doc in nlp.pipe(TEXTS)]
    rows = Annotator(saved[kind])([{"key": number, "text": text} for number, text in enumerate(TEXTS)])
    assert [spans(row) for row in rows] == expected
    assert len(expected[3]) > 100
    assert [list(row) for row in rows] == [["key", "text", "entities", "error"]] * len(TEXTS)
    assert [(row["key"], row["text"], row["error"]) for row in rows] == [(n, t, None) for n, t in enumerate(TEXTS)]
    assert all(
        entity["text"] == row["text"][entity["start"] : entity["end"]] for row in rows for entity in row["entities"]
    )


def test_annotator_returns_probabilities_of_component(saved) -> None:
    nlp = spacy.load(saved["tener"])
    rows = Annotator(saved["tener"], AnnotateSettings(probability=True))([{"text": text} for text in TEXTS])
    for row, decoding in zip(rows, nlp.get_pipe("tener_ner").decode(map(nlp.make_doc, TEXTS)), strict=True):
        probabilities = [entity.probability for entity in decoding.entities]
        assert [entity["probability"] for entity in row["entities"]] == pytest.approx(probabilities)


def test_probabilities_require_tener_ner_component() -> None:
    nlp = rule_pipeline(GPE="上海")
    annotator = Annotator("rules")
    annotator.use(nlp)
    assert spans(annotator([{"text": "去上海"}])[0]) == [(1, 3, "GPE")]
    with pytest.raises(UserError, match=r"The pipeline computes no probabilities.*Remove --probability"):
        Annotator("rules", AnnotateSettings(probability=True)).use(nlp)
    with pytest.raises(UserError, match="no component that predicts entities"):
        Annotator("blank").use(spacy.blank("zh"))


def test_invalid_text_gets_error_without_affecting_other_rows(saved) -> None:
    rows = [{"text": "王小明去了上海"}, {"text": SURROGATE}, {"other": 1}, {"text": 7}, {"text": None}, {"text": ""}]
    good, surrogate, missing, number, none, empty = Annotator(saved["tener"])(rows)
    assert good["entities"]
    assert good["error"] is None
    assert (surrogate["text"], surrogate["error"]) == (SURROGATE, "character 4 of the text is a lone surrogate")
    assert missing == {"other": 1, "entities": [], "error": "there is no text"}
    assert number["error"] == "the text is of type int"
    assert none["error"] == "there is no text"
    assert empty == {"text": "", "entities": [], "error": None}


@Language.component("short_only")
def short_only(doc):
    if len(doc.text) > 100:
        raise ValueError("too long")
    return doc


def test_failing_text_in_batch_is_isolated(saved) -> None:
    annotator = Annotator(saved["tener"])
    annotator.nlp.add_pipe("short_only")
    found = annotator([{"text": text} for text in TEXTS])
    assert [bool(row["error"]) for row in found] == [len(text) > 100 for text in TEXTS]
    assert "too long" in found[3]["error"]
    assert [spans(row) for row in found[:3]] == [
        spans(row) for row in Annotator(saved["tener"])([{"text": text} for text in TEXTS[:3]])
    ]


def test_arrow_table_keeps_columns_and_types(saved) -> None:
    texts = [*TEXTS, None]
    table = pa.table({"text": texts, "key": pa.array(range(len(texts)), type=pa.uint8())})
    settings = AnnotateSettings(probability=True)
    annotator = Annotator(saved["tener"], settings)
    found = annotator(table)
    assert found.select(["text", "key"]).equals(table)
    assert found.to_pylist() == annotator(table.to_pylist())
    assert annotator(table.to_batches()[0]).equals(found)
    empty = annotator(table.slice(0, 0))
    assert empty.schema.equals(found.schema)
    assert annotator(pa.table({"key": [1]})).to_pylist()[0]["error"] == "there is no text"


def test_invalid_utf8_in_table_is_error_of_that_row(saved) -> None:
    raw = pa.array([b"\xe4\xba\xac", b"\xed\xa0\x80"], type=pa.binary())
    table = pa.table({"text": pa.Array.from_buffers(pa.string(), 2, raw.buffers())})
    assert [row["error"] is None for row in Annotator(saved["tener"])(table).select(["error"]).to_pylist()] == [
        True,
        False,
    ]


def test_column_name_conflict_is_reported_and_avoided_by_prefix(saved) -> None:
    rows = [{"text": "京", "entities": "mine"}]
    with pytest.raises(UserError, match=r"already have columns named entities.*--prefix"):
        Annotator(saved["tener"])(pa.Table.from_pylist(rows))
    assert "the field entities of the record was overwritten" in Annotator(saved["tener"])(rows)[0]["error"]
    row = Annotator(saved["tener"], AnnotateSettings(prefix="tener_"))(rows)[0]
    assert list(row) == ["text", "entities", "tener_entities", "tener_error"]


def test_pickled_annotator_excludes_pipeline(saved) -> None:
    annotator = Annotator(saved["tener"], AnnotateSettings(text="body"))
    rows = [{"body": "王小明去了上海"}]
    expected = annotator(rows)
    sent = pickle.dumps(annotator)
    assert len(sent) < 1000
    assert pickle.loads(sent)(rows) == expected


def test_errors_survive_pickling() -> None:
    error = InputError("a.txt", "is bad", "Mend it.", line=3)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), type(again), again.__dict__) == (str(error), InputError, error.__dict__)


def test_missing_gpu_raises_error(saved) -> None:
    with pytest.raises(UserError, match="GPU 99 cannot be used"):
        Annotator(saved["tener"], gpu_id=99)([{"text": "京"}])


def test_batches_group_similar_lengths_and_isolate_long_texts() -> None:
    full = BATCH_CHARACTERS
    batches = list(batch_by_length(["x" * length for length in (full, 5, 3000, 2, 9 * full, 3)]))
    assert [[len(text) for text in batch] for batch in batches] == [[2, 3, 5, 3000], [full], [9 * full]]


def test_failing_batch_is_bisected() -> None:
    batch_sizes = []

    def task(texts):
        batch_sizes.append(len(texts))
        return [1 / int(text) for text in texts]

    answers = answer_each(task, ["1"] * 100 + ["0"] + ["2"] * 27)
    assert answers[:100] + answers[101:] == [1.0] * 100 + [0.5] * 27
    assert isinstance(answers[100], ZeroDivisionError)
    assert len(batch_sizes) == 15
