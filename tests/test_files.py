"""Files are there whole or not at all, and one process at a time holds a lock."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spacy_tener.errors import RemedyError
from spacy_tener.files import locked, replaced, write_file, write_text

HOLD = """
import sys
from pathlib import Path
from spacy_tener.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_takes_the_place_of_another_in_a_directory_that_is_made(tmp_path: Path) -> None:
    for text in ("old", "new 好"):
        write_text(tmp_path / "below" / "a.txt", text)
        assert (tmp_path / "below" / "a.txt").read_text(encoding="utf8") == text
    assert names(tmp_path / "below") == ["a.txt"]


def test_a_link_leads_to_the_file_that_was_written(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "link").symlink_to("below/a.txt")
    for text in ("first", "second"):
        write_text(tmp_path / "link", text)
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "below" / "a.txt").read_text(encoding="utf8") == text


def test_a_file_is_on_the_disk_before_it_is_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_text(tmp_path / "a.txt", "old")
    states = []

    def sync(descriptor: int) -> None:
        # The file's contents first, then the directory that has its name.
        states.append((os.fstat(descriptor).st_size, (tmp_path / "a.txt").read_text(encoding="utf8")))

    monkeypatch.setattr(os, "fsync", sync)
    write_text(tmp_path / "a.txt", "newer")
    assert states[0] == (5, "old")
    assert states[1][1] == "newer"


def test_a_file_stays_as_it_was_if_writing_fails(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", "old")

    def fail(file: object) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_file(tmp_path / "a.txt", fail)
    assert (tmp_path / "a.txt").read_text(encoding="utf8") == "old"
    assert names(tmp_path) == ["a.txt"]


def test_a_place_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RemedyError, match=r"a\.txt: cannot be written"):
        write_text(tmp_path / "file" / "a.txt", "")
    with pytest.raises(RemedyError, match=r"lock: cannot be written"), locked(tmp_path / "file" / "below" / "lock"):
        pass


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "Free some space"),
        (errno.EACCES, "Change its permissions"),
        (errno.EROFS, "file system that can be written to"),
        (errno.EIO, "Check the path and its file system"),
    ],
)
def test_the_remedy_is_that_of_the_fault(
    number: int, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(RemedyError, match=rf"a\.txt: cannot be written: {os.strerror(number)}\. .*{remedy}"):
        write_text(tmp_path / "a.txt", "new")


def test_a_directory_stays_as_it_was_if_the_new_one_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_text(tmp_path / "out" / "a.txt", "old")
    rename = Path.replace

    def rename_but_new(path: Path, target: Path) -> Path:
        if path.name == "new":
            raise OSError(errno.EIO, "Input/output error")
        return rename(path, target)

    monkeypatch.setattr(Path, "replace", rename_but_new)
    with pytest.raises(RemedyError, match=r"out: cannot be written"), replaced(tmp_path / "out") as folder:
        folder.mkdir()
    assert (tmp_path / "out" / "a.txt").read_text(encoding="utf8") == "old"
    assert names(tmp_path) == ["out"]


def test_a_link_leads_to_the_directory_that_was_written(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with replaced(tmp_path / "link") as folder:
        folder.mkdir()
        (folder / "a.txt").write_text("new", encoding="utf8")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "a.txt").read_text(encoding="utf8") == "new"
    assert names(tmp_path) == ["link", "real"]


def test_a_lock_is_held_by_one_process_until_it_ends_however_it_ends(tmp_path: Path) -> None:
    lock = tmp_path / "out" / ".lock"
    command = [sys.executable, "-c", HOLD, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        for _ in range(2):  # The first refusal leaves the lock as it is.
            with pytest.raises(RemedyError, match="another process uses this directory"), locked(lock):
                pass
        holder.kill()
    with locked(lock):
        pass


def test_a_lock_is_released_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError), locked(tmp_path / ".lock"):
        raise KeyError
    with locked(tmp_path / ".lock"):
        pass
