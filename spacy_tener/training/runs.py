"""Run `spacy train` in a subprocess, with a separate output directory and log file for each training run.

    processes = Processes(jobs=2)
    failure = train(TrainingRun("flat", Path("runs/flat"), config), processes)

The output directory contains a manifest with the run's inputs. `is_trained` compares the manifest with the current
inputs, so that commands can skip completed runs. Used by the commands `extend` and `review`, and by `research/`.
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

from ..errors import UserError
from ..files import write_text
from ..manifest import NAME, Manifest, file_input
from ..processes import STOP_WITH_PARENT, count_cores
from .config_files import entries
from .overlays import CONFIG

MODULE = "spacy"
_THREADS_VARIABLE = "OMP_NUM_THREADS"
# Seconds to wait after SIGTERM before a process is killed with SIGKILL.
_TERMINATION_TIMEOUT = 10.0


# Callback for each line in a process's output.
Echo = Callable[[str], object]


class StoppedError(Exception):
    """Raised by `Processes.run` after `Processes.stop` was called."""


class Processes:
    """Run `python -m spacy` commands in subprocesses. Instances are thread-safe.

    jobs (int): Number of commands that may run in parallel. The CPU cores are divided equally among them.
    echo (Echo | None): Callback for each output line.
    """

    def __init__(self, jobs: int = 1, echo: Echo | None = None) -> None:
        self._echo = echo
        self._environment = environment(jobs)
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def run(self, arguments: Sequence[str], log: Path) -> int:
        """Run a spaCy command, and wait until it exits.

        Raises a StoppedError if `stop` is called before the command exits.

        arguments (Sequence[str]): The command and its arguments, such as `["train", "config.cfg"]`.
        log (Path): Log file. The output is appended.
        RETURNS (int): The exit status.
        """
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
                    # Start a new process group, so that `_signal` can terminate child processes as well.
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
        """Write a line to the log file, and pass it to the callback."""
        log.write(line)
        log.flush()
        if self._echo:
            self._echo(line.decode("utf8", errors="replace"))

    def stop(self) -> None:
        """Terminate all running processes. No new processes can be started."""
        with self._lock:
            self._stopped = True
            running = list(self._running)
        _terminate(running)


def environment(jobs: int) -> dict[str, str]:
    """Return the environment variables for a subprocess.

    The number of OpenMP threads is limited, so that parallel processes don't compete for CPU cores. An existing value
    of OMP_NUM_THREADS is kept.

    jobs (int): Number of processes that run in parallel.
    """
    inherited = {name: value for name, value in os.environ.items() if name != ENV_VARS.CONFIG_OVERRIDES}
    # `JsonLinesLogger` stops the training run if this process has ended.
    inherited[STOP_WITH_PARENT] = "1"
    plain = {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf8", "WASABI_LOG_FRIENDLY": "1"}
    # In a dict, later entries take precedence. Inherited variables therefore override the thread limit.
    return {_THREADS_VARIABLE: str(max(1, count_cores() // jobs)), **inherited, **plain}


def _terminate(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Terminate processes and their child processes. Kill processes that don't exit within `_TERMINATION_TIMEOUT`."""
    for process in processes:
        _signal(process, signal.SIGTERM)
    for process in processes:
        try:
            process.wait(_TERMINATION_TIMEOUT)
        except subprocess.TimeoutExpired:
            _signal(process, signal.SIGKILL if sys.platform != "win32" else signal.SIGTERM)
            process.wait()


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to a process and its child processes. On Windows, terminate the process instead."""
    if sys.platform == "win32":
        process.terminate()
    elif process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)


# The subdirectory with the trained pipeline. This path and the following paths are relative to the output directory of
# a training run.
MODEL = DIR_MODEL_BEST
# Scores on the test set.
METRICS_TEST = "metrics.json"
# Scores on the development set.
METRICS_DEV = "metrics-dev.json"
# Scores from all evaluations during training, as JSONL.
LOG = "training.jsonl"
# Console output from all commands.
OUTPUT = "output.log"
# A training run fails if this score was never logged, for example because the config has no `tener_ner`.
SCORE = "ents_f"
_LOGGER = "spacy_tener.JsonLinesLogger.v1"
_MAX_MESSAGE = 300
# Settings that don't affect the trained pipeline. A run can be resumed with different values.
_IGNORED_SETTINGS = re.compile(r"training\.logger(\.|$)|initialize\..*\.teacher\.cache_mb$")
# Values in these sections, and `source` in any section, may refer to a directory. Other values can only refer to files.
_SECTIONS_WITH_FOLDERS = ("paths", "corpora", "initialize")


@dataclass(frozen=True)
class TrainingRun:
    """A training run and its output directory.

    name (str): The run's name.
    folder (Path): Output directory.
    config (Config): The complete training config.
    gpu_id (int): The GPU, or -1 for the CPU.
    code (Path | None): A Python file to import before training, with additional registered functions.
    use_last (bool): Keep the pipeline after the last step. By default, keep the pipeline with the best score on the
        development set.
    """

    name: str
    folder: Path
    config: Config
    gpu_id: int = -1
    code: Path | None = None
    use_last: bool = False

    @property
    def options(self) -> list[str]:
        """Return the command line options `--gpu-id` and `--code` for spaCy commands."""
        return ["--gpu-id", str(self.gpu_id), *(["--code", str(self.code)] if self.code else [])]

    def manifest(self) -> Manifest:
        """Create a manifest with the run's current inputs: all values in the interpolated config, and digests of all
        files that the config refers to.

        When the run is completed, `train` adds `MODEL` to the manifest.
        """
        made_of = {
            name: _as_input(name, value)
            for name, value in entries(self.config.interpolate())
            if not (isinstance(value, Mapping) and value) and not _IGNORED_SETTINGS.match(name)
        }
        return Manifest(self.folder, {**made_of, "code": file_input(self.code)} if self.code else made_of)


def train(run: TrainingRun, processes: Processes) -> str:
    """Train a pipeline in a subprocess. Results from an earlier run in the same directory are deleted.

    run (TrainingRun): The training run.
    processes (Processes): Runs the subprocess.
    RETURNS (str): An error message, or an empty string if the run was successful.
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
    # Save the scores in a separate file, so that they remain if the user deletes the pipeline to free disk space.
    meta: dict[str, Any] = json.loads((folder / MODEL / "meta.json").read_text(encoding="utf8"))
    write_text(folder / METRICS_DEV, json.dumps(meta["performance"], indent=1) + "\n")
    manifest.finish(MODEL)
    return ""


def is_trained(run: TrainingRun) -> bool:
    """Return whether the run was completed earlier and its pipeline still exists.

    Raises a UserError if the directory contains a run with a different config or different data.
    """
    before = Manifest.read(run.folder)
    if before is None or MODEL not in before.parts or not (run.folder / MODEL / "meta.json").is_file():
        return False
    changes = before.changes(run.manifest())
    if changes:
        reason = f"{run.folder}: contains another training run ({'; '.join(changes)})"
        raise UserError(reason, "Choose another --output, or delete this directory to train again.")
    return True


def _as_input(name: str, value: Any) -> Any:
    """Convert a config value to a manifest entry. If the value is the path to a file or directory, the entry contains a
    digest.

    name (str): The value's dotted name in the config.
    value (Any): The value.
    """
    if not isinstance(value, str | Path) or not str(value):
        return value
    path, sections = Path(value), name.split(".")
    with_folders = sections[0] in _SECTIONS_WITH_FOLDERS or sections[-1] == "source"
    try:
        is_input = path.is_file() or (with_folders and path.is_dir())
    # The string can't be a path, for example because it is too long.
    except (OSError, ValueError):
        is_input = False
    return file_input(path) if is_input else str(value)


def exit_reason(status: int, folder: Path) -> str:
    """Describe why a training process failed, with the last line of its output.

    status (int): Exit status. Negative numbers are signals.
    folder (Path): Directory that contains the process's log.
    """
    if status < 0:
        return f"was killed by signal {-status}"
    lines = (folder / OUTPUT).read_text(encoding="utf8", errors="replace").splitlines()
    last = next((line.strip() for line in reversed(lines) if line.strip() and not line.startswith("$ ")), "")
    return f"ended with exit status {status}: {last[:_MAX_MESSAGE] or 'nothing in its log'}"
