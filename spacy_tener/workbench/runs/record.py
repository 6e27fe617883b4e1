"""The record of a finished training: the values of its config, the contents of the files that it names, versions.

It lies as record.json beside the pipeline. By it a grid knows whether a finished run is the one that is asked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thinc.api import Config

from ...errors import RemedyError
from ...files import digest, write_text
from ..composing.files import entries
from ..versions import installed_versions
from .training import RECORD

# What is printed and where to changes nothing about the result, nor does what keeps a teacher's answers.
_LEFT_OUT = re.compile(r"training\.logger(\.|$)|initialize\..*\.teacher\.cache_(mb|file)$")
# Where a value that is the name of a directory is meant as one. A file is taken for one anywhere.
_WITH_FOLDERS = ("paths", "corpora", "initialize")
_LONGEST = 100


@dataclass(frozen=True)
class Record:
    """What a training comes from.

    inputs: By dotted name, the values of the interpolated config; for a file or directory, what it holds.
    versions: By name, those of Python and of packages.
    evaluated: A digest of the data that its best pipeline was scored on, if it was.
    """

    inputs: Mapping[str, Any]
    versions: Mapping[str, str]
    evaluated: str | None = None


def make_record(config: Config, code: Path | None = None) -> Record:
    """The record of a training with this config, with the files as they are now.

    code: A Python file with what the config needs.
    """
    inputs = {
        name: _identity(name, value)
        for name, value in entries(config.interpolate())
        if not (isinstance(value, Mapping) and value) and not _LEFT_OUT.match(name)
    }
    if code:
        inputs["code"] = _identity("code", code)
    return Record(json.loads(json.dumps(inputs)), installed_versions())


def read_record(folder: Path) -> Record | None:
    """The record of a finished training; None if there is none, or none that can be read."""
    try:
        data = json.loads((folder / RECORD).read_text(encoding="utf8"))
        made = data["fingerprint"]
        return Record(made["inputs"], made["versions"], data["evaluated"]) if data["finished"] else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def write_record(folder: Path, record: Record) -> None:
    made = {"inputs": record.inputs, "versions": record.versions}
    data = {"fingerprint": made, "finished": True, "evaluated": record.evaluated}
    write_text(folder / RECORD, json.dumps(data, ensure_ascii=False, indent=1) + "\n")


def changes(before: Record, now: Record) -> tuple[str, ...]:
    """How the inputs of two trainings differ, a line for each; nothing, if they are the same. Files are the same if
    their contents are. Other versions of packages, which may have other defaults, are named after what differs."""
    names = dict.fromkeys([*before.inputs, *now.inputs])
    pairs = {name: (before.inputs.get(name), now.inputs.get(name)) for name in names}
    other = {name: (old, new) for name, (old, new) in pairs.items() if _content(old) != _content(new)}
    lines = [f"{name}: was {_shown(old)}, is {_shown(new)}" for name, (old, new) in other.items()]
    versions = [f"{name} {old}" for name, old in before.versions.items() if now.versions.get(name, old) != old]
    return (*lines, *([f"trained with {', '.join(versions)}"] if lines and versions else ()))


def is_finished(folder: Path, record: Record, files: Iterable[str], *, remedy: str) -> bool:
    """Whether a training has ended in a folder and left these files. One that was trained otherwise is refused.

    remedy: What to do about such a one.
    """
    before = read_record(folder)
    if before is None or not all((folder / name).is_file() for name in files):
        return False
    if changed := changes(before, record):
        raise RemedyError(f"{folder}: was trained otherwise ({'; '.join(changed)})", remedy)
    return True


def _identity(name: str, value: Any) -> Any:
    """The value, or what is in the file or directory of this name."""
    if not isinstance(value, str | Path) or not str(value):
        return value
    path, sections = Path(value), name.split(".")
    with_folders = sections[0] in _WITH_FOLDERS or sections[-1] == "source"
    try:
        is_input = path.is_file() or (with_folders and path.is_dir())
    except (OSError, ValueError):  # a text that is no path
        is_input = False
    return {"path": str(path), "content": digest(path)} if is_input else str(value)


def _content(value: Any) -> Any:
    return value["content"] if isinstance(value, Mapping) and "content" in value else value


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, Mapping) and "content" in value:
        return f"{value['path']} ({value['content'][:8]})"
    text = f"{value:.12g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
