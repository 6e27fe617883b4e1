"""`python -m spacy tener train`: as `spacy train`, and again after whatever ended it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import srsly
from made_trainings import LOG, make_config, tener, write_corpus
from spacy.cli._util import app
from typer.main import get_command
from typer.testing import CliRunner

import spacy_tener.cli  # noqa: F401 - registers the commands
from spacy_tener.workbench.runs.output_folder import CHECKPOINT, RECORD

# What a user would give by --code. It ends the process the first time that step 5 comes.
CODE = """
import os
import signal
from pathlib import Path
from spacy.util import registry

ENDED = Path("ended")

@registry.callbacks("tests.end.v1")
def make(name):
    def end(nlp, info):
        if name and info["step"] == 5 and not ENDED.exists():
            ENDED.touch()
            os.kill(os.getpid(), getattr(signal, name))
    return end
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with corpora, a config and code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    write_corpus(tmp_path / "train.spacy")
    write_corpus(tmp_path / "dev.spacy", 6)
    config = make_config(tmp_path, tener(), max_steps=7, eval_frequency=2)
    config["paths"] = {"train": None, "dev": None}
    config["training"]["before_update"] = {"@callbacks": "tests.end.v1", "name": None}
    config["training"]["logger"]["output_file"] = None
    config.to_disk(tmp_path / "config.cfg")
    (tmp_path / "code.py").write_text(CODE, encoding="utf8")
    return tmp_path


def arguments(output: str, *more: str, end: str = "null") -> list[str]:
    paths = [
        "--paths.train",
        "train.spacy",
        "--paths.dev=dev.spacy",
        "--training.logger.output_file",
        f"{output}/{LOG}",
    ]
    ending = ["--training.before_update.name", end]
    return ["tener", "train", "config.cfg", "--output", output, "--code", "code.py", *paths, *ending, *more]


def train(output: str, *more: str, end: str = "null") -> tuple[int, str]:
    result = CliRunner(env={"WASABI_LOG_FRIENDLY": "1"}).invoke(app, arguments(output, *more, end=end))
    return result.exit_code, " ".join(result.output.split())


def weights(output: str) -> list[bytes]:
    return [Path(output, model, "tener_ner", "model").read_bytes() for model in ("model-best", "model-last")]


def steps(output: str) -> list[int]:
    return [line["step"] for line in srsly.read_jsonl(Path(output, LOG))]


def test_a_process_that_was_killed_goes_on_by_the_same_command(here: Path) -> None:
    command = [sys.executable, "-m", "spacy", *arguments("killed", end="SIGKILL")]
    killed = subprocess.run(command, capture_output=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert Path("killed", CHECKPOINT).exists()
    code, text = train("killed", end="SIGKILL")
    assert code == 0, text
    assert "Continuing after step 4" in text
    train("whole", end="SIGKILL")
    assert weights("killed") == weights("whole")
    assert steps("killed") == [0, 2, 4, 6]
    assert {path.name for path in Path("killed").iterdir()} == {"model-best", "model-last", LOG, RECORD}


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_an_interrupted_training_says_how_to_go_on(here: Path, name: str) -> None:
    before = signal.getsignal(signal.SIGTERM)
    code, text = train("out", end=name)
    assert code == 130
    assert "Stopped The same command goes on from the last evaluation." in text
    assert signal.getsignal(signal.SIGTERM) is before
    assert train("out", end=name)[0] == 0
    assert steps("out") == [0, 2, 4, 6]


def test_another_config_is_refused_and_a_restart_takes_it(here: Path) -> None:
    train("out", end="SIGINT")
    other = ("--training.dropout", "0.5")
    code, text = train("out", *other, end="SIGINT")
    assert code == 1
    assert "training.dropout: was 0.2, is 0.5" in text
    assert "To begin anew, give --restart." in text
    code, text = train("out", *other, "--restart", end="SIGINT")
    assert code == 0, text
    assert steps("out") == [0, 2, 4, 6]


def test_a_finished_training_is_left_alone(here: Path) -> None:
    assert train("out")[0] == 0
    before = {path: path.stat().st_mtime_ns for path in Path("out").rglob("*")}
    code, text = train("out")
    assert code == 0
    assert "out: this training is finished, after step 7" in text
    assert {path: path.stat().st_mtime_ns for path in Path("out").rglob("*")} == before


def test_what_is_wrong_with_a_config_is_said_as_spacy_says_it(here: Path) -> None:
    code, text = train("out", "--training.patience", "many")
    assert code == 1
    assert "patience" in text
    assert train("out", "--nonsense", "x")[0] != 0
    assert not Path("out", RECORD).exists()


def test_every_option_of_spacy_train_is_there() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]

    def options(command: object) -> set[str]:
        return {name for each in command.params for name in each.opts if name.startswith("-")}  # type: ignore[attr-defined]

    ours, spacys = options(commands["tener"].commands["train"]), options(commands["train"])
    assert spacys - ours == {"-VV"}
    assert ours - spacys == {"--restart"}
