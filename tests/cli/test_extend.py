"""Test the command `extend`, which trains a pipeline on new labels: training data, resumption and errors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import spacy
from command_line import run_tener
from small_corpora import save_corpus
from spacy.cli.train import train as spacy_train
from spacy.tokens import Doc, DocBin

from spacy_tener.pipeline.learning.targets import ANNOTATED_LABELS
from spacy_tener.training.runs import Processes

TEXT = "王小明去了上海"
PLACES = ["长沙", "南京", "天津", "北京", "桂林", "西安"]
NEW = [(f"{name}去了{place}", [(len(name), len(name) + 2, "VERB")]) for place in PLACES for name in ("王小明", "李雷")]


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Run training runs in this process, and return a list to which their configs are added."""
    configs: list[Path] = []

    def run(self: Processes, arguments: Sequence[str], log: Path) -> int:
        spacy_train(Path(arguments[1]), Path(arguments[3]))
        configs.append(Path(arguments[1]))
        return 0

    monkeypatch.setattr(Processes, "run", run)
    return configs


@pytest.fixture
def new(tmp_path: Path) -> Path:
    save_corpus(tmp_path / "new.spacy", NEW)
    return tmp_path / "new.spacy"


def extend(*arguments: object) -> tuple[int, str]:
    ran = run_tener("extend", *arguments)
    return ran.code, ran.text


def load_docs(path: Path) -> list[Doc]:
    return list(DocBin(store_user_data=True).from_disk(path).get_docs(spacy.blank("zh").vocab))


def test_new_label_is_learned_and_training_is_not_repeated(
    saved: dict[str, Path], new: Path, tmp_path: Path, trained: list[Path]
) -> None:
    command = [saved["tener"], new, "-o", tmp_path / "out", "--steps", "40", "-s", "training.optimizer.learn_rate=0.01"]
    code, text = extend(*command)
    assert code == 0, text
    # The scores are F1 in percent, as in the table of `spacy train`.
    rows = [json.loads(row) for row in (tmp_path / "out" / "training.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [0, 40]
    assert rows[0]["score"] < rows[1]["score"]
    assert [row["scores"]["ents_f"] for row in rows] == [pytest.approx(100 * row["score"]) for row in rows]
    assert not (tmp_path / "out" / "model-last").exists()
    before, after = spacy.load(saved["tener"]), spacy.load(tmp_path / "out" / "model-best")
    old = [(ent.text, ent.label_) for ent in before(TEXT).ents]
    assert [(ent.text, ent.label_) for ent in after(TEXT).ents] == [old[0], ("去了", "VERB"), *old[1:]]
    code, text = extend(*command)
    assert (code, "model-best: already trained To train again" in text, len(trained)) == (0, True, 1), text
    code, text = extend(*command[:-1], "training.optimizer.learn_rate=0.02")
    assert (code, "contains another training run" in text, len(trained)) == (1, True, 1), text


def test_training_docs_record_annotated_labels(
    saved: dict[str, Path], new: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Processes, "run", lambda processes, arguments, log: log.write_text("Out of memory\n") and 3)
    save_corpus(tmp_path / "old.spacy", [(TEXT, [(0, 3, "PER"), (5, 7, "GPE")])])
    options: list[Any] = ["--with", tmp_path / "old.spacy", "--rename", "PER=NAME", "--rename", "GPE=CITY"]
    save_corpus(new, [*NEW, ("长沙市", [(0, 3, "CITY")])])
    code, text = extend(saved["tener"], new, "-o", tmp_path / "out", *options)
    assert (code, "training ended with exit status 3: Out of memory" in text) == (1, True), text
    *learned, old = load_docs(tmp_path / "out" / "train.spacy")
    assert {tuple(doc.user_data[ANNOTATED_LABELS]) for doc in learned} == {("CITY", "VERB")}
    # The old texts are not annotated for CITY, which is split off GPE.
    assert set(old.user_data[ANNOTATED_LABELS]) == {"NAME", "ORG"}
    assert ["?IOB"[token.ent_iob] for token in old] == list("BIIOO??")
    assert old.ents[0].label_ == "NAME"
    dev = load_docs(tmp_path / "out" / "dev.spacy")
    assert len(dev) + len(learned) == len(NEW) + 1
    assert {ent.label_ for doc in dev for ent in doc.ents} >= {"NAME", "VERB"}


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        (
            NEW[:4],
            [],
            "too few new texts: 4 without duplicates Annotate at least 10 texts, or pass a development set with --dev.",
        ),
        ([("他去了", [])] * 12, [], "no entity is annotated in the new texts"),
        ([(TEXT, [(0, 3, "PER")])] * 12, [], "has all labels of the new texts: PER"),
        ([("He went to Paris", [(11, 16, "CITY")])] * 12, [], "the new texts have another language (en)"),
        (
            [*NEW, ("北京", [(0, 2, "CITY")])],
            ["--labels", "VERB"],
            "the new texts also have labels other than VERB: CITY Add these labels",
        ),
        (
            [*NEW, (TEXT, [(0, 3, "PER")])],
            ["--rename", "PER=NAME", "--labels", "VERB"],
            "labels other than VERB: PER Add these labels",
        ),
        (NEW, ["--labels", "VERB,NOUN"], "no entity in the new texts has the label NOUN"),
        (NEW, ["--rename", "NONE=A"], "has no label NONE to rename Use one of: "),
        (NEW, ["--rename", "PER=ORG"], "two labels of"),
        (NEW, ["--rename", "PER"], "--rename PER: two labels are required"),
        (NEW, ["--rename", "PER= "], "--rename PER=: two labels are required"),
    ],
)
def test_unsuitable_texts_or_options_raise_error(
    saved: dict[str, Path], tmp_path: Path, texts: list[Any], options: list[str], message: str
) -> None:
    save_corpus(tmp_path / "new.spacy", texts)
    code, text = extend(saved["tener"], tmp_path / "new.spacy", "-o", tmp_path / "out", *options)
    assert (code > 0, message in text) == (True, True), text
    assert not (tmp_path / "out").exists()


def test_unknown_labels_in_original_texts_raise_error(saved: dict[str, Path], new: Path, tmp_path: Path) -> None:
    save_corpus(tmp_path / "old.spacy", [(TEXT, [(0, 3, "PER"), (5, 7, "CITY")])])
    code, text = extend(saved["tener"], new, "-o", tmp_path / "out", "--with", tmp_path / "old.spacy")
    assert (code, "the texts of --with have labels that" in text, "doesn't have: CITY" in text) == (1, True, True), text
    assert not (tmp_path / "out").exists()


def test_new_texts_can_contain_existing_labels(
    saved: dict[str, Path], new: Path, tmp_path: Path, trained: list[Path]
) -> None:
    save_corpus(new, [(text, [*entities, (len(text) - 2, len(text), "GPE")]) for text, entities in NEW])
    code, text = extend(saved["tener"], new, "-o", tmp_path / "out", "--steps", "1")
    assert (code, len(trained)) == (0, 1), text


def test_extending_nested_ner_pipeline_raises_error(new: Path, tmp_path: Path) -> None:
    nlp = spacy.blank("zh")
    model = {"@architectures": "spacy_tener.CRFTagger.v1", "depth": 2}
    nlp.add_pipe("tener_ner", config={"model": model, "spans_key": "sc"}).add_label("PER")  # type: ignore[attr-defined]
    nlp.to_disk(tmp_path / "nested")
    code, text = extend(tmp_path / "nested", new, "-o", tmp_path / "out")
    assert (code, "predicts nested entities and cannot be extended" in text) == (1, True), text
