"""What a training comes from: its config, the contents of the files that it names, the versions of the libraries."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from thinc.api import Config

_PACKAGES = ("spacy", "spacy_tener", "thinc", "torch", "numpy", "spacy-transformers", "spacy-curated-transformers")
# What is printed and where to, which changes nothing about the result.
_LEFT_OUT = ("training.logger",)
# Where a value that is the name of a directory is meant as one. A file is taken for one anywhere.
_WITH_FOLDERS = ("paths", "corpora", "initialize")
_CONTENT = "content"
_CODE = "--code"
_SHOWN = 100


@dataclass(frozen=True)
class Fingerprint:
    """What a training comes from.

    inputs: By dotted name, the values of the config as they were resolved; for a file or directory, what it holds.
    versions: By name, the versions of Python and of packages, and the kind of device.
    """

    inputs: Mapping[str, Any]
    versions: Mapping[str, str]


def fingerprint(config: Config, *, code: Path | None = None, use_gpu: int = -1) -> Fingerprint:
    """The fingerprint of a training with this config."""
    digests: dict[str, str] = {}
    inputs = {name: _identity(name, value, digests) for name, value in _values(config.interpolate())}
    if code is not None:
        inputs[_CODE] = _content(code, digests)
    found = {name: _version(name) for name in _PACKAGES}
    versions = {"python": platform.python_version(), **{name: each for name, each in found.items() if each}}
    return Fingerprint(json.loads(json.dumps(inputs)), {**versions, "device": "cpu" if use_gpu < 0 else "gpu"})


def input_changes(before: Fingerprint, now: Fingerprint) -> list[str]:
    """What another config or other data mean for a training, one line for each; nothing, if they are the same."""
    names = dict.fromkeys([*before.inputs, *now.inputs])
    pairs = [(name, before.inputs.get(name), now.inputs.get(name)) for name in names]
    return [_change(name, old, new) for name, old, new in pairs if _compared(old) != _compared(new)]


def version_changes(before: Fingerprint, now: Fingerprint) -> list[str]:
    names = dict.fromkeys([*before.versions, *now.versions])
    pairs = [(name, before.versions.get(name), now.versions.get(name)) for name in names]
    return [f"{name}: was {old or 'not there'}, is {new or 'not there'}" for name, old, new in pairs if old != new]


def digest(path: Path) -> str:
    """Of a file, or of all files of a directory with their names, but for hidden ones, as in spaCy's corpora."""
    if path.is_file():
        return _digest_of_file(path)
    whole = hashlib.blake2b(digest_size=16)
    for file in sorted(file for file in path.rglob("*") if file.is_file()):
        name = file.relative_to(path)
        if not any(part.startswith(".") for part in name.parts):
            whole.update(f"{name.as_posix()} {_digest_of_file(file)}\n".encode())
    return whole.hexdigest()


def _digest_of_file(path: Path) -> str:
    whole = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        for block in iter(partial(file.read, 1 << 20), b""):
            whole.update(block)
    return whole.hexdigest()


def _values(config: Mapping[str, Any], parent: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        name = f"{parent}{key}"
        if name in _LEFT_OUT:
            continue
        if isinstance(value, Mapping) and value:
            yield from _values(value, f"{name}.")
        else:
            yield name, value


def _identity(name: str, value: Any, digests: dict[str, str]) -> Any:
    """The value, or what is in the file or directory of this name."""
    if not isinstance(value, str | Path) or not str(value):
        return value
    sections = name.split(".")
    path = Path(value)
    with_folders = sections[0] in _WITH_FOLDERS or sections[-1] == "source"
    if _is_file(path) or (with_folders and path.is_dir()):
        return _content(path, digests)
    return str(value)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a text that is no path
        return False


def _content(path: Path, digests: dict[str, str]) -> dict[str, str]:
    where = str(path)
    if where not in digests:
        digests[where] = digest(path)
    return {"path": where, _CONTENT: digests[where]}


def _compared(value: Any) -> Any:
    """Files are the same if their contents are, wherever they lie."""
    return value[_CONTENT] if _is_content(value) else value


def _is_content(value: Any) -> bool:
    return isinstance(value, Mapping) and _CONTENT in value


def _change(name: str, old: Any, new: Any) -> str:
    if _is_content(old) and _is_content(new):
        if old["path"] == new["path"]:
            return f"{name}: {new['path']} has other contents"
        return f"{name}: was {old['path']}, is {new['path']}, which has other contents"
    return f"{name}: was {_shown(old)}, is {_shown(new)}"


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    if _is_content(value):
        return str(value["path"])
    text = f"{value:.12g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
