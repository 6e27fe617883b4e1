"""Tests of word2vec training, from a file of strings to files of vectors."""

from __future__ import annotations

import os
import random
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import spacy

from research.vectors import training
from research.vectors.strings import BIGRAMS, CHARS, KINDS, TextSettings
from research.vectors.training import (
    KindReport,
    StringFile,
    TrainingSettings,
    make_vectors,
    train_vectors,
    write_vectors,
)
from spacy_tener.embedders.char_embed import build_char_embed
from spacy_tener.embedders.tables import Vocabulary
from spacy_tener.errors import InputError
from spacy_tener.features.pretrained_vectors import read_vectors
from spacy_tener.features.tokens import TokenBatch

SMALL = TrainingSettings(width=8, epochs=2, min_count=1)
TEXT = "上海市２０20年　上海口岸。\n\n第1条 A股公司\n"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "laws.txt"
    path.write_text(TEXT, encoding="utf8")
    return path


def string_file(path: Path, lines: list[str], *, max_strings: int = 1000) -> StringFile:
    with StringFile(path, max_strings=max_strings) as file:
        for line in lines:
            file.add(line.split(" ") if line else [])
    return file


def make(
    text: Path,
    output: Path,
    *kinds: str,
    settings: TrainingSettings = SMALL,
    reading: TextSettings | None = None,
) -> list[KindReport]:
    return make_vectors([str(text)], output, dict.fromkeys(kinds or KINDS, settings), reading=reading)


def strings_of(path: Path) -> set[str]:
    return set(read_vectors(path).strings)


# The file of strings


def test_strings_are_written_and_counted_by_paragraph(tmp_path: Path) -> None:
    file = string_file(tmp_path / "f", ["a b a", "", "\u3000 c"])
    assert file.path.read_text(encoding="utf8") == "a b a\n\u3000 c\n"
    assert file.counts == {"a": 2, "b": 1, "\u3000": 1, "c": 1}
    assert (file.lines, file.tokens) == (2, 5)


def test_rarest_strings_are_forgotten_before_memory_runs_out(tmp_path: Path) -> None:
    lines = ["a a a b b", *(f"x{n}" for n in range(50)), "a b"]
    file = string_file(tmp_path / "f", lines, max_strings=10)
    assert len(file.counts) <= 10
    assert file.counts["a"] == 4
    assert file.counts["b"] == 3
    assert file.tokens == 57


# Training


def test_strings_that_share_contexts_come_near_each_other(tmp_path: Path) -> None:
    rng = random.Random(0)
    lines = [f"{a} {x} {a} {x} {a}" for x, a in rng.choices([("x", "a"), ("y", "a"), ("z", "b"), ("w", "b")], k=2000)]
    file = string_file(tmp_path / "f", lines)
    strings, table = train_vectors(file, TrainingSettings(width=8, epochs=5), name="words")
    unit = dict(zip(strings, table / np.linalg.norm(table, axis=1, keepdims=True), strict=True))
    assert unit["x"] @ unit["y"] > unit["x"] @ unit["z"] + 0.5
    assert unit["z"] @ unit["w"] > unit["y"] @ unit["w"] + 0.5


def test_white_space_of_other_scripts_is_a_string_like_any_other(tmp_path: Path) -> None:
    file = string_file(tmp_path / "f", ["\u3000 a \u3000 b \u00a0 c"] * 500)
    start, _ = train_vectors(file, TrainingSettings(width=4, epochs=1), name="chars")
    assert set(start) == {"\u3000", "\u00a0", "a", "b", "c"}
    _, once = train_vectors(file, TrainingSettings(width=4, epochs=1), name="chars")
    _, often = train_vectors(file, TrainingSettings(width=4, epochs=9), name="chars")
    # Training moves the vectors away from their initial values, which depend only on the seed.
    assert (np.abs(once - often).max(axis=1) > 1e-3).all()


def test_strings_come_by_frequency_and_rare_ones_are_left_out(tmp_path: Path) -> None:
    file = string_file(tmp_path / "f", ["a b b c c c"] * 2)
    strings, table = train_vectors(file, TrainingSettings(width=4, min_count=4), name="chars")
    assert strings == ["c", "b"]
    assert table.shape == (2, 4)
    assert np.isfinite(table).all()


def test_nothing_frequent_enough_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    file = string_file(tmp_path / "f", ["a b"])
    with pytest.raises(ValueError, match=r"None of the 2 distinct bigrams occurs 2 times.*--min-count"):
        train_vectors(file, TrainingSettings(min_count=2), name="bigrams")


# The file of vectors


def test_written_vectors_are_read_back(tmp_path: Path) -> None:
    table = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32) * [[1], [1e-6], [1e6], [0]]
    strings = ["上海", "\u3000", "a<eos>", "𠮷"]
    write_vectors(tmp_path / "v.vec", strings, table.astype(np.float32))
    vectors = read_vectors(tmp_path / "v.vec", width=5)
    assert vectors.strings == strings
    np.testing.assert_allclose(vectors.table, table, rtol=1e-4)
    assert (tmp_path / "v.vec").read_text(encoding="utf8").startswith("4 5\n上海 ")


# Whole runs


def test_every_kind_gets_a_file_with_its_strings(text: Path, tmp_path: Path) -> None:
    reports = make(text, tmp_path / "out")
    assert strings_of(tmp_path / "out" / "chars.vec") == set("上海市0年\u3000口岸。第条A股公司")
    pairs = "上海 海市 市0 00 0年 年\u3000 \u3000上 海口 口岸 岸。 。<eos> 第0 0条 条A A股 股公 公司 司<eos>"
    assert strings_of(tmp_path / "out" / "bigrams.vec") == set(pairs.split(" "))
    assert {"口岸", "公司", "A股", "0", "00"} <= strings_of(tmp_path / "out" / "words.vec")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"chars.vec", "bigrams.vec", "words.vec"}
    assert [part.kind for part in reports] == list(KINDS)
    chars = reports[0]
    assert (chars.tokens, chars.distinct, chars.strings) == (21, 15, 15)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_files_serve_the_embedder_with_every_token_of_their_text(text: Path, tmp_path: Path) -> None:
    make(text, tmp_path / "out", CHARS, BIGRAMS)
    embed = build_char_embed(
        width=8, bigram_width=8, vectors=tmp_path / "out" / "chars.vec", bigram_vectors=tmp_path / "out" / "bigrams.vec"
    )
    embed.initialize()
    vocabulary: Vocabulary = embed.attrs["vocabulary"]
    docs = [spacy.blank("zh")(line) for line in TEXT.splitlines() if line]
    keys = vocabulary.to_input(TokenBatch.of(docs)).keys
    assert set(keys) == set(vocabulary.tables)
    for name, table in vocabulary.tables.items():
        assert (table.rows(keys[name]) > 0).all(), name


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are UTF-8 there")
def test_vectors_are_the_same_in_a_directory_whose_name_is_not_utf_8(text: Path, tmp_path: Path) -> None:
    elsewhere = Path(os.fsdecode(os.fsencode(tmp_path) + "/向量".encode("gb18030")))
    # without a fix, gensim would wait forever
    making = threading.Thread(target=make, args=(text, elsewhere, CHARS), daemon=True)
    making.start()
    making.join(60)
    make(text, tmp_path / "vectors", CHARS)
    assert (elsewhere / "chars.vec").read_bytes() == (tmp_path / "vectors" / "chars.vec").read_bytes()


def test_same_seed_gives_the_same_files_and_another_seed_others(text: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        make(text, tmp_path / name, CHARS, settings=TrainingSettings(width=8, epochs=2, seed=seed))
    first, again, third = ((tmp_path / name / "chars.vec").read_bytes() for name in "abc")
    assert first == again
    assert first != third


# What goes wrong


def test_text_without_anything_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "blank.txt").write_text("\n \n")
    with pytest.raises(InputError, match=r"blank\.txt: there is no text"):
        make(tmp_path / "blank.txt", tmp_path / "out", CHARS)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("stage", ["train_vectors", "write_vectors"])
def test_run_that_fails_leaves_what_was_there(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    make(text, tmp_path / "out", CHARS)
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}

    def fail(*arguments: object, **options: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(training, stage, fail)
    with pytest.raises(OSError, match="disk full"):
        make(text, tmp_path / "out", CHARS, settings=TrainingSettings(width=16))
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    assert {path.name for path in tmp_path.iterdir()} == {"laws.txt", "out"}


def test_missing_gensim_is_told_with_the_extra_before_the_text_is_read(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gensim.models", None)
    monkeypatch.setattr(training, "read_paragraphs", lambda source: pytest.fail("the text was read"))
    with pytest.raises(ValueError, match=r"needs gensim.*pip install gensim"):
        make(text, tmp_path / "out", CHARS)
