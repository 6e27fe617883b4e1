"""The directory of an output, on this machine or wherever fsspec can write: whole files only."""

from __future__ import annotations

import os
import uuid
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Protocol

from ...errors import RemedyError
from ...files import check_folder, locked, write_file, writing
from ..reading.addresses import is_remote, remote

_LOCK = ".lock"


class Folder(Protocol):
    def names(self) -> set[str]:
        """The files that are there, but for hidden ones."""

    def read(self, name: str) -> bytes | None:
        """A file's content; None where there is none."""

    def write(self, name: str, content: bytes) -> None:
        """Write a file, which appears as a whole or not at all."""

    def locked(self) -> AbstractContextManager[None]:
        """Keep other processes out, and clear away what one that was killed had begun."""


def open_folder(address: str) -> Folder:
    return RemoteFolder(address) if is_remote(address) else LocalFolder(Path(address))


class LocalFolder:
    def __init__(self, path: Path) -> None:
        check_folder(path)
        self.path = path

    def names(self) -> set[str]:
        return {name for name in os.listdir(self.path) if not name.startswith(".")} if self.path.is_dir() else set()

    def read(self, name: str) -> bytes | None:
        path = self.path / name
        return path.read_bytes() if path.exists() else None

    def write(self, name: str, content: bytes) -> None:
        write_file(self.path / name, lambda file: file.write(content))

    def locked(self) -> AbstractContextManager[None]:
        return _cleared(self.path)


class _cleared(AbstractContextManager[None]):  # noqa: N801
    def __init__(self, path: Path) -> None:
        self.path, self._lock = path, locked(path / _LOCK)

    def __enter__(self) -> None:
        self._lock.__enter__()
        with writing(self.path):
            for beside in self.path.glob(".*.tmp"):
                beside.unlink(missing_ok=True)

    def __exit__(self, *error: Any) -> None:
        self._lock.__exit__(*error)


class RemoteFolder:
    """An object appears when it is written in full; elsewhere a file gets its name when it is."""

    def __init__(self, address: str) -> None:
        self.system, self.path = remote(address)

    def names(self) -> set[str]:
        try:
            found = self.system.ls(self.path, detail=False, refresh=True)
        except FileNotFoundError:
            return set()
        return {name for name in (str(each).rstrip("/").rpartition("/")[2] for each in found) if name[:1] != "."}

    def read(self, name: str) -> bytes | None:
        try:
            content: bytes = self.system.cat_file(f"{self.path}/{name}")
        except FileNotFoundError:
            return None
        return content

    def write(self, name: str, content: bytes) -> None:
        beside = f"{self.path}/.{name}.{uuid.uuid4().hex}.tmp"
        try:
            self.system.makedirs(self.path, exist_ok=True)
            self.system.pipe_file(beside, content)
            self.system.mv(beside, f"{self.path}/{name}")
        except OSError as error:
            reason = f"{self.path}/{name}: cannot be written: {error.strerror or error}"
            raise RemedyError(reason, "Make room, or choose another place.") from error

    def locked(self) -> AbstractContextManager[None]:
        return nullcontext()  # There is no lock that all stores have.
