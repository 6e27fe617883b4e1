"""`python -m spacy tener vectors`: arguments in, files and a report out."""

from __future__ import annotations

import json
import lzma
from functools import partial
from pathlib import Path

import pytest
from command_line import run_tener

from spacy_tener.features.vectors import read_vectors

TEXT = "上海市2020年口岸。\n上海口岸公司\n"
QUICK = ("--width", "4", "--epochs", "1", "--min-count", "1")


make_vectors = partial(run_tener, "vectors")


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
        assert f"{kind}: {len(vectors.strings)} vectors in" in result.text
    assert "17 characters of text" in result.text


def test_directories_packed_files_and_standard_input_are_read_together(text: Path, tmp_path: Path) -> None:
    (text.parent / "more.txt.xz").write_bytes(lzma.compress("好".encode()))
    (text.parent / "notes.md").write_text("not text")
    result = make_vectors(text.parent, "-", "-o", tmp_path / "out", *QUICK, "--kinds", "chars", stdin="吗".encode())
    assert result.code == 0, result.text
    assert "Files left out: 1 notes.md" in result.text
    strings = read_vectors(tmp_path / "out" / "chars.vec").strings
    assert {"上", "好", "吗"} <= set(strings)
    assert "n" not in strings


def test_options_reach_the_training_and_the_summary(text: Path, tmp_path: Path) -> None:
    options = ("--window", "3", "--negative", "2", "--seed", "9", "--keep-digits", "--lower", "--kinds", "bigrams")
    assert make_vectors(text, "-o", tmp_path / "out", *QUICK, *options).code == 0
    summary = json.loads((tmp_path / "out" / "vectors.json").read_text(encoding="utf8"))["bigrams"]
    assert summary["training"] == {
        "width": 4,
        "epochs": 1,
        "window": 3,
        "negative": 2,
        "min_count": 1,
        "seed": 9,
        "workers": 1,
    }
    assert summary["text"] == {"lang": "zh", "digits": False, "lower": True, "lexicon": [], "all_matches": False}


def test_kinds_have_their_own_least_counts_by_default(text: Path, tmp_path: Path) -> None:
    assert make_vectors(text, "-o", tmp_path / "out", "--width", "4", "--epochs", "1").code == 0
    summary = json.loads((tmp_path / "out" / "vectors.json").read_text(encoding="utf8"))
    assert {kind: part["training"]["min_count"] for kind, part in summary.items()} == {
        "chars": 1,
        "bigrams": 2,
        "words": 2,
    }
    assert set(read_vectors(tmp_path / "out" / "bigrams.vec").strings) == {"上海", "口岸", "00"}


def test_lexicon_words_are_found_whole(text: Path, tmp_path: Path) -> None:
    (tmp_path / "places.txt").write_text("上海口岸公司\n", encoding="utf8")
    assert (
        make_vectors(
            text, "-o", tmp_path / "out", *QUICK, "--kinds", "words", "--lexicon", tmp_path / "places.txt"
        ).code
        == 0
    )
    assert "上海口岸公司" in read_vectors(tmp_path / "out" / "words.vec").strings


def test_all_matches_gives_vectors_to_nested_words(text: Path, tmp_path: Path) -> None:
    nested = {"上海", "上海市"}
    for options, expected in (((), {"上海市"}), (("--all-matches",), nested)):
        text.write_text("上海市口岸", encoding="utf8")
        assert make_vectors(text, "-o", tmp_path / "out", *QUICK, "--kinds", "words", *options).code == 0
        assert nested.intersection(read_vectors(tmp_path / "out" / "words.vec").strings) == expected


def test_several_workers_are_told_to_make_no_two_runs_alike(text: Path, tmp_path: Path) -> None:
    result = make_vectors(text, "-o", tmp_path / "out", *QUICK, "--kinds", "chars", "--workers", "2")
    assert result.code == 0, result.text
    assert "With 2 workers the vectors differ from run to run" in result.text
    assert "differ" not in make_vectors(text, "-o", tmp_path / "out", *QUICK, "--kinds", "chars").text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--min-count", "99"), "None of the 10 distinct chars occurs 99 times"),
        (("--lexicon", "nowhere.txt"), "nowhere.txt: cannot be read: No such file"),
    ],
)
def test_errors_are_one_message_and_nothing_is_written(
    text: Path, tmp_path: Path, options: tuple[str, str], message: str
) -> None:
    result = make_vectors(text, "-o", tmp_path / "out", *options)
    assert result.code == 1
    assert message in result.text
    assert "Traceback" not in result.text
    assert not (tmp_path / "out").exists()


def test_undecodable_bytes_are_told_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "gbk.txt").write_bytes("好\n".encode() + "中国".encode("gbk"))
    result = make_vectors(tmp_path / "gbk.txt", "-o", tmp_path / "out", *QUICK)
    assert result.code == 1
    assert "gbk.txt:2: character 1 of the line is not UTF-8" in result.text


@pytest.mark.parametrize(("output", "message"), [("file", "not a directory"), ("file/below/out", "cannot be written")])
def test_a_place_that_cannot_be_written_is_named(text: Path, tmp_path: Path, output: str, message: str) -> None:
    (tmp_path / "file").touch()
    result = make_vectors(text, "-o", tmp_path / output, *QUICK)
    assert result.code == 1
    assert f"{tmp_path / output}: {message}" in result.text
    assert "Errno" not in result.text
