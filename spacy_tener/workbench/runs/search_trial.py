"""One training of a search: `spacy train` in a process of its own, watched by its log."""

from __future__ import annotations

import contextlib
import ctypes
import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from spacy.training.loop import DIR_MODEL_LAST

from ..report.runs import CONFIG, MODEL
from .jobs import environment

LOG = "train.log"
TRAIN = (sys.executable, "-m", "spacy", "train")
# A row of the console logger: epoch, step, losses, scores, and what the checkpoint is chosen by.
_ROW = re.compile(r"^ *\d+ +(?P<step>\d+) .* (?P<score>\d+\.\d+) *$", re.MULTILINE)
_POLL = 0.5
_LONGEST = 300
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None

Watch = Callable[[int, float], bool]
"""Is told the step and the score of each evaluation, and says whether the training may stop there."""


@dataclass(frozen=True)
class Outcome:
    """How a training ended.

    score: the best F1 on dev, 0 to 1.
    reason: why it failed.
    pruned: it was stopped since others were better.
    """

    score: float | None
    reason: str | None = None
    pruned: bool = False


def train(folder: Path, *, gpu_id: int, watch: Watch | None = None, command: Sequence[str] = TRAIN) -> Outcome:
    """Train the config in a directory, into the same directory."""
    arguments = [*command, str(folder / CONFIG), "--output", str(folder), "--gpu-id", str(gpu_id)]
    with (folder / LOG).open("wb") as log:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment(jobs=1),
            preexec_fn=_end_with_parent,
        )
        try:
            pruned = _wait(process, folder / LOG, watch)
        finally:
            _end(process)
    shutil.rmtree(folder / DIR_MODEL_LAST, ignore_errors=True)
    if process.returncode != 0 and not pruned:
        return Outcome(None, _why(process.returncode, folder / LOG))
    score = best_score(folder)
    return Outcome(score, None if score is not None else "no ents_f in the scores on dev", pruned)


def best_score(folder: Path) -> float | None:
    """The F1 on dev of the checkpoint that the training chose."""
    try:
        meta = json.loads((folder / MODEL / "meta.json").read_text(encoding="utf8"))
    except (OSError, ValueError):
        return None
    score = meta.get("performance", {}).get("ents_f")
    return None if score is None else float(score)


def _wait(process: subprocess.Popen[bytes], log: Path, watch: Watch | None) -> bool:
    """Wait for the end, or for the watcher to stop it. Returns whether that happened."""
    seen = 0
    while process.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_POLL)
        rows = list(_ROW.finditer(log.read_text(encoding="utf8", errors="replace"))) if watch else []
        for row in rows[seen:]:
            if watch and watch(int(row["step"]), float(row["score"])) and process.poll() is None:
                return True
        seen = len(rows)
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _end_with_parent() -> None:
    """Of a search that is killed, no training goes on alone (where the system is Linux)."""
    if _LIBC:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _why(code: int, log: Path) -> str:
    """What the training said last."""
    lines = [line.strip() for line in log.read_text(encoding="utf8", errors="replace").splitlines() if line.strip()]
    last = lines[-1][:_LONGEST] if lines else "nothing in its log"
    return f"killed by signal {-code}" if code < 0 else f"exit {code}: {last}"
