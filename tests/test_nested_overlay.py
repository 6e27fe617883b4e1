"""The overlay `nested`: training on nested entities, and the commands that predict, evaluate and review them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import spacy
from command_line import CommandResult, run_tener
from spacy.cli.train import train
from spacy.tokens import DocBin, Span
from spacy.training import Example
from spacy.training.initialize import init_nlp
from test_spancat import NESTED, TEXT, TEXTS, folder, offsets_and_labels, post_requests
from test_without_torch import run
from tiny_transformer import save_tiny_transformer

from spacy_tener.annotate.tasks import entity_task
from spacy_tener.corpora.docs import read_docs
from spacy_tener.errors import UserError
from spacy_tener.evaluation.calibration import find_outcomes
from spacy_tener.explain import explain
from spacy_tener.training.overlays import compose

pytestmark = pytest.mark.integration

__all__ = ["folder"]
SHORT_TRAINING = ["training.max_steps=80", "training.eval_frequency=40", "components.tener_ner.model.dropout=0.0"]


@pytest.fixture(scope="module")
def model(folder: Path) -> Path:
    compose("weibo", ["nested"], SHORT_TRAINING).to_disk(folder / "nested.cfg", interpolate=False)
    data = str(folder / "spans" / "train.spacy")
    train(folder / "nested.cfg", folder / "nested", overrides={"paths.train": data, "paths.dev": data})
    return folder / "nested" / "model-best"


def test_trained_model_predicts_without_torch(model: Path) -> None:
    code = """
nlp = spacy.load(sys.argv[1])
docs = list(nlp.pipe(sys.argv[2:]))
print(json.dumps([sorted([ent.start_char, ent.end_char, ent.label_] for ent in doc.spans["sc"]) for doc in docs]))
"""
    assert json.loads(run(code, model, *(text["text"] for text in TEXTS))) == [text["entities"] for text in TEXTS]


def test_evaluate_reports_scores_by_nesting_depth(model: Path, folder: Path, tmp_path: Path) -> None:
    data, scores = folder / "spans" / "train.spacy", tmp_path / "scores.json"
    ran = run_tener("evaluate", model, data, "--output", scores)
    assert ran.code == 0
    perfect = " ".join(["100.00"] * 3)
    for row in ("All {} 3", "With entities within others {} 6", "Depth 1 {} 3", "Depth 2 {} 2", "Depth 3 {} 1"):
        assert row.format(perfect) in ran.text
    written = json.loads(scores.read_text())
    assert written["ents_f"] == written["spans_sc_f"] == 1.0
    assert [depth["gold"] for depth in written["spans_sc_per_depth"]] == [3, 2, 1]
    assert CommandResult("evaluate", model, data, "--spans-key", "sc", "--output", tmp_path / "spacy.json").code == 0


def test_annotate_writes_nested_entities(model: Path, folder: Path, tmp_path: Path) -> None:
    options = ["--format", "jsonl", "--probability", "--processes", "1"]
    assert run_tener("annotate", model, folder / "texts.jsonl", "--output", tmp_path, *options).code == 0
    (part,) = tmp_path.glob("part-*.jsonl")
    row = json.loads(part.read_text(encoding="utf8"))
    assert offsets_and_labels(row["entities"]) == NESTED
    assert all(0.5 <= entity["probability"] <= 1 for entity in row["entities"])


def test_service_returns_nested_entities(model: Path) -> None:
    labels = "".join(f'<Label value="{label}"/>' for label in ("GPE", "ORG"))
    interface = f'<View><Labels name="l" toName="t">{labels}</Labels><Text name="t" value="$text"/></View>'
    requests = {
        "/v1/entities": {"text": TEXT},
        "/predict": {"label_config": interface, "tasks": [{"id": 1, "data": {"text": TEXT}}]},
    }
    entities, predicted = asyncio.run(post_requests(spacy.load(model), requests))
    assert offsets_and_labels(entities["entities"]) == NESTED
    values = [region["value"] for region in predicted["results"][0]["result"]]
    assert [[value["start"], value["end"], *value["labels"]] for value in values] == NESTED


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("silver", "{model}", "{texts}", "--output", "{out}/silver"), "tener_ner may be nested"),
        (("calibrate", "{model}", "{flat}", "--output", "{out}/calibrated"), r"the Docs have no doc.spans['sc']"),
    ],
)
def test_unsupported_nested_input_raises_error(
    model: Path, folder: Path, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    paths: dict[str, Any] = {"model": model, "texts": folder / "texts.jsonl", "out": tmp_path}
    paths["flat"] = folder / "longest" / "train.spacy"
    ran = run_tener(*(word.format_map(paths) for word in options))
    assert ran.code == 1
    assert message in ran.text


SYSTEMS = [
    ("weibo", []),
    ("weibo", ["flat"]),
    ("weibo", ["flat-atssa"]),
    ("weibo", ["mect"]),
    ("weibo", ["char-grn"]),
    ("weibo", ["lac"]),
    ("weibo", ["segment"]),
    ("wnut17", []),
    ("wnut17", ["grn"]),
    ("weibo", ["transformer-frozen"]),
    ("weibo", ["transformer-crf"]),
]


@pytest.mark.parametrize(("base", "overlays"), SYSTEMS)
def test_overlay_applies_to_all_systems(base: str, overlays: list[str], folder: Path, tmp_path: Path) -> None:
    config = compose(base, [*overlays, "nested"])
    config["paths"].update(dict.fromkeys(("train", "dev"), str(folder / "spans" / "train.spacy")))
    if base == "wnut17":
        config["paths"].update(dict.fromkeys(("train", "dev"), str(folder / "spans" / "en.spacy")))
    if "transformer" in config["paths"]:
        config["paths"]["transformer"] = str(save_tiny_transformer(tmp_path))
        config["system"]["gpu_allocator"] = None
    nlp = init_nlp(config)
    assert {*nlp.get_pipe("tener_ner").labels} == {"GPE", "ORG"}
    assert "sc" in nlp(TEXT).spans


def test_corpus_without_nested_entities_raises_error(folder: Path) -> None:
    config = compose("weibo", ["nested"])
    config["paths"].update(dict.fromkeys(("train", "dev"), str(folder / "longest" / "train.spacy")))
    with pytest.raises(UserError, match="--overlap spans"):
        init_nlp(config)


def test_explain_separates_entities_from_alternatives(model: Path, folder: Path, tmp_path: Path) -> None:
    nlp = spacy.load(model)
    reference = next(read_docs(folder / "spans" / "train.spacy"))
    (explained,) = explain(nlp, Example(nlp.make_doc(TEXT), reference), attribution=False).texts
    assert sorted(map(list, explained.gold or [])) == NESTED
    assert sorted([*entity.offsets] for entity in explained.entities) == NESTED
    assert all(entity.is_in_output for entity in explained.entities)
    assert not any(
        [*alternative.offsets] in NESTED for entity in explained.entities for alternative in entity.alternatives
    )


@pytest.mark.parametrize(("tool", "n"), [("labelstudio", 3), ("doccano", 3), ("prodigy", 1), ("page", 3)])
def test_suggest_writes_only_entities_supported_by_tool(
    model: Path, folder: Path, tmp_path: Path, tool: str, n: int
) -> None:
    output = tmp_path / "tasks.json"
    assert run_tener("suggest", model, folder / "texts.jsonl", "--format", tool, "--output", output).code == 0
    text = output.read_text(encoding="utf8")
    if tool == "page":
        assert (text.count("[[],[["), "--overlap spans" in text) == (n, True)
    else:
        record = json.loads(text.splitlines()[0]) if tool != "labelstudio" else json.loads(text)[0]["predictions"][0]
        assert len(record[{"labelstudio": "result", "doccano": "label", "prodigy": "spans"}[tool]]) == n


def test_review_finds_and_applies_nested_corrections(model: Path, folder: Path, tmp_path: Path) -> None:
    """In the first text, the label of an outermost entity is wrong, an inner entity is missing, and another one has an
    unknown label. The third text has no annotation of inner entities."""
    docs = list(read_docs(folder / "spans" / "train.spacy"))
    doc, without_inner_entities = docs[0], docs[2]
    doc.spans["sc"] = [Span(doc, 2, 6, label="OTHER"), Span(doc, 2, 9, label="GPE")]
    doc.ents = [doc.spans["sc"][1]]
    del without_inner_entities.spans["sc"]
    DocBin(docs=docs).to_disk(tmp_path / "wrong.spacy")
    ran = run_tener("review", model, tmp_path / "wrong.spacy", "--output", tmp_path / "review")
    assert "2 suspected errors in 4 texts with 4 entities" in ran.text
    errors = [json.loads(line) for line in (tmp_path / "review" / "review.jsonl").open(encoding="utf8")]
    sides = sorted(
        (error["kind"], offsets_and_labels(error["gold"]), offsets_and_labels(error["found"])) for error in errors
    )
    assert sides == [("label", [[2, 9, "GPE"]], [[2, 9, "ORG"]]), ("missing", [], [[2, 4, "GPE"]])]
    assert all(entity["probability"] > 0.5 for error in errors for entity in error["found"])
    decisions = [{"gold": gold, "entities": found} for _, gold, found in sides]
    record = {"text": doc.text, "doc": 0, "nested": True, "decisions": decisions}
    (tmp_path / "decisions.json").write_text(json.dumps([record]))
    for corpus, code in ((tmp_path / "wrong.spacy", 0), (folder / "longest" / "train.spacy", 1)):
        options = ["--apply", tmp_path / "decisions.json", corpus, "--output", tmp_path / f"{code}.spacy"]
        ran = run_tener("review", *options)
        assert (ran.code, "convert the corpus with `--overlap spans`" in ran.text) == (code, bool(code))
    corrected = next(read_docs(tmp_path / "0.spacy"))
    spans = sorted((span.start, span.end, span.label_) for span in corrected.spans["sc"])
    assert spans == [(2, 4, "GPE"), (2, 6, "OTHER"), (2, 9, "ORG")]
    assert [(ent.start, ent.end, ent.label_) for ent in corrected.ents] == [(2, 9, "ORG")]


def test_calibration_uses_all_nested_entities(model: Path, folder: Path) -> None:
    nlp = spacy.load(model)
    examples = [Example(nlp.make_doc(doc.text), doc) for doc in read_docs(folder / "spans" / "train.spacy")]
    outcomes = find_outcomes(nlp, "tener_ner", examples, folder)
    assert outcomes.right.tolist() == [True] * 6
    assert outcomes.probabilities().size == 6


def test_trimmed_model_predicts_same_entities(model: Path, folder: Path, tmp_path: Path) -> None:
    assert run_tener("trim", model, folder / "texts.jsonl", "--output", tmp_path / "trimmed").code == 0
    (found,) = entity_task(spacy.load(tmp_path / "trimmed"))([TEXT])
    assert [[*entity.offsets] for entity in found] == NESTED
