"""Files and directories that are there whole or not at all, whenever the machine stops."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from ..errors import RemedyError

try:
    import fcntl
except ImportError:  # Windows, where nothing is locked
    fcntl = None  # type: ignore[assignment]


class TrainingError(RemedyError):
    """A training that cannot go on as asked: what is wrong, and what to do about it."""


def replace_file(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write a file beside its place and move it there, once it is on the disk."""
    beside = path.with_name(f".{path.name}.new")
    try:
        with beside.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise TrainingError(f"{path}: cannot be written: {error.strerror}", "Make room, or check the path.") from error
    _sync_folder(path.parent)


def replace_text(path: Path, text: str) -> None:
    replace_file(path, lambda file: file.write(text.encode("utf8")))


def replace_folder(path: Path, write: Callable[[Path], Any], *, durable: bool = True) -> None:
    """Write a directory beside its place and put it there. Its predecessor is gone for a moment only, and whole.

    durable: wait until it is on the disk. Without it the directory may be in parts after a failure of the machine.
    """
    beside, before = path.with_name(f".{path.name}.new"), path.with_name(f".{path.name}.old")
    for left in (beside, before):
        shutil.rmtree(left, ignore_errors=True)
    write(beside)
    for file in filter(Path.is_file, beside.rglob("*") if durable else ()):
        with file.open("rb+") as stream:
            os.fsync(stream.fileno())
    if path.exists():
        path.rename(before)
    beside.rename(path)
    _sync_folder(path.parent)
    shutil.rmtree(before, ignore_errors=True)


@contextlib.contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Holds a lock, which the system gives back however the process ends. No other process gets it meanwhile."""
    with _opened(path) as file:
        try:
            if fcntl:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            reason = f"{path.parent}: another process is at work there"
            raise TrainingError(reason, "Wait for it, or stop it.") from error
        except OSError:
            pass  # a file system without locks
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _opened(path: Path) -> IO[str]:
    try:
        return path.open("a")
    except OSError as error:
        raise TrainingError(f"{path.parent}: cannot be written to: {error.strerror}", "Check the path.") from error


def _sync_folder(folder: Path) -> None:
    """Bring the names in a directory to the disk, on systems that can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
