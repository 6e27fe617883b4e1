"""Trainings by `spacy train`: each a process with a log, in its own directory."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from spacy.training.loop import DIR_MODEL_BEST, DIR_MODEL_LAST
from spacy.util import ENV_VARS
from thinc.api import Config

from ..errors import RemedyError
from ..files import write_text
from ..manifest import NAME, Manifest, file_input
from ..processes import count_cores
from .config_files import entries
from .overlays import CONFIG

MODULE = "spacy"
_THREADS_VARIABLE = "OMP_NUM_THREADS"
_PATIENCE = 10.0  # seconds from SIGTERM to SIGKILL


Echo = Callable[[str], object]
"""A function that takes each line that a process prints."""


class StoppedError(Exception):
    """Raised when a process is started after `Processes.stop`."""


class Processes:
    """Processes of `python -m spacy`, which several threads may start.

    jobs (int): The number of processes at once, which share the cores.
    echo (Echo | None): Called with the lines that they print.
    """

    def __init__(self, jobs: int = 1, echo: Echo | None = None) -> None:
        self._echo = echo
        self._environment = environment(jobs)
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def run(self, arguments: Sequence[str], log: Path) -> int:
        """Run a spaCy command to its end, and append its output to a file. Returns its exit status."""
        with log.open("ab") as file:
            self._write(file, f"$ {shlex.join(['python', '-m', MODULE, *arguments])}\n".encode())
            with self._lock:
                if self._stopped:
                    raise StoppedError
                process = subprocess.Popen(
                    [sys.executable, "-m", MODULE, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    env=self._environment,
                    start_new_session=True,
                )
                self._running.add(process)
            assert process.stdout is not None
            try:
                with process.stdout as printed:
                    for line in printed:
                        self._write(file, line)
                status = process.wait()
            finally:
                _end([process])
                with self._lock:
                    self._running.discard(process)
        if self._stopped:
            raise StoppedError
        return status

    def _write(self, log: IO[bytes], line: bytes) -> None:
        log.write(line)
        log.flush()
        if self._echo:
            self._echo(line.decode("utf8", errors="replace"))

    def stop(self) -> None:
        """End all processes, and let no other start."""
        with self._lock:
            self._stopped = True
            running = list(self._running)
        _end(running)


def environment(jobs: int) -> dict[str, str]:
    """Return the environment of one of `jobs` processes that share the cores. A set OMP_NUM_THREADS is kept."""
    inherited = {name: value for name, value in os.environ.items() if name != ENV_VARS.CONFIG_OVERRIDES}
    plain = {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf8", "WASABI_LOG_FRIENDLY": "1"}
    return {_THREADS_VARIABLE: str(max(1, count_cores() // jobs)), **inherited, **plain}


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End processes with their children."""
    for process in processes:
        _signal(process, signal.SIGTERM)
    for process in processes:
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            _signal(process, signal.SIGKILL if sys.platform != "win32" else signal.SIGTERM)
            process.wait()


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    if sys.platform == "win32":
        process.terminate()
    elif process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)


MODEL, METRICS_TEST, METRICS_DEV, LOG = DIR_MODEL_BEST, "metrics.json", "metrics-dev.json", "training.jsonl"
"""The pipeline that was chosen, its scores on test and on dev, and the log of the training."""
OUTPUT = "output.log"
"""The file with what the processes of a run print."""
SCORE = "ents_f"
_LOGGER = "spacy_tener.JsonLinesLogger.v1"
_LONGEST = 300
# The logger changes nothing about the result, nor does the size of a teacher's cache.
_NOT_COMPARED = re.compile(r"training\.logger(\.|$)|initialize\..*\.teacher\.cache_mb$")
# Sections whose values may name directories. Values anywhere may name files.
_WITH_FOLDERS = ("paths", "corpora", "initialize")


@dataclass(frozen=True)
class TrainingRun:
    """A training in a directory.

    config (Config): Complete.
    gpu_id (int): -1 for the CPU.
    code (Path | None): A Python file with what the config needs.
    takes_last (bool): The last pipeline is the result, whatever the scores on dev.
    """

    name: str
    folder: Path
    config: Config
    gpu_id: int = -1
    code: Path | None = None
    takes_last: bool = False

    @property
    def options(self) -> list[str]:
        """The options of spaCy's commands for this run."""
        return ["--gpu-id", str(self.gpu_id), *(["--code", str(self.code)] if self.code else [])]

    def manifest(self) -> Manifest:
        """Return the manifest of this run, with its files as they are now: the values of the interpolated config by
        their dotted names. MODEL is a part of it when it is trained."""
        made_of = {
            name: _as_input(name, value)
            for name, value in entries(self.config.interpolate())
            if not (isinstance(value, Mapping) and value) and not _NOT_COMPARED.match(name)
        }
        return Manifest(self.folder, {**made_of, "code": file_input(self.code)} if self.code else made_of)


def train(run: TrainingRun, processes: Processes) -> str:
    """Train from the beginning, whatever the directory has. Returns why it failed, or an empty string."""
    folder, manifest = run.folder, run.manifest()
    for name in (NAME, METRICS_TEST, METRICS_DEV, LOG, OUTPUT):
        (folder / name).unlink(missing_ok=True)
    config = run.config.copy()
    config["training"]["logger"] = {"@loggers": _LOGGER, "output_file": str(folder / LOG)}
    write_text(folder / CONFIG, config.to_str(interpolate=False) + "\n")
    command = ["train", str(folder / CONFIG), "--output", str(folder), *run.options]
    status = processes.run(command, folder / OUTPUT)
    if run.takes_last and not status:
        shutil.rmtree(folder / MODEL)
        (folder / DIR_MODEL_LAST).rename(folder / MODEL)
    shutil.rmtree(folder / DIR_MODEL_LAST, ignore_errors=True)
    if status:
        return f"training {exit_reason(status, folder)}"
    rows = (folder / LOG).read_text(encoding="utf8").splitlines() if (folder / LOG).is_file() else []
    if not any(SCORE in json.loads(row)["scores"] for row in rows):
        return f"no {SCORE} in the scores on dev"
    # The pipeline may be removed to save room; its scores on dev stay.
    meta: dict[str, Any] = json.loads((folder / MODEL / "meta.json").read_text(encoding="utf8"))
    write_text(folder / METRICS_DEV, json.dumps(meta["performance"], indent=1) + "\n")
    manifest.finish(MODEL)
    return ""


def is_trained(run: TrainingRun) -> bool:
    """Return whether a run is trained and its pipeline is there. Refuses a directory with another training."""
    before = Manifest.read(run.folder)
    if before is None or MODEL not in before.parts or not (run.folder / MODEL / "meta.json").is_file():
        return False
    changes = before.changes(run.manifest())
    if changes:
        reason = f"{run.folder}: holds another training ({'; '.join(changes)})"
        raise RemedyError(reason, "Choose another --output, or delete this one to train again.")
    return True


def _as_input(name: str, value: Any) -> Any:
    """Return the value, or what a manifest keeps of the file or directory that it names."""
    if not isinstance(value, str | Path) or not str(value):
        return value
    path, sections = Path(value), name.split(".")
    with_folders = sections[0] in _WITH_FOLDERS or sections[-1] == "source"
    try:
        is_input = path.is_file() or (with_folders and path.is_dir())
    except (OSError, ValueError):  # a text that is no path
        is_input = False
    return file_input(path) if is_input else str(value)


def exit_reason(status: int, folder: Path) -> str:
    """Describe how a process ended, with its last line."""
    if status < 0:
        return f"was killed by signal {-status}"
    lines = (folder / OUTPUT).read_text(encoding="utf8", errors="replace").splitlines()
    last = next((line.strip() for line in reversed(lines) if line.strip() and not line.startswith("$ ")), "")
    return f"ended with exit status {status}: {last[:_LONGEST] or 'nothing in its log'}"
