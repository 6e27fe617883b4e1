"""Every reader of texts on every kind of file: the same texts, or a refusal that names the line."""

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
from spacy_tener.errors import InputError, RemedyError
from spacy_tener.inputs import DamagedText

MARK = "\ufeff"
# Quotes, emoji, marks that combine with what is before them, and characters that some take for ends of lines.
TEXTS = [
    "王小明去了上海",
    '他说:"好", 走',
    '"京',
    "😀𠮷 e\u0301\u0301 👨\u200d👩\u200d👧 \u200fא",
    "\u0301a\u00a0b\u2028c\x85d\x0ce" + MARK,
    "京",
]


def annotated(path: Path, encoding: str = "utf-8") -> list[str]:
    """Read as `annotate` does. Where it goes on behind a damaged record, this raises the error in its row."""
    rows: list[dict[str, Any]] = []
    for part in read_parts(find_sources([str(path)])[0], ReadOptions(encoding=encoding), "text"):
        rows += [*part.rows, *(row for table in part.tables for row in rows_of_table(table))]
    texts = [row["text"] for row in rows]
    for text in texts:
        if isinstance(text, DamagedText):
            raise InputError(str(path), text.reason, "")
    return texts


def raw(path: Path) -> list[str]:
    """Read as `silver`, `suggest` and `trim` do."""
    return [record["text"] for record in stream_records([str(path)])]


def converted(path: Path, encoding: str = "utf-8") -> list[str]:
    """Read as `convert` does."""
    return [text.text for text in CorpusReader(path, CorpusOptions(format="jsonl", encoding=encoding))]  # type: ignore[union-attr]


def lines_of(texts: list[str], end: str) -> str:
    return "".join(f"{text}{end}" for text in texts)


def json_lines(texts: list[str], end: str, number: str = "0") -> str:
    spelled = [json.dumps(text, ensure_ascii=False) for text in texts]
    return lines_of([f'{{"text": {text}, "label": [], "number": {number}}}' for text in spelled], end)


def comma_separated(texts: list[str], end: str, quoting: int = csv.QUOTE_MINIMAL) -> str:
    file = io.StringIO(newline="")
    csv.writer(file, lineterminator=end, quoting=quoting).writerows([["text", "n"], *([text, 0] for text in texts)])
    return file.getvalue()


def quoted(texts: list[str], end: str) -> str:
    return comma_separated(texts, end, csv.QUOTE_ALL)


def tab_separated(texts: list[str], end: str) -> str:
    return lines_of(["text\tn", *(f"{text}\t0" for text in texts)], end)


Written = Callable[[list[str], str], str]
FORMATS: dict[Written, str] = {
    lines_of: ".txt",
    json_lines: ".jsonl",
    comma_separated: ".csv",
    quoted: ".csv",
    tab_separated: ".tsv",
}
READERS = [*((read, written) for read in (annotated, raw) for written in FORMATS), (converted, json_lines)]
OF_JSON = [reader for reader, written in READERS if written is json_lines]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", MARK])
@pytest.mark.parametrize(("read", "written"), READERS)
def test_texts_are_read_as_they_are(tmp_path, read, written, mark, end) -> None:
    path = tmp_path / f"a{FORMATS[written]}"
    path.write_bytes((mark + written(TEXTS, end)).encode())
    assert read(path) == TEXTS


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "gb18030"])
@pytest.mark.parametrize(("read", "written"), [reader for reader in READERS if reader[0] is not raw])
def test_texts_of_other_encodings_are_the_same(tmp_path, read, written, encoding) -> None:
    mark = "" if encoding in ("utf-16", "utf-32") else MARK  # which Python writes itself for these
    path = tmp_path / f"a{FORMATS[written]}"
    path.write_bytes((mark + written(TEXTS, "\r\n")).encode(encoding))
    assert read(path, encoding) == TEXTS


@pytest.mark.parametrize("read", OF_JSON)
@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999", "9" * 300])
def test_numbers_that_json_lacks_are_of_no_account(tmp_path, read, number) -> None:
    (tmp_path / "a.jsonl").write_text(json_lines(TEXTS, "\n", number), encoding="utf8")
    assert read(tmp_path / "a.jsonl") == TEXTS


@pytest.mark.parametrize("content", ["", MARK, "\n", "\r\n\n", f"{MARK}\n"])
@pytest.mark.parametrize(("read", "written"), READERS)
def test_there_is_no_text_in_an_empty_file(tmp_path, read, written, content) -> None:
    path = tmp_path / f"a{FORMATS[written]}"
    path.write_bytes(content.encode())
    assert [text for text in read(path) if text] == []


@pytest.mark.parametrize("damage", [b"\xff", b"\xe4\xba", b"\xed\xa0\x80"])
@pytest.mark.parametrize(("read", "written"), READERS)
def test_the_line_of_bytes_that_are_not_utf8_is_named(tmp_path, read, written, damage) -> None:
    path = tmp_path / f"a{FORMATS[written]}"
    path.write_bytes(written(["京", "一二", "京"], "\n").encode().replace("一二".encode(), b"x" + damage + b"y"))
    number = 2 + (FORMATS[written] in (".csv", ".tsv"))
    with pytest.raises(RemedyError, match=rf"a{FORMATS[written]}:{number}: .*not UTF-8"):
        read(path)


@pytest.mark.parametrize("written", [comma_separated, tab_separated])
def test_a_header_in_another_encoding_is_refused(tmp_path, written) -> None:
    path = tmp_path / f"a{FORMATS[written]}"
    path.write_bytes(written(["京"], "\n").replace("n", "编号", 1).encode("gb18030"))
    with pytest.raises(
        InputError, match=rf"a{FORMATS[written]}:1: .*header is not UTF-8. Set the encoding, for example gb18030"
    ):
        annotated(path)
    assert annotated(path, "gb18030") == ["京"]


@pytest.mark.parametrize("line", ['{"text": "a"', '{"text": "a"} x', '"a"', "[", f'{MARK}{{"text": "b"}}', '{"text"'])
@pytest.mark.parametrize("read", OF_JSON)
def test_the_line_of_a_record_that_is_not_json_is_named(tmp_path, read, line) -> None:
    (tmp_path / "a.jsonl").write_text(json_lines(["京"], "\n") + line + json_lines(["京"], "\n"), encoding="utf8")
    with pytest.raises(Exception, match=r"a\.jsonl:2: .*JSON"):
        read(tmp_path / "a.jsonl")


@pytest.mark.parametrize("record", ['{"txt": "a"}', '{"text": 1}', '{"text": null}', '{"text": "\\ud800"}'])
@pytest.mark.parametrize("read", [raw, converted])
def test_the_line_of_a_record_without_a_text_is_named(tmp_path, read, record) -> None:
    (tmp_path / "a.jsonl").write_text(json_lines(["京"], "\n") + record, encoding="utf8")
    with pytest.raises(Exception, match=r"a\.jsonl:2: .*(text|surrogate)"):
        read(tmp_path / "a.jsonl")


@pytest.mark.parametrize(
    "of", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
@pytest.mark.parametrize("n", [0, 1, len(TEXTS)])
def test_texts_of_tables_are_the_same(tmp_path, of, n) -> None:
    pq.write_table(pa.table({"text": pa.array(TEXTS[:n], pa.string()).cast(of)}), tmp_path / "a.parquet")
    assert annotated(tmp_path / "a.parquet") == TEXTS[:n]


@pytest.mark.parametrize("read", [annotated, raw])
def test_texts_of_docs_are_the_same(tmp_path, read) -> None:
    vocab = spacy.blank("zh").vocab
    docs = [Doc(vocab, list(text), spaces=[False] * len(text)) for text in TEXTS]
    DocBin(docs=docs).to_disk(tmp_path / "a.spacy")
    assert read(tmp_path / "a.spacy") == TEXTS
    DocBin().to_disk(tmp_path / "empty.spacy")
    assert read(tmp_path / "empty.spacy") == []
