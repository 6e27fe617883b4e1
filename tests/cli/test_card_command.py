"""`python -m spacy tener card`: a copy of a pipeline with its model card."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import spacy
from command_line import run_tener
from spacy.language import Language
from spacy.tokens import DocBin

SCORES = {"ents_p": 0.5, "ents_r": 1.0, "ents_f": 0.6667, "ents_per_type": {"PER": {"p": 0.5, "r": 1.0, "f": 0.6667}}}


@pytest.fixture
def folder(tmp_path: Path, train: Callable[..., Language], sentences: list[Any]) -> Path:
    """A trained pipeline at `run/model-best`, with scores on dev, its data, and scores on test."""
    nlp = train(steps=2)
    nlp.meta["performance"] = {"ents_p": 0.25, "ents_r": 0.25, "ents_f": 0.25, "ents_per_type": {}}
    (tmp_path / "run").mkdir()
    nlp.to_disk(tmp_path / "run" / "model-best")
    data = DocBin()
    for text, entities in sentences:
        doc = nlp.make_doc(text)
        doc.ents = [doc.char_span(start, end, label=label) for start, end, label in entities]
        data.add(doc)
    data.to_disk(tmp_path / "train.spacy")
    (tmp_path / "metrics.json").write_text(json.dumps(SCORES), encoding="utf8")
    return tmp_path


def card(folder: Path, output: str, *arguments: str, model: str = "run/model-best") -> tuple[int, str]:
    ran = run_tener("card", folder / model, "-o", folder / output, "--metrics", folder / "metrics.json", *arguments)
    return ran.code, ran.text


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_copy_is_described_and_the_pipeline_stays_as_it_is(folder: Path) -> None:
    before = contents(folder / "run")
    data = str(folder / "train.spacy")
    code, text = card(folder, "out", "--training", data, "--name", "a-b", "--version", "1.0.0")
    assert code == 0, text
    assert "zh_a_b 1.0.0" in text
    assert contents(folder / "run") == before
    readme = (folder / "out" / "README.md").read_text(encoding="utf8")
    assert "| PER | 50.00 | 100.00 | 66.67 | 2 |" in readme
    assert "4 texts with 25 tokens and 5 entities." in readme
    assert "F1 there: 25.00" in readme
    assert "torch" in readme
    meta = json.loads((folder / "out" / "meta.json").read_text(encoding="utf8"))
    assert meta["performance"] == SCORES
    assert spacy.load(folder / "out").meta["name"] == "a_b"


def test_nothing_but_card_and_meta_differs(folder: Path) -> None:
    card(folder, "out")
    copy = contents(folder / "out")
    assert copy.pop("README.md")
    original = contents(folder / "run" / "model-best")
    assert copy.pop("meta.json") != original.pop("meta.json")
    assert copy == original


def test_the_corpus_is_named_with_its_terms(folder: Path) -> None:
    assert card(folder, "out", "--corpus", "resume", "--license", "'CC0 1.0'", "--author", "Me")[0] == 0
    meta = json.loads((folder / "out" / "meta.json").read_text(encoding="utf8"))
    assert meta["sources"][0]["url"] == "https://github.com/jiesutd/LatticeLSTM"
    assert (meta["license"], meta["author"]) == ("CC0 1.0", "Me")


def test_a_card_without_a_licence_is_warned_of(folder: Path) -> None:
    assert "states no licence" in card(folder, "out")[1]
    assert "states no licence" not in card(folder, "other", "--license", "MIT")[1]


def test_a_pipeline_is_written_over_only_by_force(folder: Path) -> None:
    card(folder, "out")
    (folder / "out" / "stale").write_text("old", encoding="utf8")
    code, text = card(folder, "out")
    assert (code, "give --force" in text) == (1, True)
    assert card(folder, "out", "--force")[0] == 0
    assert not (folder / "out" / "stale").exists()


def test_what_stands_at_the_output_stays_when_a_card_cannot_be_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card(folder, "out")
    before = contents(folder)

    def fail(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("spacy_tener.cli.models.shutil.copytree", fail)
    code, text = card(folder, "out", "--force")
    assert (code, "No space left" in text) == (1, True)
    assert contents(folder) == before


@pytest.mark.parametrize("output", ["run/model-best", "run", ".", "run/model-best/out"])
def test_the_pipeline_itself_is_never_written_over(folder: Path, output: str) -> None:
    before = contents(folder)
    code, text = card(folder, output, "--force")
    assert (code, "the pipeline itself is there" in text) == (1, True)
    assert contents(folder) == before


def test_something_else_is_never_written_over(folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "out" / "thesis.txt").write_text("all of it", encoding="utf8")
    code, text = card(folder, "out", "--force")
    assert (code, "there are files that are not a pipeline" in text) == (1, True)
    assert (folder / "out" / "thesis.txt").exists()


@pytest.mark.parametrize(("name", "content"), [("meta.json", "{"), ("config.cfg", "[nlp]\nlang")])
def test_a_damaged_file_of_the_pipeline_is_named(folder: Path, name: str, content: str) -> None:
    path = folder / "run" / "model-best" / name
    path.write_text(content, encoding="utf8")
    code, text = card(folder, "out")
    assert code == 1
    assert str(path) in text
    assert ("Restore it from a copy" in text) == (name == "meta.json")
