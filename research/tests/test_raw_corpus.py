"""Tests of the corpus reader for raw texts."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest
import spacy
from spacy.util import registry

from research.raw_corpus import raw_text
from spacy_tener.errors import InputError

LINES = ["第一条为了规范", "", "  第二条为了保护  ", "短", "a b c d e f g"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "raw.txt.gz"
    path.write_bytes(gzip.compress("\n".join(LINES).encode()))
    return path


def texts(reader, lang: str = "zh") -> list[str]:
    examples = list(reader(spacy.blank(lang)))
    assert all(example.predicted is not example.reference for example in examples)
    assert [e.predicted.text for e in examples] == [e.reference.text for e in examples]
    return [example.predicted.text for example in examples]


def test_paragraphs_are_docs_without_blank_and_short_ones(file: Path) -> None:
    found = texts(raw_text(file, shuffle=False))
    assert found == ["第一条为了规范", "第二条为了保护", "a b c d e f g"]
    assert texts(raw_text(str(file), min_length=0, shuffle=False))[2] == "短"


def test_long_paragraphs_are_cut_and_nothing_is_lost(tmp_path: Path) -> None:
    long = "".join(chr(0x4E00 + number) for number in range(505))
    (tmp_path / "long.txt").write_text(long, encoding="utf8")
    pieces = texts(raw_text(tmp_path, max_length=100, shuffle=False))
    assert [len(piece) for piece in pieces] == [100, 100, 100, 100, 100, 5]
    assert "".join(pieces) == long
    assert texts(raw_text(tmp_path, max_length=100, min_length=6, shuffle=False)) == pieces[:5]


def test_text_of_which_nothing_is_left_is_told(file: Path) -> None:
    with pytest.raises(InputError, match=r"raw.txt.gz: there is no text\. Give texts of at least min_length = 50"):
        texts(raw_text(file, min_length=50))


def test_a_paragraph_longer_than_spacy_lets_through_is_cut_too(file: Path) -> None:
    nlp = spacy.blank("en")
    nlp.max_length = 4
    pieces = [example.predicted.text for example in raw_text(file, min_length=2, max_length=3, shuffle=False)(nlp)]
    assert pieces == ["a b c ", "d e f "]


def test_each_pass_has_an_order_of_its_own_that_the_seed_decides(tmp_path: Path) -> None:
    lines = [f"第{number}条为了" for number in range(50)]
    (tmp_path / "many.txt").write_text("\n".join(lines), encoding="utf8")
    reader = raw_text(tmp_path / "many.txt")
    random.seed(1)
    first, second = texts(reader), texts(reader)
    random.seed(1)
    assert texts(reader) == first != second
    assert sorted(first) == sorted(second) == sorted(lines)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no text is named.*--paths\.raw_text"):
        texts(raw_text(None))
    with pytest.raises(InputError, match=r"nowhere\.txt"):
        texts(raw_text(tmp_path / "nowhere.txt"))


@pytest.mark.parametrize("wrong", [{"min_length": -1}, {"max_length": 0}])
def test_lengths_that_are_none_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="RawText needs min_length >= 0 and max_length >= 1"):
        raw_text("raw.txt", **wrong)


def test_it_is_what_the_config_names(file: Path) -> None:
    reader = registry.resolve({"corpus": {"@readers": "spacy_tener.RawText.v1", "path": str(file), "shuffle": False}})
    assert texts(reader["corpus"])[0] == "第一条为了规范"
