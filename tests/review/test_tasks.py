"""Tasks for annotation tools: written from suggestions, and converted from the exports of the tools."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
import spacy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_corpora import add_rules
from spacy.language import Language

from spacy_tener.corpora.annotation import Event
from spacy_tener.corpora.reader import CorpusReader
from spacy_tener.pipeline.entities import FoundEntity
from spacy_tener.review.active_learning import Suggestion, make_tasks
from spacy_tener.review.annotation_tools import TOOLS, Task, labelling_interface

TEXTS = {
    "吴重阳😂在中国银行工作。": [(0, 3, "PER"), (5, 9, "ORG")],
    "今天天气很好": [],
    "a  b\tc 王小明": [(7, 10, "PER")],
}


def make_task(text: str, spans: list[tuple[int, int, str]]) -> Task:
    entities = [FoundEntity(*span, probability=0.75) for span in spans]
    return Task(spacy.blank("zh").make_doc(text), entities, 0.5, 1.25)


TOKENIZERS = [spacy.blank(lang).make_doc for lang in ("en", "zh")]
TASKS = [make_task(text, spans) for text, spans in TEXTS.items()]


def doccano_exports(text: str) -> str:
    """Return doccano's export of imported tasks: with ids, comments, and all other imported fields as metadata."""
    records = [json.loads(line) for line in text.splitlines()]
    return "".join(json.dumps({"id": n, **record, "Comments": []}) + "\n" for n, record in enumerate(records, start=1))


def label_studio_exports(text: str) -> str:
    """Return Label Studio's export of imported tasks, in which all predictions were accepted as annotations."""
    records = json.loads(text)
    for number, task in enumerate(records, start=1):
        result = [{**region, "origin": "prediction"} for region in task["predictions"][0]["result"]]
        task |= {"id": number, "annotations": [{"id": number, "was_cancelled": False, "result": result}]}
    return json.dumps(records)


def prodigy_exports(text: str) -> str:
    records = [json.loads(line) for line in text.splitlines()]
    hashes = {"_input_hash": 1, "_task_hash": 2, "_view_id": "ner_manual", "answer": "accept"}
    return "".join(json.dumps({**record, **hashes}) + "\n" for record in records)


EXPORTS = {"doccano": doccano_exports, "labelstudio": label_studio_exports, "prodigy": prodigy_exports}


def read_back(folder: Path, text: str) -> list[tuple[str, list[tuple[int, int, str]]]]:
    path = folder / "export.jsonl"
    path.write_text(text, encoding="utf8")
    return [(record.text, [(s.start, s.end, s.label) for s in record.spans]) for record in CorpusReader(path)]  # type: ignore[union-attr]


@pytest.mark.parametrize("tool", TOOLS)
def test_tasks_contain_unescaped_unicode(tool: str) -> None:
    assert all(letter in TOOLS[tool].write(TASKS) for letter in "吴重阳😂")


def test_scores_are_rounded_and_omitted_if_missing() -> None:
    doc, entity = spacy.blank("zh").make_doc("京"), FoundEntity(0, 1, "GPE", 0.123456)
    record = json.loads(TOOLS["doccano"].write([Task(doc, [entity], 0.987654)]))
    assert (record["probability"], record["probabilities"], "uncertainty" in record) == (0.9877, [0.1235], False)
    (task,) = json.loads(TOOLS["labelstudio"].write([Task(doc, [entity], uncertainty=2.345678)]))
    (prediction,) = task["predictions"]
    assert task["data"] == {"text": "京", "uncertainty": 2.3457}
    assert ("score" in prediction, prediction["result"][0]["score"]) == (False, 0.1235)


def test_nan_probability_is_written_as_null() -> None:
    doc, entity = spacy.blank("zh").make_doc("京"), FoundEntity(0, 1, "GPE", float("nan"))
    record = json.loads(TOOLS["doccano"].write([Task(doc, [entity], float("nan"))]), parse_constant=pytest.fail)
    assert (record["probability"], record["probabilities"]) == (None, [None])


@st.composite
def random_task(draw: st.DrawFn) -> Task:
    """A random text with entities, which may start or end inside tokens, but not at white space."""
    # Carriage returns, and characters that only spaCy treats as white space, would be changed in text files.
    text = draw(st.text(st.sampled_from("ab.,'-  \n京小😂é\u0301\u3000"), min_size=1, max_size=24))
    edges = sorted(draw(st.sets(st.integers(0, len(text)), max_size=8)))
    valid_spans = [(start, end) for start, end in pairwise(edges) if text[start:end].strip() == text[start:end]]
    chosen = draw(st.lists(st.sampled_from(valid_spans), unique=True, max_size=4)) if valid_spans else []
    labels = st.sampled_from(["PER", "a b", '"<&'])
    entities = [FoundEntity(start, end, draw(labels), 0.5) for start, end in sorted(chosen)]
    return Task(draw(st.sampled_from(TOKENIZERS))(text), entities)


@pytest.mark.parametrize("tool", EXPORTS)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(tasks=st.lists(random_task(), min_size=1, max_size=3))
def test_tool_exports_preserve_texts_and_entities(tmp_path: Path, tool: str, tasks: list[Task]) -> None:
    expected = [
        (task.doc.text, [(entity.start, entity.end, entity.label) for entity in task.entities]) for task in tasks
    ]
    assert read_back(tmp_path, EXPORTS[tool](TOOLS[tool].write(tasks))) == expected


@pytest.mark.parametrize(
    ("tool", "sizes", "event"),
    [
        ("doccano", [2, 0, 1], Event.SUGGESTED),
        ("prodigy", [2, 0, 1], Event.SUGGESTED),
        ("labelstudio", [], Event.LEFT_OUT),
    ],
)
def test_unexported_suggestions_are_reported(tmp_path: Path, tool: str, sizes: list[int], event: Event) -> None:
    path = tmp_path / "export.jsonl"
    path.write_text(TOOLS[tool].write(TASKS), encoding="utf8")
    reader = CorpusReader(path)
    assert [len(record.spans) for record in reader] == sizes
    assert reader.notes.counts == {event: 3}
    path.write_text(EXPORTS[tool](TOOLS[tool].write(TASKS)), encoding="utf8")
    reader = CorpusReader(path)
    assert len(list(reader)) == 3
    assert reader.notes.counts.total() == 0


def test_label_studio_regions_match_labelling_interface() -> None:
    labels = ["PER", 'A "quoted" & <odd> one']
    interface = ElementTree.fromstring(labelling_interface(labels))
    control, text = interface.findall("*")
    assert [choice.attrib["value"] for choice in control] == labels
    (task,) = json.loads(TOOLS["labelstudio"].write(TASKS[:1]))
    assert text.attrib["value"] == f"${next(iter(task['data']))}"
    for region in task["predictions"][0]["result"]:
        assert region["from_name"] == control.attrib["name"]
        assert region["to_name"] == control.attrib["toName"] == text.attrib["name"]
        assert 0 <= region["score"] <= 1
        assert region["value"]["labels"][0] in [*labels, "ORG"]


def test_prodigy_tokens_align_with_text_and_spans() -> None:
    english = spacy.blank("en").make_doc("Peter Blackburn left")
    cut = Task(english, [FoundEntity(2, 5, "X", 0.5)], 0.5, 0.5)
    for task in [*TASKS, Task(english, [FoundEntity(0, 15, "PER", 0.5)], 0.5, 0.5), cut]:
        record = json.loads(TOOLS["prodigy"].write([task]))
        tokens = record["tokens"]
        assert "".join(token["text"] + " " * token["ws"] for token in tokens) == task.doc.text
        assert [token["id"] for token in tokens] == list(range(len(tokens)))
        for span, entity in zip(record["spans"], task.entities, strict=True):
            assert (tokens[span["token_start"]]["start"], tokens[span["token_end"]]["end"]) == (
                entity.start,
                entity.end,
            )


def test_tasks_are_prefilled_with_best_label_sequence(train: Callable[..., Language]) -> None:
    nlp = train()
    (task,) = make_tasks(nlp, [Suggestion({"text": "王小明去了上海"}, 1.0)], ["PER", "GPE"])
    assert [(entity.start, entity.end, entity.label) for entity in task.entities] == [(0, 3, "PER"), (5, 7, "GPE")]
    assert 0.5 < task.probability <= min(entity.probability for entity in task.entities) <= 1.0
    (task,) = make_tasks(nlp, [Suggestion({"text": "王小明去了上海"}, 1.0)], ["GPE", "OTHER"])
    assert [entity.label for entity in task.entities] == ["GPE"]


def test_tasks_include_entities_of_other_components(saved: dict[str, Path]) -> None:
    nlp = spacy.load(saved["tener"])
    add_rules(nlp, PER="王小", before="tener_ner")
    add_rules(nlp, MET="去了")
    nlp.add_pipe("merge_entities")
    (task,) = make_tasks(nlp, [Suggestion({"text": "王小明去了上海"}, 1.0)], ["PER", "GPE", "MET"])
    found = [(entity.start, entity.end, entity.label) for entity in task.entities]
    assert found == [(ent.start_char, ent.end_char, ent.label_) for ent in nlp("王小明去了上海").ents]
    assert {(0, 2, "PER"), (3, 5, "MET"), (5, 7, "GPE")} <= {*found}
    assert len(task.doc) == 7


def test_tasks_preserve_entity_offsets_inside_tokens(saved: dict[str, Path]) -> None:
    nlp = spacy.load(saved["characters"])
    text, label = "王小明去了上海", "GPE"
    (exact,) = make_tasks(nlp, [Suggestion({"text": text}, 1.0)], [label])
    nlp.tokenizer = lambda text: spacy.tokens.Doc(nlp.vocab, words=["王小明", "去了上海"], spaces=[False] * 2)
    (task,) = make_tasks(nlp, [Suggestion({"text": text}, 1.0)], [label])
    assert [(ent.start_char, ent.end_char) for ent in nlp(text).ents if ent.label_ == label] == [(3, 7)]
    assert task.entities == exact.entities != []
