"""What a training leaves in its output directory beside the pipelines: a record of what it is, and how far it came."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from spacy.training.loop import DIR_MODEL_BEST, DIR_MODEL_LAST

from ..files import FileError, write_text
from .fingerprint import Fingerprint, input_changes, version_changes

CHECKPOINT = "checkpoint.npz"
RECORD = "record.json"
LOCK = ".lock"
MODELS = (DIR_MODEL_BEST, DIR_MODEL_LAST)


@dataclass(frozen=True)
class Record:
    """What a training is.

    log: The file that its logger writes, if no other training's was there before.
    finished: When it is over, the number of its last step, and its best score with its step.
    evaluated: A digest of the data that its best pipeline was scored on, if it was.
    """

    fingerprint: Fingerprint
    log: str | None = None
    finished: Mapping[str, Any] | None = None
    evaluated: str | None = None


@dataclass(frozen=True)
class Standing:
    """How things are with a training.

    state: new, also if it was stopped before it could keep anything; stopped; or finished.
    changes: What differs from when it began, a line for each.
    """

    state: Literal["new", "stopped", "finished"]
    changes: tuple[str, ...] = ()
    record: Record | None = None


def standing(folder: Path, now: Fingerprint) -> Standing:
    """How the training in a directory stands, and whether it is the one that is asked for."""
    record = read_record(folder)
    if record is None:
        if (folder / CHECKPOINT).exists():
            reason = f"{folder / CHECKPOINT}: there is no {RECORD} beside it, so nobody knows what it belongs to"
            raise FileError(reason, "To begin anew, remove it or give --restart.")
        return Standing("new")
    changes = input_changes(record.fingerprint, now)
    if record.finished is not None and any((folder / model).is_dir() for model in MODELS):
        # What is finished does not depend on what the libraries have become since.
        return Standing("finished", tuple(changes), record)
    if (folder / CHECKPOINT).exists():
        return Standing("stopped", (*changes, *version_changes(record.fingerprint, now)), record)
    return Standing("new", record=record)


def read_record(folder: Path) -> Record | None:
    path = folder / RECORD
    if not path.exists():
        return None
    try:
        data = json.loads(path.read_text(encoding="utf8"))
        return Record(**{**data, "fingerprint": Fingerprint(**data["fingerprint"])})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise FileError(f"{path}: broken record: {error}", "To begin anew, remove it or give --restart.") from error


def write_record(folder: Path, record: Record) -> None:
    write_text(folder / RECORD, json.dumps(asdict(record), ensure_ascii=False, indent=1) + "\n")


def forget(folder: Path) -> None:
    """Remove what was kept of a training, and the log that it wrote. Its pipelines stay until there are others."""
    try:
        record = read_record(folder)
    except FileError:
        record = None
    (folder / CHECKPOINT).unlink(missing_ok=True)
    (folder / RECORD).unlink(missing_ok=True)
    if record and record.log:
        Path(record.log).unlink(missing_ok=True)


def tidy(folder: Path) -> None:
    """Remove what is of no use once a training is over."""
    (folder / CHECKPOINT).unlink(missing_ok=True)
    for path in (*folder.glob(".*.new"), *folder.glob(".*.old")):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
