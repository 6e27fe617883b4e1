"""Record a command's inputs and settings in `_manifest.json`, so that an interrupted command can be resumed.

    manifest = Manifest.resume(folder, {"batch": 8, "texts": file_input("texts.txt")}, fix="Choose another path.")
    for part in parts:
        if part not in manifest.parts:
            ...  # compute and write the part
            manifest.finish(part)
    manifest.save()

If input files or settings have changed since the output was created, `resume` raises an error that lists the changes.
Manifests are used in the commands `annotate`, `silver` and `review` and in all training runs.
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

from .errors import UserError
from .files import digest, write_bytes

# Arrow and Spark ignore files whose names begin with an underscore.
NAME = "_manifest.json"
PACKAGES = ("spacy_tener", "spacy", "thinc", "torch", "numpy")
# Wait 20 times as long as the last save took, so that saving takes at most 1/20 of the running time.
_MIN_SAVE_INTERVAL_FACTOR = 20
_MAX_NAMES = 3
_MAX_LENGTH = 100


class Manifest:
    """The input files, settings and finished output files of a command that can be resumed.

    folder (Path): The output directory.
    made_of (Mapping[str, Any]): Input files and settings, by name. An input file is a dictionary that `file_input`
        returns. All other values must be serializable as JSON.
    versions (Mapping[str, str] | None): Python and package versions. By default, the installed versions. Changed
        versions are only reported in addition to changed input files or settings.
    parts (Mapping[str, Any] | None): Finished output files by name, with information about each file.
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
        # Contents of the manifest file that this process may have written. Any other content is from another process.
        self._written_contents: list[bytes] = []

    @classmethod
    def read(cls, folder: Path) -> Manifest | None:
        """Load an output directory's manifest. Return None if the manifest does not exist or is invalid."""
        try:
            data = json.loads((folder / NAME).read_bytes())
            made_of, versions, parts = (dict(data[name]) for name in ("made_of", "versions", "parts"))
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return cls(folder, made_of, versions=versions, parts=parts)

    @classmethod
    def resume(cls, folder: Path, made_of: Mapping[str, Any], *, fix: str) -> Manifest:
        """Create an output directory's manifest.

        If the directory already has a manifest, continue with its finished files.

        Raises a UserError if the output directory contains files but no manifest, or if input files or settings have
        changed since its files were created.

        folder (Path): The output directory.
        made_of (Mapping[str, Any]): Input files and settings, by name.
        fix (str): How to fix the error, for the error message.
        """
        manifest, before = cls(folder, made_of), cls.read(folder)
        paths = folder.iterdir() if folder.is_dir() else ()
        existing = {path.name for path in paths if not path.name.startswith(".")} - {NAME}
        if existing and before is None:
            raise UserError(f"The output contains files ({_join_first(sorted(existing))}) but no valid {NAME}", fix)
        changes = before.changes(manifest) if existing and before is not None else ()
        if changes:
            raise UserError(f"The output was created from other inputs or settings: {'; '.join(changes)}", fix)
        if before is not None:
            manifest.parts = {name: information for name, information in before.parts.items() if name in existing}
        manifest.save()
        return manifest

    def changes(self, now: Manifest) -> tuple[str, ...]:
        """Return a message for each input file and setting that differs in a newer manifest.

        now (Manifest): The newer manifest.
        """
        lines = tuple(_changes("", self.made_of, now.made_of))
        versions = [f"{name} {old}" for name, old in self.versions.items() if now.versions.get(name, old) != old]
        return (*lines, f"created with {', '.join(versions)}") if lines and versions else lines

    def finish(self, part: str, information: Any = None) -> None:
        """Record that an output file is finished.

        To save time, the manifest is not written after every call. After a crash, files since the last write are
        computed again.

        part (str): The output file's name.
        information (Any): Information about the file that can be serialized as JSON.
        """
        self.parts[part] = information
        if time.monotonic() >= self._no_save_before:
            self.save()

    def save(self) -> None:
        """Write the manifest. Raises a UserError if another process has written it since the last save."""
        start = time.monotonic()
        path = self.folder / NAME
        if self._written_contents and (not path.exists() or path.read_bytes() not in self._written_contents):
            fix = "Stop one of the two processes, then run the command again. Finished parts are kept."
            raise UserError("Another process writes to the output", fix)
        data = {"made_of": self.made_of, "versions": self.versions, "parts": dict(sorted(self.parts.items()))}
        content = f"{json.dumps(data, indent=1)}\n".encode()
        # If writing is interrupted, the file can have the old or the new content, so both are accepted.
        if self._written_contents:
            self._written_contents.append(content)
        write_bytes(path, content)
        self._written_contents = [content]
        self._no_save_before = time.monotonic() + _MIN_SAVE_INTERVAL_FACTOR * (time.monotonic() - start)


def file_input(path: Path | str, content: str | None = None) -> dict[str, str | None]:
    """Return an input file's path and content hash, for use in a manifest.

    path (Path | str): File path or directory.
    content (str | None): Identifier for the content. By default, its hash.
    """
    return {"path": str(path), "content": digest(Path(path)) if content is None else content}


def stream_input(name: str) -> dict[str, str | None]:
    """Return the name of an input stream, such as standard input, for use in a manifest.

    A stream's content is unknown before the stream is read, so a command with an input stream cannot be resumed.
    """
    return {"path": name, "content": None}


def installed_versions(*packages: str) -> dict[str, str]:
    """Return the versions of Python and installed packages.

    packages (str): Package names. By default, `PACKAGES`. Packages that are not installed are skipped.
    """
    versions = {"Python": platform.python_version()}
    for package in packages or PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


def _changes(name: str, before: Any, now: Any) -> Iterator[str]:
    """Describe the differences between an old and a new manifest value.

    name (str): The value's name. For a value in a nested dictionary, the keys are separated by dots.
    before (Any): The old value.
    now (Any): The new value.
    """
    if isinstance(before, Mapping) and isinstance(now, Mapping) and not _is_input(before) and not _is_input(now):
        for key in dict.fromkeys([*before, *now]):
            yield from _changes(f"{name}.{key}".removeprefix("."), before.get(key), now.get(key))
    elif streams := [entry["path"] for entry in _inputs(now) if entry["content"] is None]:
        yield f"{name}: {_join_first(streams)} can be read only once and cannot be compared"
    elif _content(before) == _content(now):
        return
    elif isinstance(before, list) and isinstance(now, list) and any(map(_is_input, (*before, *now))):
        old, new = (list(map(_content, side)) for side in (before, now))
        changed = [
            _format_value(value) for value in (*before, *now) if (_content(value) in old) != (_content(value) in new)
        ]
        yield f"{name}: {_join_first(list(dict.fromkeys(changed)))} changed" if changed else f"{name}: in another order"
    elif _is_input(before) and _is_input(now) and before["path"] == now["path"]:
        yield f"{name}: {now['path']} changed"
    else:
        yield f"{name}: was {_format_value(before)}, is {_format_value(now)}"


def _is_input(value: Any) -> bool:
    """Return whether a value was created by `file_input` or `stream_input`."""
    return isinstance(value, Mapping) and value.keys() == {"path", "content"}


def _inputs(value: Any) -> list[Mapping[str, Any]]:
    """Return the input files in an argument value: one file, the files in a list, or none if the value is an ordinary
    setting."""
    return [entry for entry in (value if isinstance(value, list) else [value]) if _is_input(entry)]


def _content(value: Any) -> Any:
    """Convert a value for comparison. Input files are compared by content, so their paths are removed."""
    if isinstance(value, list):
        return list(map(_content, value))
    return [value["content"]] if _is_input(value) else value


def _format_value(value: Any) -> str:
    """Format a manifest value for an error message."""
    if value is None:
        return "nothing"
    if _is_input(value):
        return str(value["path"])
    text = f"{value:.12g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}..."


def _join_first(names: list[str]) -> str:
    """Join the first three names for an error message. Add "..." if there are more names."""
    return ", ".join(names[:_MAX_NAMES]) + " ..." * (len(names) > _MAX_NAMES)
