"""Reading lines of files: encodings, compression, line endings, and errors for files that are not text."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from spacy_tener import inputs
from spacy_tener.errors import InputError
from spacy_tener.features.lexicon_sources import word_list
from spacy_tener.inputs import find_files, read_lines, size_and_version


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("last", [True, False])
def test_bom_and_line_endings_are_removed(tmp_path: Path, bom: bytes, end: bytes, last: bool) -> None:
    content = bom + end.join(["科 O".encode(), b"", b" x "]) + end * last
    assert list(read_lines(write(tmp_path / "a", content))) == [(1, "科 O"), (2, ""), (3, " x ")]


def test_bom_after_file_start_is_preserved(tmp_path: Path) -> None:
    assert list(read_lines(write(tmp_path / "a", "a\n\ufeffb".encode()))) == [(1, "a"), (2, "\ufeffb")]


def test_only_newline_characters_separate_lines(tmp_path: Path) -> None:
    text = "a\u2028b\x85c\x0bd\x0ce\x1cf"
    assert list(read_lines(write(tmp_path / "a", text.encode()))) == [(1, text)]


def test_compression_is_detected_by_content(tmp_path: Path) -> None:
    assert list(read_lines(write(tmp_path / "a.gz", b"a O\n"))) == [(1, "a O")]
    for compress in (gzip.compress, bz2.compress, lzma.compress):
        assert list(read_lines(write(tmp_path / "a.txt", compress(b"a O\n")))) == [(1, "a O")]


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_dash_reads_standard_input(monkeypatch: pytest.MonkeyPatch, compress: Callable[[bytes], bytes]) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(compress("\ufeff科 O\r\n".encode()))))
    assert list(read_lines("-")) == [(1, "科 O")]


def test_missing_file_and_directory_raise_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"missing\.txt: cannot be read: No such file"):
        list(read_lines(tmp_path / "missing.txt"))
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        list(read_lines(tmp_path))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing.txt", "No such file or directory"),
        ("file/a.txt", "Not a directory"),
        ("x" * 300, "File name too long"),
        ("loop", "Too many levels of symbolic links"),
    ],
)
def test_inaccessible_path_raises_error_with_its_cause(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    files, _ = find_files([tmp_path / name], lambda path: True, "text", "")
    readers: list[Callable[[str], object]] = [size_and_version, lambda path: list(read_lines(path))]
    for read in (*readers, lambda path: word_list(path)()):
        with pytest.raises(InputError, match=rf"{name}: cannot be read: {reason}\. Check the path"):
            read(files[0].address)


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        (b"a O\nb\xff O\n", 2, "character 2 of the line is not UTF-8"),
        ("a O\n科 O\n".encode("gb18030"), 2, "character 1 of the line is not UTF-8"),
        ("a O\n".encode("utf-16"), 1, "character 1 of the line is not UTF-8"),
        (b"a O\nb\xed\xa0\xbd O\n", 2, "character 2 of the line is not UTF-8"),
        (b"a O\nb\x00 O\n", 2, "the line contains a NUL byte"),
        ("a O\n".encode("utf-16-le"), 1, "the line contains a NUL byte"),
        (b"a O\rb O\r", 1, "the line contains a carriage return before its end"),
    ],
)
def test_invalid_text_error_contains_line_and_reason(tmp_path: Path, content: bytes, line: int, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        list(read_lines(write(tmp_path / "a.txt", content)))
    assert (caught.value.line, caught.value.reason) == (line, reason)


def test_long_line_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"x" * 3_000_000 + b" O\n")
    assert [len(line) for _, line in read_lines(path)] == [3_000_002]


def test_line_beyond_maximum_length_raises_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "MAX_LINE_LENGTH", 100)
    assert list(read_lines(write(tmp_path / "fits", b"x" * 99 + b"\n"))) == [(1, "x" * 99)]
    with pytest.raises(InputError, match=r"long:2: the line is longer than 100 characters"):
        list(read_lines(write(tmp_path / "long", b"a\n" + b"x" * 101)))
