"""Check that invalid command lines are rejected before anything is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from research_commands import run_research


@pytest.mark.parametrize("words", ["table runs --format md", "plot runs --kind scores"])
def test_a_place_that_cannot_be_written_is_named(words: str, tmp_path: Path) -> None:
    (tmp_path / "folder.png").mkdir()
    ran = run_research(*words.split(), "--output", tmp_path / "folder.png")
    assert ran.code == 1
    assert "is a directory Use the path of a file." in ran.text


def test_a_gpu_that_is_not_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = run_research(*["grid", "out", "--corpora", "sample", "--systems", "tener", "--gpu-id", "99"])
    assert ran.code == 1
    assert "GPU" in ran.text
    assert not Path("out").exists()
