"""Test accepted and rejected spans, texts with several annotators, and the loss of this annotation."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import spacy
from conversion import convert
from losses import get_loss
from spacy.tokens import Doc
from spacy.training import Example
from test_corpus_json import annotation, reader_of, task

from spacy_tener.corpora.annotation import AnnotatedText, CorpusError, EntitySpan, Event
from spacy_tener.corpora.docs import INCORRECT, read_docs
from spacy_tener.corpora.reader import CorpusOptions
from spacy_tener.pipeline.entities import offsets_of

TEXT = "吴小明在上海银行工作"
PER, ORG, GPE = (0, 3, "PER"), (4, 8, "ORG"), (4, 6, "GPE")
Span = tuple[int, int, str]


def prodigy_record(answer: str, *spans: Span, text: str = TEXT, **keys: Any) -> dict[str, Any]:
    return {"text": text, "spans": [{"start": s, "end": e, "label": x} for s, e, x in spans], "answer": answer, **keys}


def read_record(folder: Path, record: dict[str, Any], **options: str) -> AnnotatedText:
    (text,) = reader_of(folder, [record], **options)
    assert isinstance(text, AnnotatedText)
    return text


def entities(*spans: Span) -> tuple[EntitySpan, ...]:
    return tuple(EntitySpan(*span) for span in spans)


@pytest.mark.parametrize("mark", [{"_view_id": "ner"}, {"_is_binary": True}, {"_is_binary": True, "_view_id": "other"}])
def test_binary_answer_annotates_only_its_span(tmp_path: Path, mark: dict[str, Any]) -> None:
    answers = [("accept", PER), ("reject", GPE), ("ignore", ORG), ("reject",)]
    reader = reader_of(tmp_path, [prodigy_record(*answer, **mark) for answer in answers])
    accepted, rejected = reader
    assert accepted == AnnotatedText(TEXT, entities(PER), ((0, 10),), 1)
    assert rejected == AnnotatedText(TEXT, (), ((0, 10),), 2, incorrect=entities(GPE))
    assert reader.notes.counts == {Event.BINARY: 2, Event.LEFT_OUT: 2}
    assert reader.notes.examples[Event.BINARY] == [f"line 1: accept '{TEXT}'", f"line 2: reject '{TEXT}'"]


@pytest.mark.parametrize("mark", [{}, {"_view_id": "ner_manual"}, {"_is_binary": False, "_view_id": "ner"}])
def test_non_binary_answer_applies_to_text(tmp_path: Path, mark: dict[str, Any]) -> None:
    reader = reader_of(tmp_path, [prodigy_record("accept", PER, **mark), prodigy_record("reject", GPE, **mark)])
    assert list(reader) == [AnnotatedText(TEXT, entities(PER), (), 1)]
    assert reader.notes.counts == {Event.LEFT_OUT: 1}


def test_span_answer_overrides_record_answer(tmp_path: Path) -> None:
    record = prodigy_record("accept", PER, GPE, (8, 10, "ORG"))
    record["spans"][1]["answer"] = "reject"
    record["spans"][2]["answer"] = "ignore"
    text = read_record(tmp_path, record)
    assert (text.spans, text.incorrect) == (entities(PER), entities(GPE))
    assert text.missing == ((4, 6), (8, 10))


def test_invalid_offsets_of_rejected_span_raise_error(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="span 2-5 is empty or outside of the text"):
        read_record(tmp_path, prodigy_record("reject", (2, 5, "PER"), text="😂张三 ", _is_binary=True))


def test_conflicting_or_unknown_answers_raise_error(tmp_path: Path) -> None:
    record = prodigy_record("accept", PER, PER)
    record["spans"][1]["answer"] = "reject"
    with pytest.raises(CorpusError, match="PER 0-3 '吴小明' is both accepted and rejected"):
        read_record(tmp_path, record)
    with pytest.raises(CorpusError, match="'answer' is not one of accept, reject, ignore: \"maybe\""):
        read_record(tmp_path, prodigy_record("maybe", PER))


@pytest.mark.parametrize(("truth", "chosen"), [(1, "ground truth"), (-1, "the first")])
def test_ground_truth_or_first_annotation_is_used(tmp_path: Path, truth: int, chosen: str) -> None:
    annotations = [annotation([PER]), annotation([ORG], ground_truth=truth == 1)]
    reader = reader_of(tmp_path, [task(annotations, TEXT), task([annotation([PER])], TEXT)])
    text, _ = reader
    assert (text.spans, text.missing) == (entities(ORG if truth == 1 else PER), ())
    assert reader.notes.examples == {Event.SEVERAL: [f"line 1: 2 annotations; read: {chosen}"]}


def convert_records(folder: Path, *records: dict[str, Any], **decisions: str) -> list[Doc]:
    (folder / "in.jsonl").write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    convert([folder / "in.jsonl"], folder / "out.spacy", options=CorpusOptions(**decisions), lang="zh")
    return list(read_docs(folder / "out.spacy"))


@pytest.mark.parametrize(
    ("spans", "binary", "group"), [((ORG,), True, None), ((ORG, GPE), True, [GPE, ORG]), ((ORG,), False, [ORG])]
)
def test_binary_answer_does_not_annotate_nested_entities(
    tmp_path: Path, spans: Sequence[Span], binary: bool, group: list[Span] | None
) -> None:
    (doc,) = convert_records(tmp_path, prodigy_record("accept", *spans, _is_binary=binary), overlap="spans")
    assert [offsets_of(ent) for ent in doc.ents] == [ORG]
    assert ("sc" in doc.spans, sorted(map(offsets_of, doc.spans.get("sc", ())))) == (group is not None, group or [])


def test_misaligned_rejected_span_is_counted(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        json.dumps(prodigy_record("reject", (0, 3, "GPE"), text="New York", _is_binary=True))
    )
    (report,) = convert([tmp_path / "a.jsonl"], tmp_path, lang="en")
    assert (report.incorrect, report.missing) == (1, 2)
    (tmp_path / "b.jsonl").write_text(
        json.dumps(prodigy_record("reject", (0, 2, "GPE"), text="New York", _is_binary=True))
    )
    (report,) = convert([tmp_path / "b.jsonl"], tmp_path, lang="en")
    assert (report.incorrect, report.notes.counts[Event.MISALIGNED]) == (0, 1)


@pytest.mark.parametrize("view", ["tener", "characters"])
def test_loss_of_decision_is_negative_log_probability(tmp_path: Path, saved: dict[str, Path], view: str) -> None:
    """The loss of an accepted span is -log p, and the loss of a rejected span is -log (1 - p)."""
    nlp = spacy.load(saved[view])
    pipe = nlp.get_pipe("tener_ner")
    pipe.cfg["incorrect_spans_key"] = INCORRECT
    marginals = next(pipe.decode([nlp.make_doc(TEXT)])).marginals(1e-9)
    probability = next(entity.probability for entity in marginals.entities if entity.offsets == ORG)
    assert 0.001 < probability < 0.999
    accepted, rejected = convert_records(
        tmp_path, *(prodigy_record(answer, ORG, _is_binary=True) for answer in ("accept", "reject"))
    )
    for gold, expected in ((accepted, probability), (rejected, 1 - probability)):
        example = Example(nlp.make_doc(TEXT), gold)
        loss, _ = get_loss(pipe, [example], pipe.model.predict([example.predicted]))
        # The loss is the difference of two float32 scores of several tens.
        assert loss == pytest.approx(-math.log(expected), rel=1e-3, abs=1e-5)
