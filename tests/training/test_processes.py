"""Child processes of training runs: their logs, their environment, and how they are stopped."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path

import pytest
import spacy
from tiny_trainings import is_alive
from waiting import wait_until

from spacy_tener.pipeline.learning.callbacks import json_lines_logger
from spacy_tener.processes import interrupted_by_signals
from spacy_tener.training import runs
from spacy_tener.training.runs import Processes, StoppedError, environment

SLEEPER = """
import os, pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
pathlib.Path(sys.argv[1]).write_text(f"{os.getpid()} {child.pid}\\n")
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    (tmp_path / "shower.py").write_text("import sys\nprint(*sys.argv[1:])\nsys.exit(len(sys.argv[1:]))\n")


def read_pids(path: Path) -> list[int]:
    wait_until(lambda: path.exists() and path.read_text().endswith("\n"))
    return [int(pid) for pid in path.read_text().split()]


def test_run_appends_output_to_log_and_returns_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "MODULE", "shower")
    for arguments in ([], ["a", "b c"]):
        assert Processes().run(arguments, tmp_path / "log") == len(arguments)
    text = (tmp_path / "log").read_text()
    assert text == "$ python -m shower\n\n$ python -m shower a 'b c'\na b c\n"


def test_stop_ends_all_processes_and_prevents_new_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "MODULE", "sleeper")
    processes_of_test = Processes()

    def run(name: str) -> None:
        with pytest.raises(StoppedError):
            processes_of_test.run([str(tmp_path / name)], tmp_path / "log")

    threads = [threading.Thread(target=run, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    running = [pid for name in "ab" for pid in read_pids(tmp_path / name)]
    processes_of_test.stop()
    for thread in threads:
        thread.join(30)  # half of the time that the processes would run otherwise
        assert not thread.is_alive()
    wait_until(lambda: not any(map(is_alive, running)))
    run("c")
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_signals_raise_interrupt_unless_ignored(name: str) -> None:
    number = getattr(signal, name)
    before = signal.signal(number, signal.SIG_DFL)  # under nohup, SIGHUP is ignored
    try:
        with pytest.raises(KeyboardInterrupt), interrupted_by_signals():
            signal.raise_signal(number)
        assert signal.getsignal(number) is signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN)
        with interrupted_by_signals():
            signal.raise_signal(number)
    finally:
        signal.signal(number, before)


def test_logger_flushes_lines(tmp_path: Path) -> None:
    file = tmp_path / "training.jsonl"
    log, end = json_lines_logger(str(file))(spacy.blank("zh"), sys.stdout, sys.stderr)
    info = {"epoch": 0, "step": 5, "losses": {"tener_ner": 2}, "other_scores": {"ents_f": 0.5}, "score": 0.5}
    for step in range(2):
        log({**info, "step": step})
        log(None)
        assert json.loads(file.read_text().splitlines()[-1])["step"] == step
    end()


def test_training_run_of_command_stops_with_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = []
    for variables in ({}, environment(1)):  # a user's `spacy train`, and the training run of a command
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        logs.append(json_lines_logger(str(tmp_path / "training.jsonl"))(spacy.blank("zh"), sys.stdout, sys.stderr))
    parent = os.getppid()  # may be 1, as in a container
    monkeypatch.setattr(os, "getppid", lambda: parent + 1)
    (log, end), (log_of_command, end_of_command) = logs
    log(None)
    with pytest.raises(SystemExit, match=r"has ended, so the training run stops\. Run the command again\."):
        log_of_command(None)
    end()
    end_of_command()


def test_environment_keeps_threads_and_removes_overrides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPACY_CONFIG_OVERRIDES", "--training.max_steps 1")
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert environment(3)["OMP_NUM_THREADS"] == "5"
    assert "SPACY_CONFIG_OVERRIDES" not in environment(1)
