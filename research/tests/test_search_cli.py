"""`python -m research search`: two real trainings of a few steps, and what is said."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
import spacy
from made_trainings import needs_code
from research_commands import run_research
from spacy.tokens import DocBin
from spacy.training import Example

from research.train_commands import _described
from spacy_tener.workbench.runs.processes import Processes

TOK2VEC = "components.tener_ner.model.tok2vec"
SPACE = f"""
[{TOK2VEC}]
width = [16, 32]

[training.optimizer.learn_rate]
max_rate = [0.01, 1e+30]
"""
TINY = f"[{TOK2VEC}]\nheads = 2\nff_width = null\n[{TOK2VEC}.embed]\nwidth = 8\nbigram_width = 0\n"


search = partial(run_research, "search")


@pytest.fixture
def arguments(tmp_path: Path, sentences) -> list[str | Path]:
    nlp = spacy.blank("zh")
    docs = [Example.from_dict(nlp.make_doc(text), {"entities": ents}).reference for text, ents in sentences]
    DocBin(docs=docs).to_disk(tmp_path / "corpus.spacy")
    (tmp_path / "space.cfg").write_text(SPACE, encoding="utf8")
    (tmp_path / "tiny.cfg").write_text(TINY, encoding="utf8")
    paths = [part for name in ("train", "dev") for part in ("--set", f"paths.{name}={tmp_path / 'corpus.spacy'}")]
    paths += ["--set", "training.eval_frequency=15"]
    return ["weibo", tmp_path / "tiny.cfg", "--space", tmp_path / "space.cfg", "-o", tmp_path / "found", *paths]


def test_help_says_what_is_kept_and_needed() -> None:
    text = search("--help").text
    for word in ("best.cfg", "trials.csv", "research/requirements.txt", "dev", "tener-english"):
        assert word in text


def test_a_space_whose_overlay_is_missing_names_it(tmp_path: Path) -> None:
    result = search("weibo", "mect", "--space", "mect", "-o", tmp_path / "new", "--trials", "1")
    assert result.code == 1
    assert "training.optimizer.momentum" in result.text
    assert "Name an overlay that has it: sgd." in result.text


@pytest.mark.slow
def test_a_search_trains_with_spacy_and_a_second_call_finds_nothing_to_do(arguments, tmp_path: Path) -> None:
    arguments += needs_code(tmp_path)
    result = search(*arguments, "--trials", "2", "--steps", "30", "--seed", "5")
    assert result.code == 0, result.text
    data = json.loads((tmp_path / "found" / "trials.json").read_text(encoding="utf8"))
    states = {row["values"]["training.optimizer.learn_rate.max_rate"]: row for row in data["trials"]}
    assert states[0.01]["state"] == "done"
    assert states[0.01]["score"] > 0.5
    assert states[1e30]["state"] == "failed"
    assert states[1e30]["reason"].startswith("training ended with exit status 1: ValueError: ")
    assert "finite" in states[1e30]["reason"]
    assert "Failed trials: 1" in result.text
    assert "best.cfg: trial" in result.text
    nlp = spacy.load(tmp_path / "found" / "trials" / f"{data['best']:04d}" / "model-best")
    assert nlp.config["training"]["max_steps"] == 30
    best = spacy.util.load_config(tmp_path / "found" / "best.cfg")
    assert best["components"]["tener_ner"]["model"]["tok2vec"]["width"] == states[0.01]["values"][f"{TOK2VEC}.width"]
    again = search(*arguments, "--trials", "2", "--steps", "30", "--seed", "5")
    assert "There is nothing to do: 2 of 2 trials are finished" in again.text
    assert json.loads((tmp_path / "found" / "trials.json").read_text(encoding="utf8")) == data


def test_a_search_without_any_score_says_where_the_logs_are(
    arguments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Processes, "run", lambda *_, **options: -9)
    result = search(*arguments, "--trials", "2", "--steps", "3")
    assert result.code == 1
    assert "Trial 1: -, failed" in result.text
    assert "training was killed by signal 9" in result.text
    assert "No trial has a score" in result.text
    assert str(Path("found") / "trials") in result.text


def test_ctrl_c_ends_with_a_word_and_the_next_call_goes_on(arguments, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **options: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(Processes, "run", interrupted)
    result = search(*arguments, "--trials", "1", "--steps", "3")
    assert result.code == 130
    assert "The same command resumes." in result.text
    monkeypatch.setattr(Processes, "run", lambda *_, **options: -9)
    again = search(*arguments, "--trials", "1", "--steps", "3")
    assert "0 finished, 1 interrupted" in again.text
    assert "Trial 1, again of 0: -, failed" in again.text


@pytest.mark.parametrize(
    ("code", "options", "message"),
    [
        (1, ["--set", "training.max_step=3"], "the config has no 'training.max_step'"),
        (2, ["--sampler", "smac"], "'smac' is not one of"),
    ],
)
def test_what_cannot_be_searched_is_said(arguments, code: int, options: list[str], message: str) -> None:
    result = search(*arguments, "--trials", "1", *options)
    assert (result.code, message in result.text) == (code, True)


def test_settings_are_called_by_the_shortest_end_that_tells_them_apart() -> None:
    text = _described({"a.b.dropout": 0.1, "a.c.dropout": 0.25, "training.rate": 1e-30, "x": None})
    assert text == "b.dropout=0.1  c.dropout=0.25  rate=1e-30  x=None"


def test_a_damaged_study_is_named(arguments, tmp_path: Path) -> None:
    (tmp_path / "found").mkdir()
    (tmp_path / "found" / "study.db").write_bytes(b"no database" * 100)
    result = search(*arguments, "--trials", "1")
    assert result.code == 1
    assert f"{tmp_path / 'found' / 'study.db'}: cannot be read: file is not a database" in result.text


def test_an_output_that_is_a_file_is_refused(arguments, tmp_path: Path) -> None:
    (tmp_path / "found").touch()
    assert "found: not a directory" in search(*arguments, "--trials", "1").text


def test_values_that_do_not_fit_are_told_as_drawn_from_the_space(arguments, tmp_path: Path) -> None:
    (tmp_path / "space.cfg").write_text(f"[{TOK2VEC}]\nheads = [3]\n", encoding="utf8")
    result = search(*arguments, "--trials", "1")
    assert result.code == 1
    assert f"sampled from the space: {TOK2VEC}.heads=3: " in result.text
    assert "--set" not in result.text
    assert ".." not in result.text
