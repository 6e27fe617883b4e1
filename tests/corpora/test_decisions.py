"""Answers to single spans, several annotators of a text, and what the component learns of them."""

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


def prodigy(answer: str, *spans: Span, text: str = TEXT, **keys: Any) -> dict[str, Any]:
    return {"text": text, "spans": [{"start": s, "end": e, "label": x} for s, e, x in spans], "answer": answer, **keys}


def read(folder: Path, record: dict[str, Any], **options: str) -> AnnotatedText:
    (text,) = reader_of(folder, [record], **options)
    assert isinstance(text, AnnotatedText)
    return text


def entities(*spans: Span) -> tuple[EntitySpan, ...]:
    return tuple(EntitySpan(*span) for span in spans)


@pytest.mark.parametrize("mark", [{"_view_id": "ner"}, {"_is_binary": True}, {"_is_binary": True, "_view_id": "other"}])
def test_binary_answers_decide_on_their_span_and_on_nothing_else(tmp_path: Path, mark: dict[str, Any]) -> None:
    answers = [("accept", PER), ("reject", GPE), ("ignore", ORG), ("reject",)]
    reader = reader_of(tmp_path, [prodigy(*answer, **mark) for answer in answers])
    accepted, rejected = reader
    assert accepted == AnnotatedText(TEXT, entities(PER), ((0, 10),), 1)
    assert rejected == AnnotatedText(TEXT, (), ((0, 10),), 2, incorrect=entities(GPE))
    assert reader.notes.counts == {Event.BINARY: 2, Event.LEFT_OUT: 2}
    assert reader.notes.examples[Event.BINARY] == [f"line 1: accept '{TEXT}'", f"line 2: reject '{TEXT}'"]


@pytest.mark.parametrize("mark", [{}, {"_view_id": "ner_manual"}, {"_is_binary": False, "_view_id": "ner"}])
def test_other_answers_are_about_the_whole_text(tmp_path: Path, mark: dict[str, Any]) -> None:
    reader = reader_of(tmp_path, [prodigy("accept", PER, **mark), prodigy("reject", GPE, **mark)])
    assert list(reader) == [AnnotatedText(TEXT, entities(PER), (), 1)]
    assert reader.notes.counts == {Event.LEFT_OUT: 1}


def test_a_span_may_have_an_answer_of_its_own(tmp_path: Path) -> None:
    record = prodigy("accept", PER, GPE, (8, 10, "ORG"))
    record["spans"][1]["answer"] = "reject"
    record["spans"][2]["answer"] = "ignore"
    text = read(tmp_path, record)
    assert (text.spans, text.incorrect) == (entities(PER), entities(GPE))
    assert text.missing == ((4, 6), (8, 10))


def test_offsets_of_rejected_spans_are_checked_like_those_of_entities(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="span 2-5 is empty or outside of the text"):
        read(tmp_path, prodigy("reject", (2, 5, "PER"), text="😂张三 ", _is_binary=True))


def test_answers_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    record = prodigy("accept", PER, PER)
    record["spans"][1]["answer"] = "reject"
    with pytest.raises(CorpusError, match="PER 0-3 '吴小明' is both accepted and rejected"):
        read(tmp_path, record)
    with pytest.raises(CorpusError, match='an answer is not one of accept, reject, ignore: "maybe"'):
        read(tmp_path, prodigy("maybe", PER))


@pytest.mark.parametrize(("truth", "said"), [(1, "ground truth"), (-1, "the first")])
def test_of_several_annotators_the_ground_truth_is_read_or_else_the_first(
    tmp_path: Path, truth: int, said: str
) -> None:
    annotations = [annotation([PER]), annotation([ORG], ground_truth=truth == 1)]
    reader = reader_of(tmp_path, [task(annotations, TEXT), task([annotation([PER])], TEXT)])
    text, _ = reader
    assert (text.spans, text.missing) == (entities(ORG if truth == 1 else PER), ())
    assert reader.notes.examples == {Event.SEVERAL: [f"line 1: 2 annotations; read: {said}"]}


def converted(folder: Path, *records: dict[str, Any], **decisions: str) -> list[Doc]:
    (folder / "in.jsonl").write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    convert([folder / "in.jsonl"], folder / "out.spacy", reading=CorpusOptions(**decisions), lang="zh")
    return list(read_docs(folder / "out.spacy"))


@pytest.mark.parametrize(
    ("spans", "binary", "group"), [((ORG,), True, None), ((ORG, GPE), True, [GPE, ORG]), ((ORG,), False, [ORG])]
)
def test_an_answer_to_a_span_says_nothing_of_what_lies_in_it(
    tmp_path: Path, spans: Sequence[Span], binary: bool, group: list[Span] | None
) -> None:
    (doc,) = converted(tmp_path, prodigy("accept", *spans, _is_binary=binary), overlap="spans")
    assert [offsets_of(ent) for ent in doc.ents] == [ORG]
    assert ("sc" in doc.spans, sorted(map(offsets_of, doc.spans.get("sc", ())))) == (group is not None, group or [])


def test_a_rejected_span_off_the_token_edges_is_counted(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(prodigy("reject", (0, 3, "GPE"), text="New York", _is_binary=True)))
    (report,) = convert([tmp_path / "a.jsonl"], tmp_path, lang="en")
    assert (report.incorrect, report.missing) == (1, 2)
    (tmp_path / "b.jsonl").write_text(json.dumps(prodigy("reject", (0, 2, "GPE"), text="New York", _is_binary=True)))
    (report,) = convert([tmp_path / "b.jsonl"], tmp_path, lang="en")
    assert (report.incorrect, report.notes.counts[Event.MISALIGNED]) == (0, 1)


@pytest.mark.parametrize("view", ["tener", "characters"])
def test_decisions_are_learned_exactly(tmp_path: Path, saved: dict[str, Path], view: str) -> None:
    """The loss of an accepted span is that of its probability, of a rejected one that of its absence."""
    nlp = spacy.load(saved[view])
    pipe = nlp.get_pipe("tener_ner")
    pipe.cfg["incorrect_spans_key"] = INCORRECT
    marginals = next(pipe.decode([nlp.make_doc(TEXT)])).marginals(1e-9)
    probability = next(entity.probability for entity in marginals.entities if entity.offsets == ORG)
    assert 0.001 < probability < 0.999
    accepted, rejected = converted(
        tmp_path, *(prodigy(answer, ORG, _is_binary=True) for answer in ("accept", "reject"))
    )
    for gold, expected in ((accepted, probability), (rejected, 1 - probability)):
        example = Example(nlp.make_doc(TEXT), gold)
        loss, _ = get_loss(pipe, [example], pipe.model.predict([example.predicted]))
        # The loss is the difference of two sums of some tens, in 32 bits.
        assert loss == pytest.approx(-math.log(expected), rel=1e-3, abs=1e-5)
