"""Run `spacy train` in subprocesses, each with its own output directory and log.

    processes = Processes(jobs=2)
    failure = train(TrainingRun("flat", Path("runs/flat"), config), processes)

The commands `extend` and `review`, and `research/`, use it. A finished run is recorded in a manifest, so that a resumed
command skips it.
"""

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
_TERMINATION_TIMEOUT = 10.0  # Seconds between SIGTERM and SIGKILL.


# Function that is called with each line that a process prints.
Echo = Callable[[str], object]


class StoppedError(Exception):
    """Raised instead of starting a process if `Processes.stop` was called."""


class Processes:
    """Run commands of `python -m spacy` in subprocesses. Several threads may use the same instance.

    jobs (int): Maximum number of processes at once. Each gets an equal share of the CPU cores.
    echo (Echo | None): Function that is called with each line that they print.
    """

    def __init__(self, jobs: int = 1, echo: Echo | None = None) -> None:
        self._echo = echo
        self._environment = environment(jobs)
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def run(self, arguments: Sequence[str], log: Path) -> int:
        """Run a spaCy command, append its output to a log file, and return its exit status."""
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
                _terminate([process])
                with self._lock:
                    self._running.discard(process)
        if self._stopped:
            raise StoppedError
        return status

    def _write(self, log: IO[bytes], line: bytes) -> None:
        """Write a line to the log, and pass it to `echo`."""
        log.write(line)
        log.flush()
        if self._echo:
            self._echo(line.decode("utf8", errors="replace"))

    def stop(self) -> None:
        """Terminate all processes, and prevent new ones from starting."""
        with self._lock:
            self._stopped = True
            running = list(self._running)
        _terminate(running)


def environment(jobs: int) -> dict[str, str]:
    """Return the environment variables for a process that shares the CPU cores with `jobs - 1` others.

    The number of threads is limited accordingly, unless OMP_NUM_THREADS is already set.
    """
    inherited = {name: value for name, value in os.environ.items() if name != ENV_VARS.CONFIG_OVERRIDES}
    plain = {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf8", "WASABI_LOG_FRIENDLY": "1"}
    return {_THREADS_VARIABLE: str(max(1, count_cores() // jobs)), **inherited, **plain}


def _terminate(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Terminate processes together with their child processes."""
    for process in processes:
        _signal(process, signal.SIGTERM)
    for process in processes:
        try:
            process.wait(_TERMINATION_TIMEOUT)
        except subprocess.TimeoutExpired:
            _signal(process, signal.SIGKILL if sys.platform != "win32" else signal.SIGTERM)
            process.wait()


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to a process and its child processes."""
    if sys.platform == "win32":
        process.terminate()
    elif process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)


# Names in the directory of a run.
# Directory of the selected pipeline.
MODEL = DIR_MODEL_BEST
# Scores of the pipeline on the test set.
METRICS_TEST = "metrics.json"
# Scores of the pipeline on the development set.
METRICS_DEV = "metrics-dev.json"
# Log of all evaluations during the training run.
LOG = "training.jsonl"
# Output of all processes of the run.
OUTPUT = "output.log"
# Score that must be in the log of a successful run.
SCORE = "ents_f"
_LOGGER = "spacy_tener.JsonLinesLogger.v1"
_MAX_MESSAGE = 300
# These settings don't affect the result, so they may differ when a command resumes.
_IGNORED_SETTINGS = re.compile(r"training\.logger(\.|$)|initialize\..*\.teacher\.cache_mb$")
# Values in these sections may be paths of directories. Values in all sections may be paths of files.
_SECTIONS_WITH_FOLDERS = ("paths", "corpora", "initialize")


@dataclass(frozen=True)
class TrainingRun:
    """A training run and its directory.

    name (str): Name of the run.
    folder (Path): Directory of the run.
    config (Config): Complete training config.
    gpu_id (int): GPU, or -1 for the CPU.
    code (Path | None): Python file with registered functions that the config uses.
    use_last (bool): Select the pipeline after the last step instead of the one with the best score on the development
        set.
    """

    name: str
    folder: Path
    config: Config
    gpu_id: int = -1
    code: Path | None = None
    use_last: bool = False

    @property
    def options(self) -> list[str]:
        """Return the options for spaCy's commands."""
        return ["--gpu-id", str(self.gpu_id), *(["--code", str(self.code)] if self.code else [])]

    def manifest(self) -> Manifest:
        """Return a new manifest of this run. It contains all values of the interpolated config, and the present
        contents of the files that they refer to.

        `MODEL` is added as a finished part once the run is complete.
        """
        made_of = {
            name: _as_input(name, value)
            for name, value in entries(self.config.interpolate())
            if not (isinstance(value, Mapping) and value) and not _IGNORED_SETTINGS.match(name)
        }
        return Manifest(self.folder, {**made_of, "code": file_input(self.code)} if self.code else made_of)


def train(run: TrainingRun, processes: Processes) -> str:
    """Train a pipeline. Results of an earlier run in the directory are removed.

    RETURNS (str): Reason of a failure, or an empty string.
    """
    folder, manifest = run.folder, run.manifest()
    for name in (NAME, METRICS_TEST, METRICS_DEV, LOG, OUTPUT):
        (folder / name).unlink(missing_ok=True)
    config = run.config.copy()
    config["training"]["logger"] = {"@loggers": _LOGGER, "output_file": str(folder / LOG)}
    write_text(folder / CONFIG, config.to_str(interpolate=False) + "\n")
    command = ["train", str(folder / CONFIG), "--output", str(folder), *run.options]
    status = processes.run(command, folder / OUTPUT)
    if run.use_last and not status:
        shutil.rmtree(folder / MODEL)
        (folder / DIR_MODEL_LAST).rename(folder / MODEL)
    shutil.rmtree(folder / DIR_MODEL_LAST, ignore_errors=True)
    if status:
        return f"training {exit_reason(status, folder)}"
    rows = (folder / LOG).read_text(encoding="utf8").splitlines() if (folder / LOG).is_file() else []
    if not any(SCORE in json.loads(row)["scores"] for row in rows):
        return f"no {SCORE} in the scores on the development set"
    # Keep the scores in a separate file, since users may remove the pipeline to save disk space.
    meta: dict[str, Any] = json.loads((folder / MODEL / "meta.json").read_text(encoding="utf8"))
    write_text(folder / METRICS_DEV, json.dumps(meta["performance"], indent=1) + "\n")
    manifest.finish(MODEL)
    return ""


def is_trained(run: TrainingRun) -> bool:
    """Return whether a run is complete and its pipeline exists.

    Raises a RemedyError if the directory contains a run with another config or other data.
    """
    before = Manifest.read(run.folder)
    if before is None or MODEL not in before.parts or not (run.folder / MODEL / "meta.json").is_file():
        return False
    changes = before.changes(run.manifest())
    if changes:
        reason = f"{run.folder}: contains another training run ({'; '.join(changes)})"
        raise RemedyError(reason, "Choose another --output, or delete this directory to train again.")
    return True


def _as_input(name: str, value: Any) -> Any:
    """Return the manifest entry of a config value: a digest if the value is the path of a file or directory."""
    if not isinstance(value, str | Path) or not str(value):
        return value
    path, sections = Path(value), name.split(".")
    with_folders = sections[0] in _SECTIONS_WITH_FOLDERS or sections[-1] == "source"
    try:
        is_input = path.is_file() or (with_folders and path.is_dir())
    except (OSError, ValueError):  # The string isn't a valid path, for example because it is too long.
        is_input = False
    return file_input(path) if is_input else str(value)


def exit_reason(status: int, folder: Path) -> str:
    """Return a description of how a process ended, with the last line of its output."""
    if status < 0:
        return f"was killed by signal {-status}"
    lines = (folder / OUTPUT).read_text(encoding="utf8", errors="replace").splitlines()
    last = next((line.strip() for line in reversed(lines) if line.strip() and not line.startswith("$ ")), "")
    return f"ended with exit status {status}: {last[:_MAX_MESSAGE] or 'nothing in its log'}"
