"""Word lists as files: the lines that are read, and those that are refused."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from spacy_tener.features.lexicon.files import Entry, list_files, list_name, read_dictionary, read_list

LINES = "南京\t120\n北京大学\t7\n"


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode("utf8"))
    return path


def test_dictionary_has_frequencies_and_tags(tmp_path: Path) -> None:
    path = write(tmp_path / "dict.txt", "AT&T 3 nz\n南京 120 ns\n")
    assert list(read_dictionary(path)) == [Entry("AT&T", 3, "nz"), Entry("南京", 120, "ns")]


def test_list_has_frequencies_and_the_tag_given(tmp_path: Path) -> None:
    path = write(tmp_path / "places.txt", LINES)
    assert list(read_list(path, "place")) == [Entry("南京", 120, "place"), Entry("北京大学", 7, "place")]


def test_plain_list_has_no_frequencies_and_words_may_hold_blanks(tmp_path: Path) -> None:
    path = write(tmp_path / "words.txt", "\ufeff南京\r\n\n New York \n#标签\n北京")
    words = ["南京", "New York", "#标签", "北京"]
    assert list(read_list(path, "")) == [Entry(word, None, "") for word in words]


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)])
def test_packed_lists_are_read(tmp_path: Path, ending: str, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / f"places.txt{ending}"
    path.write_bytes(pack(LINES.encode("utf8")))
    assert [entry.word for entry in read_list(path, "")] == ["南京", "北京大学"]


def test_empty_list_has_no_words(tmp_path: Path) -> None:
    assert list(read_list(write(tmp_path / "empty.txt", ""), "")) == []


def test_sign_behind_a_frequency_is_passed_over(tmp_path: Path) -> None:
    # As in three lines of THUOCL.
    path = write(tmp_path / "THUOCL_food.txt", "丁香\t125472s\n星塔村\t 3? \n")
    assert [entry.frequency for entry in read_list(path, "")] == [125472, 3]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("北京\tmany", r"'many' is not a frequency"),
        ("北京\t-3", r"'-3' is not a frequency"),
        ("北京\t3\tns", r"expected `word`, or `word<TAB>frequency`, but got '北京\\t3\\tns'"),
    ],
)
def test_bad_line_of_a_list_is_named(tmp_path: Path, line: str, reason: str) -> None:
    path = write(tmp_path / "bad.txt", f"南京\t3\n{line}\n")
    with pytest.raises(ValueError, match=f"bad.txt:2: .*{reason}"):
        list(read_list(path, ""))


@pytest.mark.parametrize("line", ["北京", "北京 3", "北京 3 ns x", "北京\t3\tns", "北京 ns 3"])
def test_bad_line_of_a_dictionary_is_named(tmp_path: Path, line: str) -> None:
    path = write(tmp_path / "dict.txt", f"南京 3 ns\n\n{line}\n")
    with pytest.raises(ValueError, match=r"dict.txt:3: .* Repair or remove the line"):
        list(read_dictionary(path))


def test_line_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "gbk.txt"
    path.write_bytes(b"abc\n" + "南京".encode("gb18030"))
    with pytest.raises(ValueError, match=r"gbk.txt:2: character 1 of the line is not UTF-8"):
        list(read_list(path, ""))


def test_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cut.txt.gz"
    path.write_bytes(gzip.compress(LINES.encode("utf8"))[:-9])
    with pytest.raises(ValueError, match=r"cut.txt.gz: cannot be read"):
        list(read_list(path, ""))


def test_directory_gives_its_lists_in_order(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("b.txt", "a.txt.xz", "LICENSE", "c.txt.gz", "d.txt.bz2", "e.vec", ".hidden.txt", "sub/f.txt"):
        write(tmp_path / name, "")
    assert [path.name for path in list_files(tmp_path)] == ["a.txt.xz", "b.txt", "c.txt.gz", "d.txt.bz2", "f.txt"]


def test_file_of_any_name_is_a_list(tmp_path: Path) -> None:
    path = write(tmp_path / "words.lst", "")
    assert list_files(path) == [path]


def test_missing_list_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"There is no word list at .*nowhere"):
        list_files(tmp_path / "nowhere")


def test_directory_without_lists_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "README.md", "")
    with pytest.raises(FileNotFoundError, match="has no word lists"):
        list_files(tmp_path)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("THUOCL_law.txt", "THUOCL_law"), ("a.b.txt.xz", "a.b"), ("words.lst", "words"), ("words", "words")],
)
def test_lists_are_named_after_their_files(name: str, expected: str) -> None:
    assert list_name(Path("lists") / name) == expected
