"""Test the command `explain` for a text, a file and a corpus, with HTML and JSON output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import spacy
from command_line import run_tener
from small_corpora import save_corpus

TEXT = "王小明去了上海"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    nlp = spacy.blank("zh")
    nlp.add_pipe("tener_ner").add_label("PER")
    nlp.initialize()
    path = tmp_path_factory.mktemp("model")
    nlp.to_disk(path)
    return path


def explain(*arguments: str | Path, text: str | None = None) -> tuple[int, str]:
    ran = run_tener("explain", *arguments, stdin=text)
    return ran.code, ran.text


def test_text_is_explained_on_html_page(model: Path, tmp_path: Path) -> None:
    status, printed = explain(model, TEXT, "-o", tmp_path / "new" / "page.html")
    page = (tmp_path / "new" / "page.html").read_text(encoding="utf8")
    assert status == 0
    assert "1 text" in printed
    assert page.startswith("<!DOCTYPE html>")
    assert json.loads(page.split('id="data">')[1].split("</script>")[0])["texts"][0]["text"] == TEXT


def test_stdout_contains_only_json(model: Path) -> None:
    ran = run_tener("explain", model, TEXT, "--no-attribution")
    assert json.loads(ran.stdout)["texts"][0]["text"] == TEXT


def test_text_file_has_text_per_line_up_to_limit(model: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text(f"{TEXT}\n\n北京\n上海\n", encoding="utf8")
    status, printed = explain(model, tmp_path / "texts.txt", "-n", "2", "-o", tmp_path / "data.json")
    assert status == 0
    assert "Only the first 2 texts are explained" in printed
    data = json.loads((tmp_path / "data.json").read_text(encoding="utf8"))
    assert [text["text"] for text in data["texts"]] == [TEXT, "北京"]
    assert "Only the first" not in explain(model, tmp_path / "texts.txt", "-n", "3", "-o", tmp_path / "data.json")[1]


def test_corpus_is_explained_with_gold_entities(model: Path, tmp_path: Path) -> None:
    save_corpus(tmp_path / "test.spacy", [(TEXT, [(0, 3, "PER")])])
    assert explain(model, tmp_path / "test.spacy", "-o", tmp_path / "data.json")[0] == 0
    data = json.loads((tmp_path / "data.json").read_text(encoding="utf8"))
    assert [text["gold"] for text in data["texts"]] == [[[0, 3, "PER"]]]
    # The pipeline is not packaged, so that its name is its path.
    assert (data["pipeline"]["name"], data["pipeline"]["version"]) == (str(model), "")
