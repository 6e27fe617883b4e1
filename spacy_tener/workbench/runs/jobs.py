"""The runs of a grid, each trained and scored in processes of its own."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from spacy.training.loop import DIR_MODEL_LAST
from spacy.util import ENV_VARS

from ..files import FileError, write_text
from ..report.runs import CONFIG, METRICS, MODEL
from .fingerprint import digest
from .grid import Task
from .output_folder import read_record, write_record

OUTPUT = "output.log"
"""What the processes of a run print."""
_PATIENCE = 10.0  # seconds that a process has for its end
_THREADS = "OMP_NUM_THREADS"


@dataclass(frozen=True)
class Outcome:
    """How a run came out.

    failure: What went wrong; empty where nothing did.
    log: What its processes printed.
    """

    task: Task
    failure: str
    log: Path


class StoppedError(Exception):
    """No process is begun any more."""


class Children:
    """The processes that are running, all of which can be ended at once.

    echo: takes each line that they print, besides the file.
    """

    def __init__(self, environment: Mapping[str, str], echo: Callable[[str], object] | None = None) -> None:
        self._environment = environment
        self._echo = echo
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def run(self, command: Sequence[str], log: Path) -> int:
        """Run a command to its end, its output appended to a file. Returns its exit status."""
        with log.open("ab") as file:
            file.write(f"$ {shlex.join(command)}\n".encode())
            file.flush()
            with self._lock:
                if self._stopped:
                    raise StoppedError
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE if self._echo else file,
                    stderr=subprocess.STDOUT,
                    env=dict(self._environment),
                )
                self._running.add(process)
            self._copy(process, file)
            status = process.wait()
        with self._lock:
            self._running.discard(process)
            if self._stopped:
                raise StoppedError
        return status

    def _copy(self, process: subprocess.Popen[bytes], file: BinaryIO) -> None:
        if self._echo and process.stdout:
            with process.stdout as lines:
                for line in lines:
                    file.write(line)
                    file.flush()
                    self._echo(line.decode("utf8", errors="replace"))

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            running = list(self._running)
        for process in running:
            process.terminate()
        for process in running:
            try:
                process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()


def run_tasks(
    tasks: Sequence[Task],
    jobs: int,
    *,
    begun: Callable[[Task], None],
    ended: Callable[[Outcome], None],
    echo: Callable[[str], object] | None = None,
) -> list[Outcome]:
    """Do what is left of some runs, several at once. If this is interrupted, so are all processes.

    begun: is told of each when it is its turn.
    ended: is told how each came out.
    echo: takes what the processes print, line by line; of several at once the lines would be mixed.
    """
    children = Children(environment(jobs), echo if jobs == 1 else None)
    # How fast a pipeline reads is measured with its scores: not while others are trained on the same cores.
    rounds = [[each] for each in tasks] if jobs == 1 else [list(tasks)]
    outcomes = []
    with ThreadPoolExecutor(jobs) as pool:
        try:
            for together in rounds:
                for outcome in _round(together, pool, children, begun):
                    outcomes.append(outcome)
                    ended(outcome)
            return outcomes
        except BaseException:
            # Before anything else, so that no run that waits takes the place of one that ends.
            pool.shutdown(wait=False, cancel_futures=True)
            children.stop()
            raise


def _round(
    tasks: Sequence[Task], pool: ThreadPoolExecutor, children: Children, begun: Callable[[Task], None]
) -> Iterator[Outcome]:
    """Train several at once, then score one after another."""
    trained = {}
    for future in as_completed([pool.submit(_outcome, _train, each, children, begun) for each in tasks]):
        outcome = future.result()
        if outcome.failure:
            yield outcome
        else:
            trained[outcome.task.cell.name] = outcome.task
    for each in tasks:
        if each.cell.name in trained:
            yield pool.submit(_outcome, _score, each, children, begun).result()


def environment(jobs: int) -> dict[str, str]:
    """That of a process which shares the cores with others. A number of threads that is set already stays."""
    inherited = {name: value for name, value in os.environ.items() if name != ENV_VARS.CONFIG_OVERRIDES}
    plain = {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf8", "WASABI_LOG_FRIENDLY": "1"}
    return {_THREADS: str(max(1, cores() // jobs)), **inherited, **plain}


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _outcome(
    step: Callable[[Task, Children, Path, Callable[[Task], None]], str],
    task: Task,
    children: Children,
    begun: Callable[[Task], None],
) -> Outcome:
    log = task.cell.folder / OUTPUT
    try:
        failure = step(task, children, log, begun)
    except (OSError, FileError) as error:
        failure = str(error)
    return Outcome(task, failure, log)


def _train(task: Task, children: Children, log: Path, begun: Callable[[Task], None]) -> str:
    """Train a run, unless it is. Returns what went wrong, if anything."""
    if task.kind == "evaluate":
        return ""
    begun(task)
    folder = task.cell.folder
    folder.mkdir(parents=True, exist_ok=True)
    _prepare(task)
    if status := children.run(_train_command(task), log):
        return f"training ended with exit status {status}"
    shutil.rmtree(folder / DIR_MODEL_LAST, ignore_errors=True)
    return ""


def _score(task: Task, children: Children, log: Path, begun: Callable[[Task], None]) -> str:
    """Score a trained run. Returns what went wrong, if anything."""
    if task.kind == "evaluate":
        begun(task)
    if status := children.run(_evaluate_command(task), log):
        return f"evaluation ended with exit status {status}"
    record = read_record(task.cell.folder)
    if record is not None:
        write_record(task.cell.folder, replace(record, evaluated=digest(task.cell.test)))
    return ""


def _prepare(task: Task) -> None:
    """What lies in a run's directory before it is trained: its config, and no scores of another training."""
    folder = task.cell.folder
    (folder / METRICS).unlink(missing_ok=True)
    if task.kind != "continue":
        (folder / OUTPUT).unlink(missing_ok=True)
    write_text(folder / CONFIG, task.cell.config)


def _train_command(task: Task) -> list[str]:
    folder = task.cell.folder
    options = ["--output", str(folder), "--gpu-id", str(task.cell.gpu_id), *(["--restart"] * (task.kind == "anew"))]
    return [*_tener("train"), str(folder / CONFIG), *options]


def _evaluate_command(task: Task) -> list[str]:
    cell = task.cell
    options = ["--output", str(cell.folder / METRICS), "--gpu-id", str(cell.gpu_id)]
    paths = [str(cell.folder / MODEL), str(cell.test)]
    return [*_tener("evaluate"), *paths, *options, *(["--gold-preproc"] * cell.gold_preproc)]


def _tener(command: str) -> list[str]:
    return [sys.executable, "-m", "spacy", "tener", command]
