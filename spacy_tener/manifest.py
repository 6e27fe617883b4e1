"""Record the inputs, settings and finished files of an output in `_manifest.json`, so that a command can resume.

    manifest = Manifest.resume(folder, {"batch": 8, "texts": file_input("texts.txt")}, remedy="Choose another path.")
    for part in parts:
        if part not in manifest.parts:
            ...  # compute and write the part
            manifest.finish(part)
    manifest.save()

If the output was created from other inputs or settings, `resume` raises an error that lists the changes. The commands
`annotate`, `silver` and `review` and all training runs use manifests.
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

NAME = "_manifest.json"  # Arrow and Spark ignore files whose names begin with an underscore.
PACKAGES = ("spacy_tener", "spacy", "thinc", "torch", "numpy")
_MIN_SAVE_INTERVAL_FACTOR = 20  # Saving may take at most 1/20 of the time, even if there are many small parts.
_MAX_NAMES = 3
_MAX_LENGTH = 100


class Manifest:
    """The inputs and settings of an output, and its finished parts.

    folder (Path): Directory of the output.
    made_of (Mapping[str, Any]): Inputs and settings by name, as JSON values. Inputs are results of `file_input`, or
        lists of them, and are compared by content.
    versions (Mapping[str, str] | None): Versions of Python and packages. By default, the installed ones. If inputs or
        settings changed, changed versions are listed too. They are not a change by themselves.
    parts (Mapping[str, Any] | None): Finished parts by file name, with information about each.
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
        # Contents that this process may have written last. Any other content was written by another process.
        self._written_contents: list[bytes] = []

    @classmethod
    def read(cls, folder: Path) -> Manifest | None:
        """Return the manifest of an output, or None if it doesn't exist or is damaged."""
        try:
            data = json.loads((folder / NAME).read_bytes())
            made_of, versions, parts = (dict(data[name]) for name in ("made_of", "versions", "parts"))
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return cls(folder, made_of, versions=versions, parts=parts)

    @classmethod
    def resume(cls, folder: Path, made_of: Mapping[str, Any], *, remedy: str) -> Manifest:
        """Save and return the manifest of an output, with the parts that were finished earlier and still exist.

        Raises a RemedyError if the directory contains files but no manifest, or if it was created from other inputs or
        settings. If it contains no other files than the manifest, inputs and settings may have changed.

        remedy (str): How to fix this error.
        """
        manifest, before = cls(folder, made_of), cls.read(folder)
        paths = folder.iterdir() if folder.is_dir() else ()
        existing = {path.name for path in paths if not path.name.startswith(".")} - {NAME}
        if existing and before is None:
            raise RemedyError(
                f"The output contains files ({_join_first(sorted(existing))}) but no valid {NAME}", remedy
            )
        changes = before.changes(manifest) if existing and before is not None else ()
        if changes:
            raise RemedyError(f"The output was created from other inputs or settings: {'; '.join(changes)}", remedy)
        if before is not None:
            manifest.parts = {name: information for name, information in before.parts.items() if name in existing}
        manifest.save()
        return manifest

    def changes(self, now: Manifest) -> tuple[str, ...]:
        """Return the differences between this manifest and a newer one, with one string for each setting or input."""
        lines = tuple(_changes("", self.made_of, now.made_of))
        versions = [f"{name} {old}" for name, old in self.versions.items() if now.versions.get(name, old) != old]
        return (*lines, f"created with {', '.join(versions)}") if lines and versions else lines

    def finish(self, part: str, information: Any = None) -> None:
        """Add a finished part. The manifest is saved from time to time; after a crash, parts since the last save are
        computed again.

        part (str): File name of the part.
        information (Any): Information about the part, as a JSON value.
        """
        self.parts[part] = information
        if time.monotonic() >= self._no_save_before:
            self.save()

    def save(self) -> None:
        """Write the manifest. Raises a RemedyError if another process has changed it since the last save."""
        start = time.monotonic()
        path = self.folder / NAME
        if self._written_contents and (not path.exists() or path.read_bytes() not in self._written_contents):
            remedy = "Stop one of the two processes, then run the command again. It keeps the finished parts."
            raise RemedyError("Another process writes to the output", remedy)
        data = {"made_of": self.made_of, "versions": self.versions, "parts": dict(sorted(self.parts.items()))}
        content = f"{json.dumps(data, indent=1)}\n".encode()
        if self._written_contents:  # If writing is interrupted, the file may have the old or the new content.
            self._written_contents.append(content)
        write_bytes(path, content)
        self._written_contents = [content]
        self._no_save_before = time.monotonic() + _MIN_SAVE_INTERVAL_FACTOR * (time.monotonic() - start)


def file_input(path: Path | str, content: str | None = None) -> dict[str, str | None]:
    """Return the manifest entry of an input.

    path (Path | str): Path of the input.
    content (str | None): Identifier of its content. By default, a digest.
    """
    return {"path": str(path), "content": digest(Path(path)) if content is None else content}


def stream_input(name: str) -> dict[str, str | None]:
    """Return the manifest entry of an input that can be read only once, such as standard input.

    Its content is unknown, so it always counts as changed.
    """
    return {"path": name, "content": None}


def installed_versions(*packages: str) -> dict[str, str]:
    """Return the versions of Python and of installed packages.

    packages (str): Names of packages. By default, `PACKAGES`.
    """
    versions = {"Python": platform.python_version()}
    for package in packages or PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


def _changes(name: str, before: Any, now: Any) -> Iterator[str]:
    """Yield the differences between two values of a manifest. `name` is the dotted name of the value."""
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
    """Return whether a value is an entry of `file_input` or `stream_input`."""
    return isinstance(value, Mapping) and value.keys() == {"path", "content"}


def _inputs(value: Any) -> list[Mapping[str, Any]]:
    """Return the input entries in a value."""
    return [entry for entry in (value if isinstance(value, list) else [value]) if _is_input(entry)]


def _content(value: Any) -> Any:
    """Return a value in which inputs are replaced with the identifiers of their contents."""
    if isinstance(value, list):
        return list(map(_content, value))
    return [value["content"]] if _is_input(value) else value


def _format_value(value: Any) -> str:
    """Return a value as text for a message."""
    if value is None:
        return "nothing"
    if _is_input(value):
        return str(value["path"])
    text = f"{value:.12g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}..."


def _join_first(names: list[str]) -> str:
    """Return the first few names, for a message."""
    return ", ".join(names[:_MAX_NAMES]) + " ..." * (len(names) > _MAX_NAMES)
