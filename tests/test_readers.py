"""All readers of texts, with all file formats: they return the same texts, or the error names the line."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import spacy
from spacy.tokens import Doc, DocBin

from spacy_tener.annotate.arrow import rows_of_table
from spacy_tener.annotate.records import ReadOptions, find_sources, read_parts, stream_records
from spacy_tener.corpora.reader import CorpusOptions, CorpusReader
from spacy_tener.errors import InputError, UserError
from spacy_tener.inputs import DamagedText

BOM = "\ufeff"
# Quotes, emoji, combining characters, and characters that some libraries treat as line breaks.
TEXTS = [
    "王小明去了上海",
    '他说:"好", 走',
    '"京',
    "😀𠮷 e\u0301\u0301 👨\u200d👩\u200d👧 \u200fא",
    "\u0301a\u00a0b\u2028c\x85d\x0ce" + BOM,
    "京",
]


def read_for_annotate(path: Path, encoding: str = "utf-8") -> list[str]:
    """Read texts as `annotate` does, but raise the error of a damaged record, which `annotate` writes to its row."""
    rows: list[dict[str, Any]] = []
    for part in read_parts(find_sources([str(path)])[0], ReadOptions(encoding=encoding), "text"):
        rows += [*part.rows, *(row for table in part.tables for row in rows_of_table(table))]
    texts = [row["text"] for row in rows]
    for text in texts:
        if isinstance(text, DamagedText):
            raise InputError(str(path), text.reason, "")
    return texts


def read_raw_texts(path: Path) -> list[str]:
    """Read texts as `silver`, `suggest` and `trim` do."""
    return [record["text"] for record in stream_records([str(path)])]


def read_for_convert(path: Path, encoding: str = "utf-8") -> list[str]:
    """Read texts as `convert` does."""
    return [text.text for text in CorpusReader(path, CorpusOptions(format="jsonl", encoding=encoding))]  # type: ignore[union-attr]


def write_lines(texts: list[str], end: str) -> str:
    return "".join(f"{text}{end}" for text in texts)


def write_json_lines(texts: list[str], end: str, number: str = "0") -> str:
    spelled = [json.dumps(text, ensure_ascii=False) for text in texts]
    return write_lines([f'{{"text": {text}, "label": [], "number": {number}}}' for text in spelled], end)


def write_csv(texts: list[str], end: str, quoting: int = csv.QUOTE_MINIMAL) -> str:
    file = io.StringIO(newline="")
    csv.writer(file, lineterminator=end, quoting=quoting).writerows([["text", "n"], *([text, 0] for text in texts)])
    return file.getvalue()


def write_quoted_csv(texts: list[str], end: str) -> str:
    return write_csv(texts, end, csv.QUOTE_ALL)


def write_tsv(texts: list[str], end: str) -> str:
    return write_lines(["text\tn", *(f"{text}\t0" for text in texts)], end)


Writer = Callable[[list[str], str], str]
FORMATS: dict[Writer, str] = {
    write_lines: ".txt",
    write_json_lines: ".jsonl",
    write_csv: ".csv",
    write_quoted_csv: ".csv",
    write_tsv: ".tsv",
}
READERS = [
    *((read, write) for read in (read_for_annotate, read_raw_texts) for write in FORMATS),
    (read_for_convert, write_json_lines),
]
JSON_READERS = [reader for reader, write in READERS if write is write_json_lines]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", ["", BOM])
@pytest.mark.parametrize(("read", "write"), READERS)
def test_texts_are_read_unchanged(tmp_path, read, write, bom, end) -> None:
    path = tmp_path / f"a{FORMATS[write]}"
    path.write_bytes((bom + write(TEXTS, end)).encode())
    assert read(path) == TEXTS


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "gb18030"])
@pytest.mark.parametrize(("read", "write"), [reader for reader in READERS if reader[0] is not read_raw_texts])
def test_texts_in_other_encodings_are_read_unchanged(tmp_path, read, write, encoding) -> None:
    bom = "" if encoding in ("utf-16", "utf-32") else BOM  # Python adds it for these encodings
    path = tmp_path / f"a{FORMATS[write]}"
    path.write_bytes((bom + write(TEXTS, "\r\n")).encode(encoding))
    assert read(path, encoding) == TEXTS


@pytest.mark.parametrize("read", JSON_READERS)
@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999", "9" * 300])
def test_invalid_json_numbers_are_ignored(tmp_path, read, number) -> None:
    (tmp_path / "a.jsonl").write_text(write_json_lines(TEXTS, "\n", number), encoding="utf8")
    assert read(tmp_path / "a.jsonl") == TEXTS


@pytest.mark.parametrize("content", ["", BOM, "\n", "\r\n\n", f"{BOM}\n"])
@pytest.mark.parametrize(("read", "write"), READERS)
def test_empty_file_contains_no_texts(tmp_path, read, write, content) -> None:
    path = tmp_path / f"a{FORMATS[write]}"
    path.write_bytes(content.encode())
    assert [text for text in read(path) if text] == []


@pytest.mark.parametrize("damage", [b"\xff", b"\xe4\xba", b"\xed\xa0\x80"])
@pytest.mark.parametrize(("read", "write"), READERS)
def test_invalid_utf8_error_names_line(tmp_path, read, write, damage) -> None:
    path = tmp_path / f"a{FORMATS[write]}"
    path.write_bytes(write(["京", "一二", "京"], "\n").encode().replace("一二".encode(), b"x" + damage + b"y"))
    number = 2 + (FORMATS[write] in (".csv", ".tsv"))
    with pytest.raises(UserError, match=rf"a{FORMATS[write]}:{number}: .*not UTF-8"):
        read(path)


@pytest.mark.parametrize("write", [write_csv, write_tsv])
def test_header_in_other_encoding_raises_error(tmp_path, write) -> None:
    path = tmp_path / f"a{FORMATS[write]}"
    path.write_bytes(write(["京"], "\n").replace("n", "编号", 1).encode("gb18030"))
    with pytest.raises(
        InputError, match=rf"a{FORMATS[write]}:1: .*header is not UTF-8. Set the encoding, for example gb18030"
    ):
        read_for_annotate(path)
    assert read_for_annotate(path, "gb18030") == ["京"]


@pytest.mark.parametrize("line", ['{"text": "a"', '{"text": "a"} x', '"a"', "[", f'{BOM}{{"text": "b"}}', '{"text"'])
@pytest.mark.parametrize("read", JSON_READERS)
def test_invalid_json_error_names_line(tmp_path, read, line) -> None:
    (tmp_path / "a.jsonl").write_text(
        write_json_lines(["京"], "\n") + line + write_json_lines(["京"], "\n"), encoding="utf8"
    )
    with pytest.raises(Exception, match=r"a\.jsonl:2: .*JSON"):
        read(tmp_path / "a.jsonl")


@pytest.mark.parametrize("record", ['{"txt": "a"}', '{"text": 1}', '{"text": null}', '{"text": "\\ud800"}'])
@pytest.mark.parametrize("read", [read_raw_texts, read_for_convert])
def test_missing_text_error_names_line(tmp_path, read, record) -> None:
    (tmp_path / "a.jsonl").write_text(write_json_lines(["京"], "\n") + record, encoding="utf8")
    with pytest.raises(Exception, match=r"a\.jsonl:2: .*(text|surrogate)"):
        read(tmp_path / "a.jsonl")


@pytest.mark.parametrize(
    "arrow_type", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
@pytest.mark.parametrize("n", [0, 1, len(TEXTS)])
def test_parquet_texts_are_read_unchanged(tmp_path, arrow_type, n) -> None:
    pq.write_table(pa.table({"text": pa.array(TEXTS[:n], pa.string()).cast(arrow_type)}), tmp_path / "a.parquet")
    assert read_for_annotate(tmp_path / "a.parquet") == TEXTS[:n]


@pytest.mark.parametrize("read", [read_for_annotate, read_raw_texts])
def test_spacy_file_texts_are_read_unchanged(tmp_path, read) -> None:
    vocab = spacy.blank("zh").vocab
    docs = [Doc(vocab, list(text), spaces=[False] * len(text)) for text in TEXTS]
    DocBin(docs=docs).to_disk(tmp_path / "a.spacy")
    assert read(tmp_path / "a.spacy") == TEXTS
    DocBin().to_disk(tmp_path / "empty.spacy")
    assert read(tmp_path / "empty.spacy") == []
