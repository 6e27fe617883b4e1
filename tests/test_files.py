"""Atomic writes of files and directories, and locks between processes."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import IO

import pytest

from spacy_tener.errors import UserError
from spacy_tener.files import check_folder, locked, replaced, write_file, write_text

LOCK_SCRIPT = """
import sys
from pathlib import Path
from spacy_tener.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def file_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_write_text_creates_directory_and_replaces_file(tmp_path: Path) -> None:
    for text in ("old", "new 好"):
        write_text(tmp_path / "below" / "a.txt", text)
        assert (tmp_path / "below" / "a.txt").read_text(encoding="utf8") == text
    assert file_names(tmp_path / "below") == ["a.txt"]


def test_write_text_follows_symbolic_link(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "link").symlink_to("below/a.txt")
    for text in ("first", "second"):
        write_text(tmp_path / "link", text)
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "below" / "a.txt").read_text(encoding="utf8") == text


def test_file_is_synced_before_it_replaces_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_text(tmp_path / "a.txt", "old")
    states = []

    def sync(descriptor: int) -> None:
        # The content of the file is synced first, then its directory.
        states.append((os.fstat(descriptor).st_size, (tmp_path / "a.txt").read_text(encoding="utf8")))

    monkeypatch.setattr(os, "fsync", sync)
    write_text(tmp_path / "a.txt", "newer")
    assert states[0] == (5, "old")
    assert states[1][1] == "newer"


def test_threads_write_same_path_at_same_time(tmp_path: Path) -> None:
    barrier = Barrier(2, timeout=10)

    def write_slowly(letter: bytes) -> None:
        def write(file: IO[bytes]) -> None:
            barrier.wait()
            file.write(letter * 1000)
            file.flush()
            barrier.wait()

        write_file(tmp_path / "a.txt", write)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(write_slowly, (b"a", b"b")))
    assert (tmp_path / "a.txt").read_bytes() in (b"a" * 1000, b"b" * 1000)
    assert file_names(tmp_path) == ["a.txt"]


def test_failed_write_keeps_original_file(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", "old")

    def fail(file: object) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_file(tmp_path / "a.txt", fail)
    assert (tmp_path / "a.txt").read_text(encoding="utf8") == "old"
    assert file_names(tmp_path) == ["a.txt"]


def test_unwritable_path_is_named_in_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"a\.txt: cannot be written"):
        write_text(tmp_path / "file" / "a.txt", "")
    with pytest.raises(UserError, match=r"lock: cannot be written"), locked(tmp_path / "file" / "below" / "lock"):
        pass
    with pytest.raises(UserError, match=r"xx: cannot be written: File name too long. Choose a shorter path"):
        check_folder(tmp_path / ("x" * 300))


@pytest.mark.parametrize(
    ("error_number", "fix"),
    [
        (errno.ENOSPC, "Free some space"),
        (errno.EACCES, "Change its permissions"),
        (errno.EROFS, "file system that can be written to"),
        (errno.EIO, "Check the path and its file system"),
    ],
)
def test_write_error_suggests_fix_for_its_cause(
    error_number: int, fix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(error_number, os.strerror(error_number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(UserError, match=rf"a\.txt: cannot be written: {os.strerror(error_number)}\. .*{fix}"):
        write_text(tmp_path / "a.txt", "new")


def test_failed_replacement_keeps_original_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_text(tmp_path / "out" / "a.txt", "old")
    rename = Path.replace

    def fail_to_rename_new(path: Path, target: Path) -> Path:
        if path.name == "new":
            raise OSError(errno.EIO, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(Path, "replace", fail_to_rename_new)
    with pytest.raises(UserError, match=r"out: cannot be written"), replaced(tmp_path / "out") as folder:
        folder.mkdir()
    assert (tmp_path / "out" / "a.txt").read_text(encoding="utf8") == "old"
    assert file_names(tmp_path) == ["out"]


def test_replaced_follows_symbolic_link_to_directory(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with replaced(tmp_path / "link") as folder:
        folder.mkdir()
        (folder / "a.txt").write_text("new", encoding="utf8")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "a.txt").read_text(encoding="utf8") == "new"
    assert file_names(tmp_path) == ["link", "real"]


def test_lock_is_exclusive_until_its_process_ends(tmp_path: Path) -> None:
    lock = tmp_path / "out" / ".lock"
    command = [sys.executable, "-c", LOCK_SCRIPT, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as lock_process:
        assert lock_process.stdout is not None
        assert lock_process.stdout.readline() == b"held\n"
        for _ in range(2):  # The first error does not change the lock.
            with pytest.raises(UserError, match="another process uses this directory"), locked(lock):
                pass
        lock_process.kill()
    with locked(lock):
        pass


def test_lock_is_released_after_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError), locked(tmp_path / ".lock"):
        raise KeyError
    with locked(tmp_path / ".lock"):
        pass
