"""Tests of `python -m research vectors`."""

from __future__ import annotations

import lzma
from functools import partial
from pathlib import Path

import pytest
from research_commands import run_research

from spacy_tener.features.pretrained_vectors import read_vectors

TEXT = "上海市2020年口岸。\n上海口岸公司\n"
QUICK = ("--width", "4", "--epochs", "1", "--min-count", "1")


make_vectors = partial(run_research, "vectors")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "laws.txt"
    path.parent.mkdir()
    path.write_text(TEXT, encoding="utf8")
    return path


def test_text_becomes_three_files_and_a_table(text: Path, tmp_path: Path) -> None:
    result = make_vectors(text, "-o", tmp_path / "out", *QUICK)
    assert result.code == 0, result.text
    for kind in ("chars", "bigrams", "words"):
        vectors = read_vectors(tmp_path / "out" / f"{kind}.vec", width=4)
        assert f"{kind}.vec {len(vectors.strings)}" in " ".join(result.text.split())


def test_directories_packed_files_and_standard_input_are_read_together(text: Path, tmp_path: Path) -> None:
    (text.parent / "more.txt.xz").write_bytes(lzma.compress("好".encode()))
    (text.parent / "notes.md").write_text("not text")
    result = make_vectors(text.parent, "-", "-o", tmp_path / "out", *QUICK, "--kinds", "chars", stdin="吗".encode())
    assert result.code == 0, result.text
    assert "Files left out, as they hold no text: 1" in result.text
    strings = read_vectors(tmp_path / "out" / "chars.vec").strings
    assert {"上", "好", "吗"} <= set(strings)
    assert "n" not in strings


def test_kinds_have_their_own_least_counts_by_default(text: Path, tmp_path: Path) -> None:
    assert make_vectors(text, "-o", tmp_path / "out", "--width", "4", "--epochs", "1").code == 0
    assert set(read_vectors(tmp_path / "out" / "bigrams.vec").strings) == {"上海", "口岸", "00"}
    assert "公" in read_vectors(tmp_path / "out" / "chars.vec").strings
