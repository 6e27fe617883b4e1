"""Test reading records from all input formats, compressed or not, and the handling of invalid records."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import spacy
from spacy.tokens import Doc, DocBin

from spacy_tener.annotate import records
from spacy_tener.annotate.records import ReadOptions, find_sources, read_parts
from spacy_tener.errors import InputError, UserError
from spacy_tener.inputs import DamagedText

TEXTS = ["王小明去了上海", "", "今天天气很好", " ", "吴重阳在中国银行工作。"]
COMPRESSORS = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: pa.compress(data, codec="zstd", asbytes=True),
}


def read(*inputs, text="text", **options):
    """Return all rows. Rows of tables are converted to dicts."""
    found = read_parts(find_sources([str(path) for path in inputs])[0], ReadOptions(**options), text)
    return [row for part in found for row in [*part.rows, *(row for table in part.tables for row in table.to_pylist())]]


def errors(rows, text="text"):
    return [row[text].reason if isinstance(row.get(text), DamagedText) else None for row in rows]


def as_parquet(texts):
    file = pa.BufferOutputStream()
    pq.write_table(pa.table({"key": range(len(texts)), "text": texts}), file, row_group_size=2)
    return file.getvalue().to_pybytes()


def as_docs(texts):
    vocab = spacy.blank("zh").vocab
    docs = [spacy.blank("zh", vocab=vocab).make_doc(text) for text in texts]
    for key, doc in enumerate(docs):
        doc.user_data["key"] = key
    return DocBin(docs=docs, store_user_data=True).to_bytes()


FORMATS = {
    ".json": lambda: FORMATS[".jsonl"](),
    ".jsonl": lambda: "".join(json.dumps({"key": n, "text": t}) + "\n" for n, t in enumerate(TEXTS)).encode(),
    ".csv": lambda: b"key,text\n" + "".join(f'{n},"{t}"\n' for n, t in enumerate(TEXTS)).encode(),
    ".tsv": lambda: "\ufeffkey\ttext\n".encode() + "".join(f"{n}\t{t}\n" for n, t in enumerate(TEXTS)).encode(),
    ".parquet": lambda: as_parquet(TEXTS),
    ".spacy": lambda: as_docs(TEXTS),
}


@pytest.mark.parametrize(
    ("extension", "compression"),
    [(extension, compression) for extension in FORMATS for compression in COMPRESSORS if extension != ".parquet"]
    + [(".parquet", "")],
)
def test_all_formats_and_compressions_are_readable(tmp_path, extension, compression) -> None:
    path = tmp_path / f"texts{extension}{compression}"
    path.write_bytes(COMPRESSORS[compression](FORMATS[extension]()))
    rows = read(path)
    assert [row["text"] for row in rows] == TEXTS
    assert [int(row["key"]) for row in rows] == list(range(len(TEXTS)))


@pytest.mark.parametrize("encoding", ["utf-8", "gb18030", "utf-16"])
def test_text_file_has_record_per_line_or_per_file(tmp_path, encoding) -> None:
    path = tmp_path / "texts.txt"
    path.write_bytes("\r\n".join(TEXTS).encode(encoding))
    rows = read(path, encoding=encoding)
    assert [row["text"] for row in rows] == TEXTS
    assert [(row["source"], row["line"]) for row in rows] == [(str(path), n + 1) for n in range(len(TEXTS))]
    assert read(path, text="body", encoding=encoding, whole_files=True) == [
        {"body": "\r\n".join(TEXTS), "source": str(path)}
    ]


def test_invalid_json_lines_become_records_with_errors(tmp_path) -> None:
    path = tmp_path / "a.jsonl"
    lines = [b'{"text": "good"}', b'{"text": "half', b"[1]", b"", b'{"text": "\xff"}', b'{"other": 1}', b"[" * 200_000]
    path.write_bytes(b"\n".join([*lines, b'{"text": "\\ud800"}']))
    rows = read(path)
    assert len(rows) == 7
    found = errors(rows)
    assert found[0] is None
    assert f"{path}:2: not valid JSON: Unterminated string" in found[1]
    assert rows[1]["text"] == '{"text": "half'
    assert f"{path}:3: the line is not a JSON object" in found[2]
    assert f"{path}:5: character 11 of the line is not UTF-8" in found[3]
    assert rows[4] == {"other": 1}
    assert "nested too deeply" in found[5]
    assert rows[6] == {"text": "\ud800"}


def test_overlong_line_is_truncated_with_error(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("spacy_tener.inputs.MAX_LINE_LENGTH", 2000)
    path = tmp_path / "a.txt"
    path.write_text(f"one\n{'x' * 7000}\nthree\n{'y' * 1999}\nfive")
    rows = read(path)
    assert [len(row["text"]) for row in rows] == [3, 1000, 5, 1999, 4]
    assert [bool(reason) for reason in errors(rows)] == [False, True, False, False, False]


def test_invalid_csv_rows_become_records_with_errors(tmp_path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'key,text\n1,"a ""b"",\nc"\n2\n3,d,e\n4,\xff\n\n5,f\n')
    rows = read(path)
    assert [row["key"] for row in rows] == ["1", "2", "3", "4", "5"]
    assert [rows[0]["text"], rows[2]["text"], rows[4]["text"]] == ['a "b",\nc', "3,d,e", "f"]
    assert [bool(reason) for reason in errors(rows)] == [False, True, True, True, False]
    assert f"{path}:5: the row has 3 fields, and the header 2" in errors(rows)[2]


@pytest.mark.parametrize("extension", [".jsonl.gz", ".jsonl.zst", ".parquet", ".spacy"])
def test_damaged_file_yields_error_and_next_file_is_read(tmp_path, extension) -> None:
    kind, compression = f".{extension.split('.')[1]}", extension.removeprefix(f".{extension.split('.')[1]}")
    content = COMPRESSORS[compression](FORMATS[kind]())[:-12]
    (tmp_path / f"a{extension}").write_bytes(content)
    (tmp_path / "b.txt").write_text("京")
    rows = read(tmp_path)
    assert "the file is damaged from here on" in errors(rows)[-2]
    assert rows[-1]["text"] == "京"
    sources, _ = find_sources([str(tmp_path)])
    *_, damaged, last = read_parts(sources, ReadOptions(part_size=1), "text")
    assert (damaged.position, last.position) == (len(content), len(content) + len("京".encode()))


def test_missing_or_unsupported_input_raises_error(tmp_path) -> None:
    with pytest.raises(InputError, match=r"missing\.txt: cannot be read: No such file"):
        read(tmp_path / "missing.txt")
    (tmp_path / "a.pdf").write_text("x")
    with pytest.raises(InputError, match="contains no text file, only 1 other file"):
        read(tmp_path)
    with pytest.raises(UserError, match="Unknown encoding"):
        ReadOptions(encoding="latin-99")
    (tmp_path / "a.txt").write_bytes(b"PK\x03\x04")
    with pytest.raises(InputError, match="is a zip archive"):
        read(tmp_path / "a.txt")


def test_directory_yields_supported_files_in_order(tmp_path) -> None:
    for name in ("b/2.txt", "a/1.csv", "c.jsonl", "d.pdf", "e.json", ".hidden.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(FORMATS[".csv"]() if name.endswith("csv") else b'{"text": "x"}')
    sources, left_out = find_sources([str(tmp_path)])
    assert [source.address.removeprefix(f"{tmp_path}/") for source in sources] == ["a/1.csv", "b/2.txt", "c.jsonl"]
    assert left_out == [str(tmp_path / "d.pdf"), str(tmp_path / "e.json")]
    assert [row["text"] for row in read(tmp_path)] == [*TEXTS, '{"text": "x"}', "x"]


def test_parts_have_bounded_size_and_stay_in_order(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(records, "PART_CHARACTERS", 2000)
    table = pa.table({"key": range(1000), "text": ["x" * (n % 7) for n in range(1000)]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=300)
    (tmp_path / "b.txt").write_text("".join(f"{'y' * (900 if n % 50 == 0 else 3)}\n" for n in range(1000)))
    sources, _ = find_sources([str(tmp_path)])
    found = list(read_parts(sources, ReadOptions(part_size=70), "text"))
    assert [part.number for part in found] == list(range(len(found)))
    assert all(1 <= len(part) <= 70 for part in found)
    assert all(part.rows == [] or part.tables == [] for part in found)
    assert max(sum(len(row["text"]) for row in part.rows) for part in found) < 2000 + 900
    keys = [key for part in found for table in part.tables for key in table["key"].to_pylist()]
    assert keys == list(range(1000))
    assert [row["line"] for part in found for row in part.rows] == list(range(1, 1001))
    assert [part.position for part in found] == sorted(part.position for part in found)
    assert found[-1].position == sum(source.size for source in sources)


def test_parquet_parts_are_limited_by_text_length(tmp_path) -> None:
    texts = ["x" * 900_000] * 5 + ["y"] * 10
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet")
    found = read_parts(find_sources([str(tmp_path)])[0], ReadOptions(), "text")
    sizes = [[len(table) for table in part.tables] for part in found]
    assert [sum(size) for size in sizes] == [2, 2, 11]


def test_named_pipe_raises_error(tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match=r"pipe: is a pipe or a device, which can be read only once"):
        read(tmp_path / "pipe")


def test_duplicate_csv_column_names_get_suffixes(tmp_path) -> None:
    (tmp_path / "a.csv").write_text("text,tag,tag,tag.1,tag\nx,1,2,3,4\n")
    assert read(tmp_path / "a.csv") == [{"text": "x", "tag": "1", "tag.2": "2", "tag.1": "3", "tag.3": "4"}]


def test_unclosed_csv_quote_error_names_the_opening_line(tmp_path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('key,text\n1,"two\nlines"\n2,"opens\n' + "3,x\n" * 1000)
    first, second = read(path)
    assert (first["key"], first["text"]) == ("1", "two\nlines")
    assert f"{path}:4: the row that begins here is not CSV (unexpected end of data)" in errors([second])[0]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32-le", "gb18030", "utf-8"])
@pytest.mark.parametrize("options", [{}, {"whole_files": True}])
def test_truncated_multibyte_character_is_an_error(tmp_path, encoding, options) -> None:
    (tmp_path / "a.txt").write_bytes("上海\n京".encode(encoding)[:-1])
    *before, last = errors(read(tmp_path / "a.txt", encoding=encoding, **options))
    assert before == [None] * (not options)
    assert f"is not {encoding.upper()}" in last


def test_user_data_does_not_override_doc_text(tmp_path) -> None:
    doc = Doc(spacy.blank("zh").vocab, ["上海"], spaces=[False])
    doc.user_data |= {"text": "other", "key": "k", ("._.", "x", None, None): 1}
    DocBin(docs=[doc], store_user_data=True).to_disk(tmp_path / "a.spacy")
    assert read(tmp_path / "a.spacy") == [{"text": "上海", "user_data.text": "other", "key": "k"}]
    assert read(tmp_path / "a.spacy", text="body") == [{"body": "上海", "text": "other", "key": "k"}]
