"""One run: trained by `spacy train` and scored by `spacy tener evaluate`, in a directory as `report.runs` reads it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spacy.training.loop import DIR_MODEL_LAST
from thinc.api import Config

from ... import manifest
from ...errors import RemedyError
from ...files import write_text
from ...manifest import Manifest, file_input
from ..composing.files import entries
from ..report.runs import CONFIG, LOG, METRICS, METRICS_DEV, MODEL
from .processes import Echo, Processes, Tail

OUTPUT = "output.log"
"""What the processes of a run print."""
SCORE = "ents_f"
_LOGGER = {"@loggers": "spacy.ConsoleLogger.v3", "progress_bar": None, "console_output": True}
_LONGEST = 300
# The logger changes nothing about the result, nor does the cache of a teacher's answers.
_NOT_COMPARED = re.compile(r"training\.logger(\.|$)|initialize\..*\.teacher\.cache_(mb|file)$")
# Sections whose values may name directories. Values anywhere may name files.
_WITH_FOLDERS = ("paths", "corpora", "initialize")

Watch = Callable[[int, float], bool]
"""Is told the step and the F1 on dev of each evaluation, and says whether the training is to stop there."""


@dataclass(frozen=True)
class TrainingResult:
    """How a training ended.

    score: The F1 on dev, 0 to 1, of the pipeline that was chosen; None if there is none.
    failure: Why it failed; empty if it did not.
    stopped: Whether the watcher stopped it.
    """

    score: float | None
    failure: str = ""
    stopped: bool = False


def train(
    processes: Processes,
    config: Config,
    folder: Path,
    *,
    gpu_id: int = -1,
    code: Path | None = None,
    watch: Watch | None = None,
    echo: Echo | None = None,
) -> TrainingResult:
    """Train in a directory, from the beginning, whatever was trained there before.

    code: A Python file with what the config needs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in (manifest.NAME, METRICS, METRICS_DEV, LOG, OUTPUT):  # spaCy's logger does not write over an older log.
        (folder / name).unlink(missing_ok=True)
    config = config.copy()
    config["training"]["logger"] = {**_LOGGER, "output_file": str(folder / LOG)}
    write_text(folder / CONFIG, config.to_str(interpolate=False) + "\n")
    command = ["train", str(folder / CONFIG), "--output", str(folder), *_options(gpu_id, code)]
    log = Tail(folder / LOG)
    rows: list[tuple[float, float | None]] = []

    def poll() -> bool:
        stop = False
        for row in map(json.loads, log.lines()):
            score = row["scores"][SCORE] / 100 if SCORE in row["scores"] else None
            rows.append((row["score"], score))
            stop = stop or (watch is not None and score is not None and watch(row["step"], score))
        return stop

    status = processes.run(command, folder / OUTPUT, poll=poll, echo=echo)
    shutil.rmtree(folder / DIR_MODEL_LAST, ignore_errors=True)
    if status:
        return TrainingResult(None, f"training {_exit(status, folder)}")
    _, score = max(rows, key=lambda row: row[0], default=(0.0, None))
    if score is None:
        return TrainingResult(None, f"no {SCORE} in the scores on dev")
    if status == 0:  # The pipeline may be removed to save room; its scores on dev stay.
        meta: dict[str, Any] = json.loads((folder / MODEL / "meta.json").read_text(encoding="utf8"))
        write_text(folder / METRICS_DEV, json.dumps(meta["performance"], indent=1) + "\n")
    return TrainingResult(score, stopped=status is None)


def evaluate(
    processes: Processes,
    folder: Path,
    data: Path,
    *,
    gold_preproc: bool = False,
    gpu_id: int = -1,
    code: Path | None = None,
    echo: Echo | None = None,
) -> str:
    """Score the trained pipeline of a directory. Returns why that failed, if it did."""
    command = ["tener", "evaluate", str(folder / MODEL), str(data), "--output", str(folder / METRICS)]
    options = ["--gold-preproc"] * gold_preproc
    status = processes.run([*command, *_options(gpu_id, code), *options], folder / OUTPUT, echo=echo)
    return f"evaluation {_exit(status, folder)}" if status else ""


def manifest_of(folder: Path, config: Config, code: Path | None = None) -> Manifest:
    """Return the manifest of a training with this config, with the files as they are now: the values of the
    interpolated config by their dotted names. MODEL is its part when it is trained, and METRICS, with a digest of the
    data, when its pipeline is scored.

    code: A Python file with what the config needs.
    """
    made_of = {
        name: _as_input(name, value)
        for name, value in entries(config.interpolate())
        if not (isinstance(value, Mapping) and value) and not _NOT_COMPARED.match(name)
    }
    return Manifest(folder, {**made_of, "code": file_input(code)} if code else made_of)


def is_trained(folder: Path, now: Manifest, *, remedy: str) -> bool:
    """Return whether a directory has the pipeline of this training. One of another training is refused.

    remedy: What to do about such a one.
    """
    before = Manifest.read(folder)
    if before is None or MODEL not in before.parts or not (folder / MODEL / "meta.json").is_file():
        return False
    if changes := before.changes(now):
        raise RemedyError(f"{folder}: holds another training ({'; '.join(changes)})", remedy)
    return True


def _as_input(name: str, value: Any) -> Any:
    """The value, or what a manifest keeps of the file or directory that it names."""
    if not isinstance(value, str | Path) or not str(value):
        return value
    path, sections = Path(value), name.split(".")
    with_folders = sections[0] in _WITH_FOLDERS or sections[-1] == "source"
    try:
        is_input = path.is_file() or (with_folders and path.is_dir())
    except (OSError, ValueError):  # a text that is no path
        is_input = False
    return file_input(path) if is_input else str(value)


def _options(gpu_id: int, code: Path | None) -> list[str]:
    return ["--gpu-id", str(gpu_id), *(["--code", str(code)] if code else [])]


def _exit(status: int, folder: Path) -> str:
    """How a process ended, and what it said last."""
    if status < 0:
        return f"was killed by signal {-status}"
    lines = (folder / OUTPUT).read_text(encoding="utf8", errors="replace").splitlines()
    last = next((line.strip() for line in reversed(lines) if line.strip() and not line.startswith("$ ")), "")
    return f"ended with exit status {status}: {last[:_LONGEST] or 'nothing in its log'}"
