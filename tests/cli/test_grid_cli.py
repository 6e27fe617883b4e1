"""`python -m spacy tener grid`: every run in processes of its own, whatever becomes of the others."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
import srsly
from made_runs import metrics, write_json
from made_trainings import make_config, tener, write_corpus
from spacy.cli._util import app
from spacy.util import load_config
from typer.testing import CliRunner

import spacy_tener.cli  # noqa: F401 - registers the commands
from spacy_tener.cli.evaluate import evaluate_cli
from spacy_tener.workbench.runs import jobs as grid_jobs
from spacy_tener.workbench.runs.output_folder import CHECKPOINT
from spacy_tener.workbench.runs.resumable import train

PARTS = ("train", "dev", "test")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two corpora, their configs, and an overlay."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for corpus in ("red", "blue"):
        for part in PARTS:
            write_corpus(tmp_path / "corpus" / corpus / f"{part}.spacy", 8)
        config = make_config(tmp_path, tener(), before_update=None, max_steps=4, eval_frequency=2)
        config["paths"] = {"train": None, "dev": None}
        (tmp_path / "configs" / "models").mkdir(parents=True, exist_ok=True)
        config.to_disk(tmp_path / "configs" / f"{corpus}.cfg")
    overlay = "[components.tener_ner]\noverlap = 20\n"
    (tmp_path / "configs" / "models" / "short.cfg").write_text(overlay, encoding="utf8")
    return tmp_path


def grid(*arguments: str) -> tuple[int, str, str]:
    command = ["tener", "grid", "out", *arguments]
    result = CliRunner(env={"WASABI_LOG_FRIENDLY": "1"}).invoke(app, command)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, " ".join(result.stderr.split())


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What would be run by itself is run here, which is quicker. Gives what was run."""
    run: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)

    def run_here(_: object, command: Sequence[str], log: Path) -> int:
        kind, path, *rest = command[4:]
        run.append(f"{kind} {' '.join(Path(path).parts[1:4])}" + " anew" * ("--restart" in rest))
        options = dict(pairwise(rest))
        try:
            if kind == "train":
                with log.open("a", encoding="utf8") as file:
                    config = load_config(path, interpolate=False)
                    train(config, Path(options["--output"]), restart="--restart" in rest, stdout=file, stderr=file)
            else:
                evaluate_cli(path, Path(rest[0]), Path(options["--output"]), "--gold-preproc" in rest, -1, None)
        except Exception as error:
            log.write_text(f"because of {error}\n", encoding="utf8")
            return 3
        return 0

    monkeypatch.setattr(grid_jobs.Children, "run", run_here)
    return run


def test_a_run_is_trained_and_scored_in_processes_of_its_own(here: Path) -> None:
    wanted = ("--corpora", "red", "--systems", "short", "--seeds", "3")
    code, table, messages = grid(*wanted)
    assert code == 0, messages
    assert "red/short/3: training" in messages
    assert "red/short/3: F1 " in messages
    folder = here / "out" / "red" / "short" / "3"
    found = {path.name for path in folder.iterdir()}
    assert found == {"config.cfg", "metrics.json", "model-best", "output.log", "record.json", "training.jsonl"}
    assert [line["step"] for line in srsly.read_jsonl(folder / "training.jsonl")] == [0, 2, 4]
    assert "ents_counts" in srsly.read_json(folder / "metrics.json")
    printed = (folder / "output.log").read_text(encoding="utf8").splitlines()
    commands = [shlex.split(line[2:]) for line in printed if line.startswith("$ ")]
    assert [command[3:5] for command in commands] == [["tener", "train"], ["tener", "evaluate"]]
    # One training at a time is shown as it goes on.
    for line in printed:
        assert line.startswith("$ ") or " ".join(line.split()) in messages
    assert [line.split()[:3] for line in table.splitlines() if line.startswith("red")] == [["red", "short", "1"]]
    # And again.
    code, again, messages = grid(*wanted)
    assert (code, again) == (0, table)
    assert "Finished already: 1 of 1 red/short/3" in messages
    assert "There is nothing to do" in messages


def test_only_what_is_missing_is_done(here: Path, commands: list[str]) -> None:
    grid("--corpora", "red", "--systems", "tener", "--seeds", "1")
    assert commands == ["train red tener 1", "evaluate red tener 1"]
    commands.clear()
    grid("--corpora", "red", "--systems", "tener", "--seeds", "1,2")
    assert commands == ["train red tener 2", "evaluate red tener 2"]
    commands.clear()
    (here / "out" / "red" / "tener" / "1" / "metrics.json").unlink()
    grid("--corpora", "red", "--systems", "tener", "--seeds", "1,2")
    assert commands == ["evaluate red tener 1"]


def test_what_has_changed_is_trained_anew_and_the_reason_is_said(here: Path, commands: list[str]) -> None:
    wanted = ("--corpora", "red,blue", "--systems", "tener", "--seeds", "1")
    grid(*wanted)
    commands.clear()
    write_corpus(here / "corpus" / "blue" / "train.spacy", 6)
    _, _, messages = grid(*wanted)
    assert commands == ["train blue tener 1 anew", "evaluate blue tener 1"]
    assert "blue/tener/1: training anew paths.train: corpus/blue/train.spacy has other contents" in messages
    assert "Finished already: 1 of 2 red/tener/1" in messages
    commands.clear()
    _, _, messages = grid(*wanted, "--set", "training.max_steps=2")
    assert commands[::2] == ["train red tener 1 anew", "train blue tener 1 anew"]
    assert "training.max_steps: was 4, is 2" in messages
    assert [line["step"] for line in srsly.read_jsonl(here / "out/red/tener/1/training.jsonl")] == [0, 2]


def test_a_run_that_fails_does_not_end_the_others(here: Path, commands: list[str]) -> None:
    for part in PARTS:
        write_corpus(here / "corpus" / "red" / f"{part}.spacy", 0)
    code, table, messages = grid("--corpora", "red,blue", "--systems", "tener", "--seeds", "1")
    assert code == 1
    assert commands == ["train red tener 1", "train blue tener 1", "evaluate blue tener 1"]
    assert "red/tener/1: training ended with exit status 3 because of" in messages
    assert (
        f"Failed: 1 of 2 red/tener/1: training ended with exit status 3: {Path('out/red/tener/1/output.log')}"
        in messages
    )
    assert [line.split()[:3] for line in table.splitlines() if "tener" in line] == [["blue", "tener", "1"]]
    assert "Unfinished runs: 1 red/tener/1" in messages


def test_a_run_whose_directory_cannot_be_made_does_not_end_the_others(here: Path, commands: list[str]) -> None:
    (here / "out" / "red" / "tener").mkdir(parents=True)
    (here / "out" / "red" / "tener" / "1").touch()
    code, _, messages = grid("--corpora", "red,blue", "--systems", "tener", "--seeds", "1")
    assert code == 1
    assert commands == ["train blue tener 1", "evaluate blue tener 1"]
    assert f"red/tener/1: [Errno 17] File exists: '{Path('out/red/tener/1')}'" in messages


def test_a_stopped_training_goes_on_in_its_midst(
    here: Path, commands: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = ("--corpora", "red", "--systems", "tener", "--seeds", "1")
    folder = here / "out" / "red" / "tener" / "1"
    with monkeypatch.context() as patch:
        patch.setattr("spacy_tener.workbench.runs.resumable.Training._save_best", fail_at_the_second())
        assert grid(*wanted)[0] == 1
    assert (folder / CHECKPOINT).exists()
    code, _, messages = grid(*wanted)
    assert code == 0
    assert "red/tener/1: going on with its training" in messages
    assert "Continuing after step 2" in (folder / "output.log").read_text(encoding="utf8")
    assert [line["step"] for line in srsly.read_jsonl(folder / "training.jsonl")] == [0, 2, 4]


def fail_at_the_second() -> Callable[[object], None]:
    calls: list[object] = []

    def fail(training: object) -> None:
        calls.append(training)
        if len(calls) == 2:
            raise RuntimeError("stopped")

    return fail


@pytest.mark.parametrize("jobs", [1, 2])
def test_nothing_else_is_trained_or_scored_while_a_speed_is_measured(
    here: Path, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    running: set[str] = set()
    most = {"train": 0, "evaluate": 0}
    others: list[set[str]] = []

    def run(_: object, command: Sequence[str], log: Path) -> int:
        kind = command[4]
        if kind == "evaluate":
            others.append(set(running))
        running.add(command[5])
        most[kind] = max(most[kind], len(running))
        time.sleep(0.05)
        running.remove(command[5])
        write_json(log.parent / "metrics.json", metrics({"PER": (1, 1, 1)}))
        return 0 if "red" in log.parts else 3

    monkeypatch.setattr(grid_jobs.Children, "run", run)
    grid("--corpora", "red,blue", "--systems", "tener", "--seeds", "1,2,3,4", "--jobs", str(jobs))
    assert others == [set()] * 4  # Blue failed, so it has no scores.
    assert most == {"train": jobs, "evaluate": 1}


def test_ctrl_c_ends_all_processes_and_says_how_to_go_on(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = here / "started"
    started.mkdir()
    code = "import os, pathlib, sys, time; pathlib.Path('started', str(os.getpid())).touch(); time.sleep(60)"
    monkeypatch.setattr(grid_jobs, "_train_command", lambda task: [sys.executable, "-c", code])

    def interrupt() -> None:
        while len(list(started.iterdir())) < 2:
            wait.wait(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    wait = threading.Event()
    thread = threading.Thread(target=interrupt)
    thread.start()
    status, table, messages = grid("--corpora", "red", "--systems", "tener", "--seeds", "1,2,3", "--jobs", "2")
    thread.join()
    assert (status, table) == (130, "")
    assert messages.count(": training") == 2  # The third is not begun in the place of one that is ended.
    assert "Stopped The same command goes on from each training's last evaluation." in messages
    pids = [int(path.name) for path in started.iterdir()]
    assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--corpora", "green", "--systems", "tener"), "there is no such file"),
        (("--corpora", "red", "--systems", "flat"), "there is no overlay"),
        (("--corpora", "red", "--systems", "tener", "--seeds", "1,x"), "not whole numbers"),
        (("--corpora", "red", "--systems", "tener", "--seeds", ""), "not whole numbers"),
        (("--corpora", "red", "--systems", "tener", "--set", "training.nothing=1"), "the config has no"),
        (("--corpora", ",", "--systems", "tener"), "There is nothing to train"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_trained(
    here: Path, commands: list[str], arguments: tuple[str, ...], said: str
) -> None:
    code, table, messages = grid(*arguments)
    assert (code, table, commands) == (1, "", [])
    assert said in messages
    assert not (here / "out").exists()


def test_the_corpus_own_tokens_are_scored_where_training_keeps_them(here: Path, commands: list[str]) -> None:
    run = here / "out" / "red" / "tener" / "1"
    command = None

    def watched(task: grid_jobs.Task) -> list[str]:
        nonlocal command
        command = original(task)
        return command

    original = grid_jobs._evaluate_command
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grid_jobs, "_evaluate_command", watched)
        settings = [f"corpora.{part}.gold_preproc=true" for part in ("train", "dev")]
        grid("--corpora", "red", "--systems", "tener", "--seeds", "1", "--set", settings[0], "--set", settings[1])
    assert command is not None
    assert command[-1] == "--gold-preproc"
    assert json.loads((run / "metrics.json").read_text(encoding="utf8"))["token_acc"] == 1.0


def test_jobs_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid_jobs, "cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("SPACY_CONFIG_OVERRIDES", "--training.max_steps 1")
    found = [grid_jobs.environment(jobs) for jobs in (1, 3, 8, 20)]
    assert [each["OMP_NUM_THREADS"] for each in found] == ["8", "2", "1", "1"]
    assert "SPACY_CONFIG_OVERRIDES" not in found[0]
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert grid_jobs.environment(3)["OMP_NUM_THREADS"] == "5"
