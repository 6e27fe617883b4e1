"""A row for each entity beside the records."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from archives import read_output, write_jsonl
from hypothesis import given, settings
from hypothesis import strategies as st

from spacy_tener.annotate import AnnotateSettings
from spacy_tener.annotate.entity_tables import (
    TABLE_FORMATS,
    columns_of,
    entity_rows,
    table_bytes,
)
from spacy_tener.annotate.records import find_sources
from spacy_tener.errors import RemedyError

TEXTS = ["王小明去了上海", "", "今天天气很好", "上海的王小明和上海的吴重阳"]

# What UTF-8 holds: tabs, quotes, ends of lines and line separators among it.
strings = st.text(
    st.one_of(st.sampled_from('\t\n\r",\x00\x85\u2028京😂'), st.characters(codec="utf-8")), min_size=1, max_size=8
)
rows = st.lists(
    st.fixed_dictionaries(
        {
            "document": strings | st.just(""),
            "start": st.integers(0, 10**9),
            "end": st.integers(0, 10**9),
            "text": strings,
            "label": strings,
            "probability": st.floats(0, 1),
        }
    ),
    max_size=6,
)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "in.jsonl", TEXTS)


def read_table(content: bytes, format: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file's content."""
    if format == "parquet":
        yield from pq.read_table(io.BytesIO(content)).to_pylist()
    elif format == "jsonl":
        yield from map(json.loads, io.StringIO(content.decode(), newline="\n"))
    else:
        types = {"start": int, "end": int, "probability": float}
        for row in csv.DictReader(io.StringIO(content.decode(), newline="")):
            yield {name: types.get(name, str)(value) for name, value in row.items()}


def tables(folder: Path) -> list[dict[str, Any]]:
    return [row for path in sorted(folder.glob("part-*")) for row in read_table(path.read_bytes(), path.suffix[1:])]


@pytest.mark.parametrize("format", TABLE_FORMATS)
@pytest.mark.parametrize("records", ["jsonl", "parquet", "spacy"])
def test_there_is_a_row_for_each_entity_of_each_record(tmp_path, archive, run, nlp, records, format) -> None:
    total = run([archive], tmp_path / "out", records, probability=True, entities=format, part_size=3)
    expected = [
        {"document": f"part-0000{key // 3}:{key % 3}", **entity}
        for key, row in enumerate(read_output(tmp_path / "out", nlp))
        for entity in row["entities"]
    ]
    assert len(expected) == total.entities > 2
    assert tables(tmp_path / "out" / "_entities") == expected


def test_columns_have_the_same_types_in_each_part(tmp_path, archive, run) -> None:
    run([archive], tmp_path / "out", "parquet", entities="parquet", part_size=1)
    folder = tmp_path / "out" / "_entities"
    assert [len(pq.read_table(path)) > 0 for path in sorted(folder.iterdir())] == [True, False, False, True]
    assert {str(pq.read_schema(path)) for path in folder.iterdir()} == {
        "document: string\nstart: int64\nend: int64\ntext: string\nlabel: string"
    }
    # Whoever reads the directory of the records gets records only, this command too.
    assert [Path(source.address).name for source in find_sources([str(tmp_path / "out")])[0]] == [
        f"part-0000{number}.parquet" for number in range(4)
    ]
    assert pq.read_table(tmp_path / "out")["text"].to_pylist() == TEXTS
    assert len(pq.read_table(folder)) == sum(map(len, pq.read_table(tmp_path / "out")["entities"].to_pylist()))


@pytest.mark.parametrize("format", TABLE_FORMATS)
@settings(max_examples=20)
@given(rows=rows)
def test_what_is_written_is_read_back(format: str, rows: list[dict[str, Any]]) -> None:
    columns = columns_of(AnnotateSettings(probability=True))
    assert list(read_table(table_bytes(rows, columns, format), format)) == rows


def test_documents_have_the_name_of_a_column(tmp_path, run) -> None:
    names = ["a", None, 7, [1, "京"], "\ud800", ""]
    (tmp_path / "in.jsonl").write_text("".join(f"{json.dumps({'text': '去上海', 'id': name})}\n" for name in names))
    run([tmp_path / "in.jsonl"], tmp_path / "out", entities="csv", document="id")
    found = [row["document"] for row in tables(tmp_path / "out" / "_entities")]
    assert found == ["a", "part-00000:1", "7", '[1, "京"]', "\\ud800", ""]
    run([tmp_path / "in.jsonl"], tmp_path / "tables", "parquet", entities="csv", document="text")
    assert {row["document"] for row in tables(tmp_path / "tables" / "_entities")} == {"去上海"}
    with pytest.raises(RemedyError, match=r"no column 'key'\. Their columns are: text, id\. Choose one by --document"):
        run([tmp_path / "in.jsonl"], tmp_path / "other", entities="csv", document="key")
    assert not (tmp_path / "other").exists()


def test_documents_have_their_names_where_the_column_of_the_records_cannot_hold_them(tmp_path, run) -> None:
    lines = [json.dumps({"text": "去了上海", "id": name}) for name in (1, 2, "a3", "2026")]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    run([tmp_path / "in.jsonl"], tmp_path / "out", "parquet", entities="jsonl", document="id", part_size=2)
    assert [row["document"] for row in tables(tmp_path / "out" / "_entities")] == ["1", "2", "a3", "2026"]


def test_a_part_without_its_table_or_its_records_is_made_again(tmp_path, archive, run) -> None:
    out = tmp_path / "out"
    run([archive], out, entities="jsonl", part_size=1)
    before = {path: path.read_bytes() for path in out.rglob("part-*")}
    assert len(before) == 8
    (out / "_entities" / "part-00000.jsonl").unlink()
    (out / "part-00003.jsonl").unlink()
    (out / "_entities" / ".part-00001.jsonl.1.tmp").write_text("half")
    (out / "mine").mkdir()
    (out / "mine" / ".notes.tmp").write_text("not ours")
    parts: list[tuple[int, bool]] = []
    run(
        [archive],
        out,
        entities="jsonl",
        part_size=1,
        watch=lambda part, _, is_old: parts.append((part.number, is_old)),
    )
    assert sorted(parts) == [(0, False), (1, True), (2, True), (3, False)]
    assert {path: path.read_bytes() for path in out.rglob("*part-*")} == before
    assert (out / "mine" / ".notes.tmp").exists()
    with pytest.raises(RemedyError, match='other inputs or settings: entities: was "jsonl", is "csv"'):
        run([archive], out, entities="csv", part_size=1)


def test_a_place_that_cannot_be_written_is_named_and_the_records_are_not_finished(tmp_path, archive, run) -> None:
    out = tmp_path / "out"
    run([archive], out, entities="csv", part_size=4)
    (out / "part-00000.jsonl").unlink()
    (out / "_entities" / "part-00000.csv").unlink()
    (out / "_entities").rmdir()
    (out / "_entities").write_text("in the way")
    with pytest.raises(RemedyError, match="_entities: not a directory"):
        run([archive], out, entities="csv", part_size=4)
    assert not list(out.glob("part-*"))


def test_an_address_holds_the_table_like_a_directory(archive, run) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    try:
        total = run([archive], "memory://tables/out/", entities="csv")
        content = memory.cat_file("/tables/out/_entities/part-00000.csv")
        assert len(list(read_table(content, "csv"))) == total.entities > 2
    finally:
        memory.rm("/tables", recursive=True)


def test_rows_come_in_the_order_of_the_records() -> None:
    found = entity_rows("part-00001", ["x", None], [[{"start": 0}, {"start": 3}], [{"start": 1}]])
    assert [(row["document"], row["start"]) for row in found] == [("x", 0), ("x", 3), ("part-00001:1", 1)]
