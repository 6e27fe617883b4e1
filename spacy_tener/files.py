"""Atomic writing of files, file locks, and digests."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from .errors import RemedyError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_REMEDIES = {
    errno.ENOSPC: "Free some space, or choose another path.",
    errno.EDQUOT: "Free some space, or choose another path.",
    errno.EACCES: "Change its permissions, or choose another path.",
    errno.EPERM: "Change its permissions, or choose another path.",
    errno.EROFS: "Choose a path on a file system that can be written to.",
    errno.EISDIR: "Choose a path that is not a directory.",
    errno.ENOTDIR: "Choose a path below a directory: a part of this one is a file.",
    errno.EEXIST: "Choose a path below a directory: a part of this one is a file.",
    errno.ENAMETOOLONG: "Choose a shorter path.",
}


def write_text(path: Path, text: str) -> None:
    """Write a text in UTF-8, atomically; see `write_file`. Names of files in it that are not UTF-8 are escaped."""
    write_bytes(path, text.encode("utf8", "backslashreplace"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write bytes atomically; see `write_file`."""
    write_file(path, lambda file: file.write(content))


def write_file(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write a file atomically: to a temporary file in the same directory, synced to disk, then renamed. The directory
    is created. A link stays, and the file that it leads to is written."""
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    with writing(path):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    _sync_folder(target.parent)


@contextlib.contextmanager
def replaced(folder: Path) -> Iterator[Path]:
    """Yield where to write a directory. If the block ends without an error, it takes the place of `folder`, or of the
    directory that this link leads to."""
    with writing(folder):
        folder = Path(os.path.realpath(folder))
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Beside the directory, so that files move without a copy.
        with TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as temporary:
            new, old = Path(temporary, "new"), Path(temporary, "old")
            yield new
            if folder.exists():
                folder.replace(old)
            try:
                new.replace(folder)
            except OSError:
                if old.exists():
                    old.replace(folder)
                raise


def find_package_files(folder: Path, names: Sequence[str], package: str, expected: str, otherwise: str) -> Path:
    """Return the directory of a package's data; raise if its files are not those of one version.

    names (Sequence[str]): The files.
    package (str): The package with its version, as a requirement of pip.
    expected (str): The SHA-256 of the files' bytes, joined in their order.
    otherwise (str): What to do with other data, for the error.
    """
    content = hashlib.sha256()
    for name in names:
        if not (folder / name).is_file():
            raise RemedyError(f"{folder} has no file {name}", f"Name the directory of the files of {package}.")
        content.update((folder / name).read_bytes())
    if content.hexdigest() != expected:
        raise RemedyError(
            f"{folder}: these are not the files of {package}, or they are damaged",
            f"Install that version, by `pip install --force-reinstall {package}`. {otherwise}",
        )
    return folder


def digest(path: Path) -> str:
    """Return the digest of a file, or of a directory's files and their names, without hidden files and `.pyc`."""
    if path.is_file():
        status = path.stat()
        return _digest_of_file(path.resolve(), status.st_mtime_ns, status.st_size)
    joined = hashlib.blake2b(digest_size=16)
    for file in sorted(file for file in path.rglob("*") if file.is_file() and file.suffix != ".pyc"):
        name = file.relative_to(path)
        if not any(part.startswith(".") for part in name.parts):
            joined.update(f"{name.as_posix()} {digest(file)}\n".encode())
    return joined.hexdigest()


@cache  # The runs of a grid share files. Size and time of modification tell whether a file has changed.
def _digest_of_file(path: Path, modified: int, size: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, partial(hashlib.blake2b, digest_size=16)).hexdigest()


def check_folder(folder: Path) -> None:
    """Raise if the path of a directory to write to is that of something else."""
    if folder.exists() and not folder.is_dir():
        raise RemedyError(f"{folder}: not a directory", "Name a new or existing directory.")


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise errors of writing with this path, not that of the temporary file beside it."""
    try:
        yield
    except OSError as error:
        reason = f"{path}: cannot be written: {error.strerror or error}"
        raise RemedyError(reason, _REMEDIES.get(error.errno or 0, "Check the path and its file system.")) from error


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file. The system releases it however the process ends.

    The file is not removed: if it were while another process waits for the lock, a third could lock a new file.
    """
    check_folder(path.parent)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
    with file:
        if not _lock(file.fileno()):
            raise RemedyError(f"{path.parent}: another process works in this directory", "Wait for it, or stop it.")
        yield


def _lock(descriptor: int) -> bool:
    """Lock an open file until it is closed. Returns False if another process holds the lock."""
    try:
        if sys.platform == "win32":
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _sync_folder(folder: Path) -> None:
    """Sync a directory's entries to disk, on systems that support it."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def size_mb(folder: Path) -> float:
    """Return the size of all files in a directory."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
