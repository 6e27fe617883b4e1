"""Tests of `python -m research grid`: each run has its own processes, and failures do not affect other runs."""

from __future__ import annotations

import os
import re
import shlex
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
import srsly
from research_commands import run_research
from run_directories import metrics, write_json
from tiny_trainings import (
    FAILING_OVERLAY,
    code_options,
    fake_training,
    is_alive,
    make_grid,
    start_process,
    write_corpus,
)
from waiting import wait_until

from spacy_tener.training.runs import Processes

FILES = {
    "config.cfg",
    "metrics.json",
    "metrics-dev.json",
    "model-best",
    "output.log",
    "_manifest.json",
    "training.jsonl",
}


@pytest.fixture
def work_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with two corpora, their configs, and overlays. Training is replaced by `fake_spacy`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    fake_training(monkeypatch, tmp_path / "hold")
    four = "[components.tener_ner.model.tok2vec]\nheads = 4\n"
    make_grid(tmp_path, ["red", "blue"], {"four": four, "bad": FAILING_OVERLAY})
    return tmp_path


def grid(*arguments: str, configs: Sequence[str] = ("--configs", "configs")) -> tuple[int, str, str]:
    ran = run_research("grid", "out", *configs, *arguments)
    return ran.code, ran.stdout, ran.stderr


def wanted(corpora: str = "red", systems: str = "tener", seeds: str = "1") -> Sequence[str]:
    return ("--corpora", corpora, "--systems", systems, "--seeds", seeds)


def times(folder: Path) -> dict[Path, int]:
    """Return the modification times of all files."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def commands(run: str) -> list[str]:
    lines = (Path("out") / run / "output.log").read_text(encoding="utf8").splitlines()
    return [shlex.split(line)[4] for line in lines if line.startswith("$ ")]


@pytest.mark.parametrize(
    ("module", "steps"), [("fake_spacy", [0, 10]), pytest.param("spacy", [0, 2, 4], marks=pytest.mark.slow)]
)
def test_a_run_is_trained_and_scored_in_processes_of_its_own(work_dir: Path, module: str, steps: list[int]) -> None:
    arguments = (*wanted(seeds="3"), *code_options(work_dir))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spacy_tener.training.runs.MODULE", module)
        code, table, messages = grid(*arguments)
    assert code == 0, messages
    assert "red/tener/3: training" in messages
    assert "red/tener/3: F1 " in messages
    folder = work_dir / "out" / "red" / "tener" / "3"
    assert {path.name for path in folder.iterdir()} == FILES
    assert [line["step"] for line in srsly.read_jsonl(folder / "training.jsonl")] == steps
    assert ("ents_counts" in srsly.read_json(folder / "metrics.json")) == (module == "spacy")
    printed = (folder / "output.log").read_text(encoding="utf8").splitlines()
    started = [shlex.split(line[2:]) for line in printed if line.startswith("$ ")]
    assert [command[:4] for command in started] == [
        ["python", "-m", module, "train"],
        ["python", "-m", module, "tener"],
    ]
    # The output of a single training job is printed while it runs.
    for line in printed:
        assert line.startswith("$ ") or " ".join(line.split()) in messages
    assert [line.split()[:3] for line in table.splitlines() if line.startswith("red")] == [["red", "tener", "1"]]
    # The second call skips the finished run.
    before = times(folder)
    code, again, messages = grid(*arguments)
    assert (code, again) == (0, table)
    assert "Finished already: 1 of 1 red/tener/3" in messages
    assert "There is nothing to do" in messages
    assert times(folder) == before
    # A change of the imported code is reported.
    (work_dir / "mine.py").write_text((work_dir / "mine.py").read_text() + "# another\n")
    code, _, messages = grid(*arguments)
    assert code == 1
    assert re.search(r"red/tener/3: code: \S*mine.py changed", messages)
    assert times(folder) == before


def test_only_what_is_missing_is_done(work_dir: Path) -> None:
    grid(*wanted(seeds="1"))
    before = times(work_dir / "out")
    _, _, messages = grid(*wanted(seeds="1,2"))
    assert "red/tener/2: training" in messages
    assert {path: times(work_dir / "out")[path] for path in before} == before
    (work_dir / "out" / "red" / "tener" / "1" / "metrics.json").unlink()
    _, _, messages = grid(*wanted(seeds="1,2"))
    assert "red/tener/1: scoring" in messages
    assert "training" not in messages
    assert commands("red/tener/1") == ["train", "tener", "tener"]


def test_finished_runs_are_kept_when_something_has_changed_unless_they_are_to_be_trained_again(work_dir: Path) -> None:
    grid(*wanted("red,blue"))
    before = times(work_dir / "out")
    write_corpus(work_dir / "corpus" / "blue" / "train.spacy", 6)
    changed = (*wanted("red,blue", seeds="1,2"), "--set", "training.max_steps=8")
    code, table, messages = grid(*changed)
    assert (code, table) == (1, "")
    assert "2 finished runs have another config or other data and would be lost" in messages
    assert "red/tener/1: training.max_steps: was 4, is 8" in messages
    assert "paths.train: corpus/blue/train.spacy changed" in messages
    assert times(work_dir / "out") == before
    code, _, messages = grid(*changed, "--retrain")
    assert code == 0
    assert "red/tener/1: training again training.max_steps: was 4, is 8" in messages
    assert "There is nothing to do" in grid(*changed)[2]


def test_a_run_that_fails_does_not_end_the_others(work_dir: Path) -> None:
    (work_dir / "out" / "blue").mkdir(parents=True)
    (work_dir / "out" / "blue" / "four").touch()  # prevents the creation of the run's directory
    code, table, messages = grid(*wanted("red,blue", systems="bad,four"))
    assert code == 1
    failure = "training ended with exit status 1: ValueError: [E910] Encountered NaN loss value"
    assert f"red/bad/1: {failure}" in messages
    assert f"blue/bad/1: {failure}" in messages
    assert "blue/four/1: [Errno 20] Not a directory" in messages
    assert "Failed: 3 of 4" in messages
    assert str(Path("out/red/bad/1/output.log")) in messages
    assert [line.split()[:3] for line in table.splitlines() if "four" in line] == [["red", "four", "1"]]
    assert "Unfinished runs: 2" in messages


@pytest.mark.parametrize("jobs", [1, 2])
def test_nothing_else_is_trained_or_scored_while_a_speed_is_measured(
    work_dir: Path, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    running: set[str] = set()
    most = {"train": 0, "tener": 0}
    still_running: list[set[str]] = []
    together = threading.Barrier(jobs, timeout=60)

    def run(self: Processes, arguments: Sequence[str], log: Path) -> int:
        kind, name = arguments[0], str(log)
        if kind == "tener":
            still_running.append(set(running))
        running.add(name)
        most[kind] = max(most[kind], len(running))
        if kind == "train":
            together.wait()
            row = {"step": 1, "scores": {"ents_f": 50.0}, "score": 0.5}
            write_json(log.parent / "model-best" / "meta.json", {"performance": {"ents_f": 0.5}})
            (log.parent / "training.jsonl").write_text(srsly.json_dumps(row) + "\n")
        running.remove(name)
        write_json(log.parent / "metrics.json", metrics({"PER": (1, 1, 1)}))
        return 0 if "red" in log.parts else 3

    monkeypatch.setattr(Processes, "run", run)
    for folder in ("red", "blue"):  # the directories must exist when a process fails
        for seed in "12":
            (work_dir / "out" / folder / "tener" / seed).mkdir(parents=True)
    monkeypatch.setattr("spacy_tener.training.runs.exit_reason", lambda status, folder: str(status))
    monkeypatch.setattr("research.grid.exit_reason", lambda status, folder: str(status))
    grid(*wanted("red,blue", seeds="1,2"), "--jobs", str(jobs))
    assert still_running == [set()] * 2  # the runs on "blue" failed and are not scored
    assert most == {"train": jobs, "tener": 1}


def test_a_grid_that_is_killed_goes_on_by_the_same_command_and_leaves_finished_runs_alone(work_dir: Path) -> None:
    (work_dir / "hold").write_text("2")
    killed = start_process(grid, *wanted(seeds="1,2,3"))
    out = work_dir / "out" / "red" / "tener"
    wait_until((out / "2" / "pid").exists)
    finished = times(out / "1")
    assert {path.name for path in (out / "1").iterdir()} == FILES
    # Another process cannot use the same directory at the same time.
    code, _, messages = grid(*wanted(seeds="1,2,3"))
    assert (code, "another process uses this directory" in messages) == (1, True)
    killed.kill()
    killed.join()
    wait_until(lambda: not is_alive(int((out / "2" / "pid").read_text())))
    assert not (out / "2" / "metrics.json").exists()
    (work_dir / "hold").unlink()
    code, table, messages = grid(*wanted(seeds="1,2,3"))
    assert code == 0
    assert "Finished already: 1 of 3 red/tener/1" in messages
    assert [line.split()[:3] for line in table.splitlines() if line.startswith("red")] == [["red", "tener", "3"]]
    assert times(out / "1") == finished


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--corpora", "green", "--systems", "tener"), "No such file"),
        (("--corpora", "red", "--systems", "flut"), "there is no overlay"),
        (("--corpora", "red", "--systems", "tener", "--set", "training.nothing=1"), "the config has no"),
        (("--corpora", ",", "--systems", "tener"), "The grid is empty"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_trained(
    work_dir: Path, arguments: tuple[str, ...], said: str
) -> None:
    code, table, messages = grid(*arguments)
    assert (code, table) == (1, "")
    assert said in messages
    assert not (work_dir / "out").exists()


@pytest.mark.parametrize("seeds", ["1,x", ""])
def test_seeds_are_numbers(work_dir: Path, seeds: str) -> None:
    code, table, messages = grid("--corpora", "red", "--systems", "tener", "--seeds", seeds)
    assert (code, table, "not whole numbers" in messages) == (2, "", True)


def test_the_corpus_own_tokens_are_scored_where_training_keeps_them(work_dir: Path) -> None:
    settings = [part for name in ("train", "dev") for part in ("--set", f"corpora.{name}.gold_preproc=true")]
    grid(*wanted(), *settings)
    printed = (work_dir / "out" / "red" / "tener" / "1" / "output.log").read_text(encoding="utf8")
    assert [line.endswith("--gold-preproc") for line in printed.splitlines() if line.startswith("$ ")] == [False, True]
