"""Processes of trainings, each with a log, which end together."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from spacy.util import ENV_VARS

from ...processes import count_cores

MODULE = "spacy"
_THREADS_VARIABLE = "OMP_NUM_THREADS"
_POLL = 0.5  # seconds
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
        printed = Tail(log)
        printed.lines()

        def pass_on() -> None:
            if self._echo:
                for line in printed.lines():
                    self._echo(f"{line}\n")

        with log.open("ab") as file:
            file.write(f"$ {shlex.join(['python', '-m', MODULE, *arguments])}\n".encode())
            file.flush()
            with self._lock:
                if self._stopped:
                    raise StoppedError
                process = subprocess.Popen(
                    [sys.executable, "-m", MODULE, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    env=self._environment,
                    start_new_session=True,
                )
                self._running.add(process)
        try:
            status = _wait(process, pass_on)
        finally:
            _end([process])
            with self._lock:
                self._running.discard(process)
        if self._stopped:
            raise StoppedError
        return status

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


class Tail:
    """Reads the complete lines added to a file since the last call."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0

    def lines(self) -> list[str]:
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                complete, newline, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return []
        self._read += len(complete + newline)
        return complete.decode("utf8", errors="replace").split("\n") if newline else []


def _wait(process: subprocess.Popen[bytes], poll: Callable[[], None]) -> int:
    """Wait for the end of a process. `poll` is called twice a second, and at the end."""
    status = None
    while status is None:
        with suppress(subprocess.TimeoutExpired):
            status = process.wait(_POLL)
        poll()
    return status


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
