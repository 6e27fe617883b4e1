"""Vectors in text files: formats, compression, unusual strings and malformed lines."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from spacy_tener.features import vector_text
from spacy_tener.features.pretrained_vectors import Vectors, read_vectors

pytestmark = pytest.mark.filterwarnings("error::UserWarning")
Read = Callable[..., Vectors]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Read vectors from a file with the given content."""

    def read_content(content: str | bytes, *, width: int | None = None) -> Vectors:
        path = tmp_path / "some.vec"
        path.write_bytes(content.encode("utf8") if isinstance(content, str) else content)
        return read_vectors(path, width=width)

    return read_content


# Formats and compression


@pytest.mark.parametrize(
    ("content", "strings"),
    [
        ("2 2\na 1 2\nb 3 4\n", ["a", "b"]),
        ("the 1 2\nof 3 4\n", ["the", "of"]),
        ("7 1 2\n8 3 4\n", ["7", "8"]),
        ("New York 1 2\nof 3 4\n", ["New York", "of"]),
    ],
    ids=["header", "no header", "row that looks like a header", "first string with a space"],
)
def test_header_is_distinguished_from_rows(read: Read, content: str, strings: list[str]) -> None:
    vectors = read(content)
    assert vectors.strings == strings
    assert vectors.table.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("compress", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_compression_is_detected_from_first_bytes(read: Read, compress: Callable[[bytes], bytes]) -> None:
    vectors = read(compress("2 2\n中 1 2\n国 3 4\n".encode()))
    assert vectors.strings == ["中", "国"]
    assert vectors.table.tolist() == [[1, 2], [3, 4]]


def test_concatenated_gzip_members_are_read_completely(read: Read) -> None:
    assert read(gzip.compress(b"a 1 2\n") + gzip.compress(b"b 3 4\n")).strings == ["a", "b"]


@pytest.mark.parametrize(
    "content",
    [
        "2 2\na 1 2 \nb 3 4 \n",  # the format that word2vec writes
        "2 2 \r\na 1 2\r\nb 3 4\r\n",
        "\ufeff2 2\na 1 2\nb 3 4",
        "2 2\na 1 2\n\nb 3 4\n\n\n",
        "2 2\na 1e0 +2\nb 3.0 4.\n",
    ],
    ids=["space at line end", "carriage returns", "byte order mark, no last line end", "blank lines", "notations"],
)
def test_whitespace_and_number_format_variants_are_accepted(read: Read, content: str) -> None:
    vectors = read(content)
    assert vectors.strings == ["a", "b"]
    assert vectors.table.tolist() == [[1, 2], [3, 4]]


# Unusual strings


@pytest.mark.parametrize(
    "string", [" 3.5", "\u3000", "\u00a0", "\u2028", "\u0085", "\x1c", "\t", "😀", " ", "#", "a\u3000b"]
)
def test_unusual_string_is_read(read: Read, string: str) -> None:
    vectors = read(f"x 1 2\n{string} 3 4\ny 5 6\n")
    assert vectors.strings == ["x", string, "y"]
    assert vectors.table.tolist() == [[1, 2], [3, 4], [5, 6]]


@pytest.mark.parametrize("string", ["New York", ". . .", "at name@domain.com", "Windows 10"])
def test_string_with_spaces_is_split_from_the_right(read: Read, string: str) -> None:
    vectors = read(f"x 0.1 0.2\n{string} 0.5 0.25\n")
    assert vectors.strings == ["x", string]
    assert vectors.table[1].tolist() == [0.5, 0.25]


def test_invalid_utf8_string_is_skipped_with_warning(read: Read) -> None:
    with pytest.warns(UserWarning, match="1 rows were left out"):
        vectors = read(b"3 2\na 1 2\n\xe4\xb8 3 4\nb 5 6\n")
    assert vectors.strings == ["a", "b"]
    assert vectors.table.tolist() == [[1, 2], [5, 6]]


# Malformed lines


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("b 3", "expected 2 values, but found 1"),
        ("b", "expected 2 values, but found 0"),
        ("b 3.0 4.0 5.0", "expected 2 values, but found 3"),
        ("b 3 x", "'x' is not a number"),
        ("b 3 4x", "'4x' is not a number"),
        ("b 3 4,5", "'4,5' is not a number"),
        ("b 3 4.5.6", "'4.5.6' is not a number"),
        ("b 3 4-5", "'4-5' is not a number"),
        ("b 3 4\t5", r"'4\\t5' is not a number"),
        ("New York 3", "'York' is not a number"),
        ("b 3  4", "two spaces in a row"),
        ("b  3 4", "two spaces in a row"),
        ("b  3", "two spaces in a row"),
        (" 3 4", "there is no string"),
        ("b 3 nan", "not finite"),
        ("b -inf 4", "not finite"),
        ("b 3 1e60", "not finite"),
    ],
)
@pytest.mark.parametrize("header", ["3 2\n", ""])
def test_malformed_line_error_names_line_and_reason(read: Read, header: str, line: str, reason: str) -> None:
    number = 3 if header else 2
    with pytest.raises(ValueError, match=rf"some\.vec:{number}: .*{reason}"):
        read(f"{header}a 1 2\n{line}\nc 5 6\n")


def test_error_line_number_counts_blank_lines_and_chunks(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_text, "_CHUNK", 10)
    with pytest.raises(ValueError, match=r"some\.vec:8: 'x' is not a number"):
        read("5 2\na 1 2\nb 3 4\n\n\nc 5 6\nd 7 8\ne 9 x\n")


def test_error_truncates_long_line(read: Read) -> None:
    with pytest.raises(ValueError, match=r"'b 0 0 .*\.\.\.'\. Repair or remove the line\.") as caught:
        read("a" + " 1" * 200 + "\nb" + " 0" * 199 + "\n")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("n_rows", [1, 3])
def test_wrong_row_count_in_header_emits_warning(read: Read, n_rows: int) -> None:
    with pytest.warns(UserWarning, match=f"promises {n_rows} rows, but it has 2"):
        assert read(f"{n_rows} 2\na 1 2\nb 3 4\n").strings == ["a", "b"]


# Other files


BINARY = b"2 2\na \x00\x00\x80?\x00\x00\x80?\nb \x00\x00\x80?\x00\x00\x80?\n"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", r"some\.vec: the file is empty"),
        (gzip.compress(b"", mtime=0), r"some\.vec: the file is empty"),
        ("5 2\n", r"no vectors after the first line, `5 2`"),
        *((text, "1: expected a string and its values") for text in ("今天天气很好\n", "two words\n", "a\t1\t2\n")),
        ('{"a": [1, 2]}\n', "1: expected a string and its values, separated by spaces"),
        (BINARY, r"binary file.*load_word2vec_format"),
        ("a 1 2\n".encode("utf-16"), "not UTF-8"),
        (np.asarray([793712314, 12], dtype="<i4").tobytes() + bytes(100), r"\.vec file instead of the \.bin file"),
        (b"PK\x03\x04" + bytes(100), r"zip archive\. Extract it"),
    ],
)
def test_other_file_format_raises_error_with_fix(read: Read, content: str | bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read(content)


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("damage", ["cut", "overwritten"])
def test_damaged_compressed_file_raises_error(read: Read, compress: Callable[[bytes], bytes], damage: str) -> None:
    rng = np.random.default_rng(0)
    compressed = compress("".join(f"w{i} {a} {b}\n" for i, (a, b) in enumerate(rng.normal(size=(3000, 2)))).encode())
    half = len(compressed) // 2
    content = compressed[:half] if damage == "cut" else compressed[:half] + b"\xff" * 1000 + compressed[half + 1000 :]
    with pytest.raises(ValueError, match="cannot be read"):
        read(content)


# Size


def test_chunk_size_does_not_change_vectors(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    table = np.random.default_rng(1).normal(size=(300, 7)).astype(np.float32)
    content = "300 7\n" + "".join(f"s{i} {' '.join(map(str, row.tolist()))}\n" for i, row in enumerate(table))
    monkeypatch.setattr(vector_text, "_CHUNK", 1000)
    vectors = read(content)
    assert vectors.strings == [f"s{i}" for i in range(300)]
    np.testing.assert_array_equal(vectors.table, table)


def test_peak_memory_is_bounded_by_table_size(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_text, "_CHUNK", 1 << 16)
    content = "".join(f"s{i}" + " 0.123456789012" * 100 + "\n" for i in range(4000)).encode()
    tracemalloc.start()
    vectors = read(content)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert vectors.table.nbytes < peak < 2.5 * vectors.table.nbytes < len(content)
