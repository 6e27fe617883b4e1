"""Files and directories are there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spacy_tener.workbench.files import TrainingError, only_one, replace_file, replace_folder, replace_text


def fill(folder: Path, text: str) -> None:
    (folder / "below").mkdir(parents=True)
    (folder / "below" / "file.txt").write_text(text, encoding="utf8")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_takes_the_place_of_another(tmp_path: Path) -> None:
    for text in ("old", "new 好"):
        replace_text(tmp_path / "a.txt", text)
        assert (tmp_path / "a.txt").read_text(encoding="utf8") == text
    assert names(tmp_path) == ["a.txt"]


def test_a_file_is_on_the_disk_before_it_is_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_text(tmp_path / "a.txt", "old")
    seen = []

    def sync(descriptor: int) -> None:
        # The file's contents first, then the directory that has its name.
        seen.append((os.fstat(descriptor).st_size, (tmp_path / "a.txt").read_text(encoding="utf8")))

    monkeypatch.setattr(os, "fsync", sync)
    replace_text(tmp_path / "a.txt", "newer")
    assert seen[0] == (5, "old")
    assert seen[1][1] == "newer"


def test_a_place_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="cannot be written: No such file") as caught:
        replace_file(tmp_path / "nowhere" / "a.txt", lambda file: None)
    assert caught.value.remedy.endswith(".")
    with pytest.raises(TrainingError, match="cannot be written to: No such file"), only_one(tmp_path / "nowhere" / "x"):
        pass


@pytest.mark.parametrize("durable", [True, False])
def test_a_directory_takes_the_place_of_another(tmp_path: Path, durable: bool) -> None:
    for text in ("old", "new"):
        replace_folder(tmp_path / "model", lambda folder, text=text: fill(folder, text), durable=durable)
        assert (tmp_path / "model" / "below" / "file.txt").read_text(encoding="utf8") == text
    (tmp_path / "model" / "more").touch()
    replace_folder(tmp_path / "model", lambda folder: fill(folder, "newest"), durable=durable)
    assert names(tmp_path / "model") == ["below"]
    assert names(tmp_path) == ["model"]


def test_a_directory_stays_if_another_cannot_be_made(tmp_path: Path) -> None:
    replace_folder(tmp_path / "model", lambda folder: fill(folder, "old"))

    def fail(folder: Path) -> None:
        fill(folder, "half")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        replace_folder(tmp_path / "model", fail)
    assert (tmp_path / "model" / "below" / "file.txt").read_text(encoding="utf8") == "old"
    replace_folder(tmp_path / "model", lambda folder: fill(folder, "new"))
    assert names(tmp_path) == ["model"]


def test_only_one_holds_a_lock_and_gives_it_back(tmp_path: Path) -> None:
    with only_one(tmp_path / ".lock"):
        with pytest.raises(TrainingError, match="another process is at work there"), only_one(tmp_path / ".lock"):
            pass
        assert names(tmp_path) == [".lock"]
    with pytest.raises(KeyError), only_one(tmp_path / ".lock"):
        raise KeyError
    with only_one(tmp_path / ".lock"):
        pass
    assert names(tmp_path) == []


def test_a_lock_left_behind_by_a_killed_process_holds_nobody_up(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    with only_one(tmp_path / ".lock"):
        pass
