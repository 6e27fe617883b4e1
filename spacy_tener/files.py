"""Write files and directories atomically, lock directories, and compute content hashes.

All commands write their output with these functions. Even if a process is killed, the output path never contains a
partially written file or directory.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from .errors import UserError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

# Suggested fixes for common operating system errors, by error code.
_FIXES = {
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
    """Write a string to a file atomically, encoded as UTF-8. See `write_file`.

    Lone surrogates, which Python uses for invalid bytes in file names, are written as backslash escapes.
    """
    write_bytes(path, text.encode("utf8", "backslashreplace"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write bytes to a file atomically. See `write_file`."""
    write_file(path, lambda file: file.write(content))


def write_file(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write a file atomically: write a temporary file in the same directory, sync it to disk, and rename it.

    Missing parent directories are created. If `path` is a symbolic link, the link is kept and its target is written.
    Raises a UserError if the file cannot be written.

    write (Callable[[IO[bytes]], Any]): Function that writes the content to an open file.
    """
    target = Path(os.path.realpath(path))
    # Processes and threads that write the same path have different temporary files. The last one to finish wins.
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{threading.get_native_id()}.tmp")
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
    """Replace a directory with a new version after the new version is complete.

    This context manager yields a temporary path at which to create the new directory. On exit, the new directory
    replaces `folder`. If an exception is raised, `folder` is not changed. If `folder` is a symbolic link, the link is
    kept and its target is replaced.
    """
    with writing(folder):
        folder = Path(os.path.realpath(folder))
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Create the temporary directory next to `folder`, since renaming works only within a file system.
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
    """Return the data directory of an installed package after checking its files.

    Raises a UserError if a file is missing or if the contents do not match the expected hash.

    folder (Path): Directory that contains the files.
    names (Sequence[str]): File names.
    package (str): Package name and version as a pip requirement, for error messages.
    expected (str): SHA-256 hash of the concatenated file contents, in the order of `names`.
    otherwise (str): Alternative to installing the package, appended to the error message.
    """
    content = hashlib.sha256()
    for name in names:
        if not (folder / name).is_file():
            raise UserError(f"{folder} has no file {name}", f"Use the directory that contains the files of {package}.")
        content.update((folder / name).read_bytes())
    if content.hexdigest() != expected:
        raise UserError(
            f"{folder}: does not contain the files of {package}, or a file is damaged",
            f"Install that version, by `pip install --force-reinstall {package}`. {otherwise}",
        )
    return folder


def digest(path: Path) -> str:
    """Return a hash of a file's content, or of all file names and contents in a directory.

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


# Cached, since many training runs use the same files. A modified file has another modification time or size.
@cache
def _digest_of_file(path: Path, modified: int, size: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, partial(hashlib.blake2b, digest_size=16)).hexdigest()


def check_folder(folder: Path) -> None:
    """Raise a UserError if the path of an output directory exists but is not a directory, or if it is not valid."""
    with writing(folder):
        is_invalid = folder.exists() and not folder.is_dir()
    if is_invalid:
        raise UserError(f"{folder}: not a directory", "Use a new or existing directory.")


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Convert each OSError in a `with` block into a UserError with the output path and a suggested fix.

    path (Path): The output path for the message. The OSError usually contains the path of a temporary file.
    """
    try:
        yield
    except OSError as error:
        reason = f"{path}: cannot be written: {error.strerror or error}"
        raise UserError(reason, _FIXES.get(error.errno or 0, "Check the path and its file system.")) from error


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a lock file, as a context manager. The file is created if it does not exist.

    Raises a UserError if another process holds the lock. The operating system releases the lock when the process
    ends, even if it is killed.
    """
    check_folder(path.parent)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
    with file:
        # The lock file is never deleted. Otherwise two processes could hold locks at the same time, one on the deleted
        # file and one on a new file with the same name.
        if not _lock(file.fileno()):
            raise UserError(
                f"{path.parent}: another process uses this directory", "Wait until the other process ends, or stop it."
            )
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
    # The file system does not support locks, for example on a network drive.
    except OSError:
        return True
    return True


def _sync_folder(folder: Path) -> None:
    """Sync a directory to disk, so that a renamed file survives a power failure. This is not supported on Windows."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def size_mb(folder: Path) -> float:
    """Return the total size of all files in a directory in MB (1,000,000 bytes)."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
