"""Manifests: inputs, settings and finished parts of an output.

A manifest is the file _manifest.json in the output's directory. With it a command resumes an unfinished output, or
refuses one that was made from other inputs or settings, and names the changes.
"""

from __future__ import annotations

import contextlib
import json
import platform
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .errors import RemedyError
from .files import digest, write_bytes

NAME = "_manifest.json"  # Arrow and Spark ignore names with an underscore when they read a directory.
PACKAGES = ("spacy_tener", "spacy", "thinc", "torch", "numpy")
_MIN_SAVE_INTERVAL_FACTOR = 20  # Wait at least this many times the last save's duration.
_MAX_NAMES = 3
_MAX_LENGTH = 100


class Manifest:
    """The inputs and settings of an output, and its finished parts.

    made_of (Mapping[str, Any]): Settings and inputs by name, as JSON values. Inputs are what `file_input` returns,
        alone or in lists; they are compared by content.
    versions (Mapping[str, str] | None): Versions of Python and packages, by name. They are listed with other changes,
        but are no change alone.
    parts (Mapping[str, Any] | None): Finished parts by file name, each with information about it.
    """

    def __init__(
        self,
        folder: Path,
        made_of: Mapping[str, Any],
        *,
        versions: Mapping[str, str] | None = None,
        parts: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder = folder
        self.made_of: dict[str, Any] = json.loads(json.dumps(made_of, default=str))
        self.versions = installed_versions() if versions is None else dict(versions)
        self.parts = dict(parts or {})
        self._no_save_before = 0.0
        self._own: list[bytes] = []
        """What may be in the file, if this process was the last to write it."""

    @classmethod
    def read(cls, folder: Path) -> Manifest | None:
        """Return the manifest of an output; None if there is no readable one."""
        try:
            data = json.loads((folder / NAME).read_bytes())
            made_of, versions, parts = (dict(data[name]) for name in ("made_of", "versions", "parts"))
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return cls(folder, made_of, versions=versions, parts=parts)

    @classmethod
    def resume(cls, folder: Path, made_of: Mapping[str, Any], *, remedy: str) -> Manifest:
        """Return and save the manifest of a new output, or of one to resume, with the finished parts that exist.

        Raises if the directory has files but no manifest, or was made from other inputs or settings. If it has no other
        file than the manifest, anything may have changed.

        remedy (str): What to do about an output that is refused.
        """
        manifest, before = cls(folder, made_of), cls.read(folder)
        paths = folder.iterdir() if folder.is_dir() else ()
        existing = {path.name for path in paths if not path.name.startswith(".")} - {NAME}
        if existing and before is None:
            raise RemedyError(f"The output holds files ({_first(sorted(existing))}) but no readable {NAME}", remedy)
        changes = before.changes(manifest) if existing and before is not None else ()
        if changes:
            raise RemedyError(f"The output was made from other inputs or settings: {'; '.join(changes)}", remedy)
        if before is not None:
            manifest.parts = {name: facts for name, facts in before.parts.items() if name in existing}
        manifest.save()
        return manifest

    def changes(self, now: Manifest) -> tuple[str, ...]:
        """Return the differences of `now` from this manifest, one line for each setting and input."""
        lines = tuple(_changes("", self.made_of, now.made_of))
        versions = [f"{name} {old}" for name, old in self.versions.items() if now.versions.get(name, old) != old]
        return (*lines, f"made with {', '.join(versions)}") if lines and versions else lines

    def finish(self, part: str, facts: Any = None) -> None:
        """List a part as finished. The manifest is saved at intervals; parts that it does not list are made again.

        facts (Any): Information about the part, as a JSON value.
        """
        self.parts[part] = facts
        if time.monotonic() >= self._no_save_before:
            self.save()

    def save(self) -> None:
        """Write the manifest. Raises if another process has changed it since it was last saved."""
        start = time.monotonic()
        path = self.folder / NAME
        if self._own and (not path.exists() or path.read_bytes() not in self._own):
            remedy = "Stop one of the two, then run the command again: finished parts are kept."
            raise RemedyError("Another process writes to the output", remedy)
        data = {"made_of": self.made_of, "versions": self.versions, "parts": dict(sorted(self.parts.items()))}
        content = f"{json.dumps(data, indent=1)}\n".encode()
        if self._own:  # an interrupt, or a full disk, may leave either
            self._own.append(content)
        write_bytes(path, content)
        self._own = [content]
        self._no_save_before = time.monotonic() + _MIN_SAVE_INTERVAL_FACTOR * (time.monotonic() - start)


def file_input(path: Path | str, content: str | None = None) -> dict[str, str | None]:
    """Return a manifest's entry for an input: its path, and an identifier of its content, by default a digest."""
    return {"path": str(path), "content": digest(Path(path)) if content is None else content}


def stream_input(name: str) -> dict[str, str | None]:
    """Return a manifest's entry for an input that can be read only once, as standard input. It equals no other."""
    return {"path": name, "content": None}


def installed_versions(*packages: str) -> dict[str, str]:
    """Return the versions of Python and of installed packages, by name. packages: `PACKAGES` by default."""
    versions = {"Python": platform.python_version()}
    for package in packages or PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


def _changes(name: str, before: Any, now: Any) -> Iterator[str]:
    if isinstance(before, Mapping) and isinstance(now, Mapping) and not _is_input(before) and not _is_input(now):
        for key in dict.fromkeys([*before, *now]):
            yield from _changes(f"{name}.{key}".removeprefix("."), before.get(key), now.get(key))
    elif streams := [entry["path"] for entry in _inputs(now) if entry["content"] is None]:
        yield f"{name}: {_first(streams)} can be read only once and cannot be compared"
    elif _content(before) == _content(now):
        return
    elif isinstance(before, list) and isinstance(now, list) and any(map(_is_input, (*before, *now))):
        old, new = (list(map(_content, side)) for side in (before, now))
        changed = [_shown(value) for value in (*before, *now) if (_content(value) in old) != (_content(value) in new)]
        yield f"{name}: {_first(list(dict.fromkeys(changed)))} changed" if changed else f"{name}: in another order"
    elif _is_input(before) and _is_input(now) and before["path"] == now["path"]:
        yield f"{name}: {now['path']} changed"
    else:
        yield f"{name}: was {_shown(before)}, is {_shown(now)}"


def _is_input(value: Any) -> bool:
    return isinstance(value, Mapping) and value.keys() == {"path", "content"}


def _inputs(value: Any) -> list[Mapping[str, Any]]:
    return [entry for entry in (value if isinstance(value, list) else [value]) if _is_input(entry)]


def _content(value: Any) -> Any:
    """Return a value without the paths of inputs."""
    if isinstance(value, list):
        return list(map(_content, value))
    return [value["content"]] if _is_input(value) else value


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    if _is_input(value):
        return str(value["path"])
    text = f"{value:.12g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}..."


def _first(names: list[str]) -> str:
    return ", ".join(names[:_MAX_NAMES]) + " ..." * (len(names) > _MAX_NAMES)
