"""Test the command `debug-data`, which prints the report of `spacy debug data` including the section on entities."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import CommandResult
from small_corpora import annotated, save_corpus, save_docs
from tiny_trainings import make_config, tener

from spacy_tener.training.overlays import fill

CALLBACK = """
import spacy

@spacy.registry.callbacks("test.named")
def make():
    def callback(nlp):
        print("CALLED WITH", *nlp.pipe_names)
        return nlp
    return callback
"""


@pytest.fixture
def train(tmp_path: Path) -> str:
    texts = [("王小明去了上海", [(0, 3, "PER"), (5, 7, "GPE")]), ("京 城", [(0, 3, "GPE")]), ("天气很好", [])]
    return str(save_corpus(tmp_path / "train.spacy", texts))


def config(path: Path, pipe: str) -> Path:
    """Write a config with the same corpus for training and development, whose path is set on the command line."""
    config = make_config(path.parent, tener() if pipe == "tener_ner" else {pipe: {"factory": pipe}})
    config["paths"]["train"] = None
    config["corpora"]["dev"] = config["corpora"]["train"]
    fill(config).to_disk(path)
    return path


def report(*arguments: str | Path, status: int = 1) -> str:
    """Return the output of the command. spaCy exits with status 1, because three documents are too few."""
    ran = CommandResult(*arguments)
    assert ran.code == status, ran.text
    return ran.stdout


def entities(text: str) -> str:
    return text.partition("Named Entity Recognition")[2]


@pytest.mark.parametrize("options", [["-NF", "-V"], ["-NF", "-IW"]], ids=" ".join)
def test_entity_section_equals_report_for_ner(tmp_path: Path, train: str, options: list[str]) -> None:
    ner_config, tener_config = (config(tmp_path / f"{pipe}.cfg", pipe) for pipe in ("ner", "tener_ner"))
    expected = report("debug", "data", ner_config, "--paths.train", train, *options)
    assert "2 label(s)" in entities(expected)
    assert entities(report("debug", "data", tener_config, "--paths.train", train, *options)) == ""
    found = report("tener", "debug-data", tener_config, "--paths.train", train, *options)
    assert entities(found) == entities(expected)
    assert "Training pipeline: tener_ner" in found


def test_callback_and_code_of_config_are_used(tmp_path: Path, train: str) -> None:
    code = tmp_path / "code.py"
    code.write_text(CALLBACK, encoding="utf8")
    path = config(tmp_path / "tener.cfg", "tener_ner")
    text = path.read_text(encoding="utf8").replace("after_pipeline_creation = null\n", "")
    path.write_text(text + '\n[nlp.after_pipeline_creation]\n@callbacks = "test.named"\n', encoding="utf8")
    printed = report("tener", "debug-data", path, "--code", code, "--paths.train", train)
    assert "CALLED WITH tener_ner" in printed
    assert "2 label(s)" in entities(printed)


def test_invalid_setting_is_named_in_output(tmp_path: Path, train: str) -> None:
    path = config(tmp_path / "tener.cfg", "tener_ner")
    assert "max_steps" in report("tener", "debug-data", path, "--paths.train", train, "--training.max_steps", "many")


def test_incomplete_config_raises_error(tmp_path: Path) -> None:
    (tmp_path / "part.cfg").write_text("[training]\nmax_steps = 3\n")
    ran = CommandResult("tener", "debug-data", tmp_path / "part.cfg")
    assert "no section [nlp]" in ran.text
    assert "Use a complete training config" in ran.text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "tener.cfg: Corpus path can't be None"),
        (["--paths.train", "corpus.spacy"], "corpus.spacy: cannot be read: No such file or directory Check the path."),
        (["--paths.train", "junk.spacy"], "junk.spacy: is not a .spacy file Create one with `spacy tener convert`."),
        (["--paths.train", "empty.spacy"], "empty.spacy: contains no texts in .spacy files Create .spacy files with"),
        (["--paths.train"], "tener.cfg: train.path: at root: True is not"),
    ],
)
def test_unreadable_corpus_raises_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "junk.spacy").write_text("hello", encoding="utf8")
    save_docs(tmp_path / "empty.spacy")
    config(tmp_path / "tener.cfg", "tener_ner")
    assert message in " ".join(report("tener", "debug-data", "tener.cfg", *options).split())


def test_corpus_limit_is_applied(tmp_path: Path, train: str) -> None:
    path = config(tmp_path / "tener.cfg", "tener_ner")
    options = ("--paths.train", train, "--corpora.train.limit", "1", "--corpora.dev.limit", "0")
    printed = report("tener", "debug-data", path, *options)
    assert "1 training docs" in printed
    assert "3 evaluation docs" in printed


def test_tokens_with_missing_annotation_are_counted(tmp_path: Path) -> None:
    doc = annotated("王小明去了上海", [(0, 3, "PER")])
    doc.set_ents(list(doc.ents), missing=[doc[3:5]], default="unmodified")
    save_docs(tmp_path / "train.spacy", doc, annotated("天气很好"))
    path = config(tmp_path / "tener.cfg", "tener_ner")
    printed = report("tener", "debug-data", path, "--paths.train", str(tmp_path / "train.spacy"))
    assert "2 of 11 tokens have no annotation" in " ".join(printed.split())
