"""Tables beside annotated records: a row per entity, and the number of documents with each name."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

from ..errors import RemedyError
from ..manifest import Folder
from .reading import Row
from .settings import AnnotateSettings
from .values import dump_json, encodable

PARQUET, CSV, JSONL = "parquet", "csv", "jsonl"
TABLE_FORMATS = (PARQUET, CSV, JSONL)
# Arrow and Spark skip directories whose names begin with an underscore when they read the output, which holds both.
ENTITIES, COUNTS = "_entities", "_counts"
COUNTED_COLUMNS = ("text", "label", "documents", "mentions")
COUNTED = 100_000
"""Most rows in one file of counts."""
_TYPES: dict[str, type] = {"start": int, "end": int, "probability": float, "documents": int, "mentions": int}
_COUNT = """
SELECT text, label, count(DISTINCT document) AS documents, count(*) AS mentions FROM entities
GROUP BY text, label ORDER BY documents DESC, mentions DESC, text, label
"""


def columns_of(settings: AnnotateSettings) -> list[str]:
    return ["document", "start", "end", "text", "label", *(["probability"] if settings.probability else [])]


def entity_rows(part: str, documents: Sequence[Any], entities: Sequence[Sequence[Mapping[str, Any]]]) -> Iterator[Row]:
    """Yield a row for each entity of a part.

    part: The name of the part's file without its ending.
    documents: The document name of each record. A record without one is named by its part and row.
    entities: The entities of each record.
    """
    for row, (name, found) in enumerate(zip(documents, entities, strict=True)):
        document = f"{part}:{row}" if name is None else name if isinstance(name, str) else dump_json(name)
        for each in found:
            yield {"document": encodable(document), **each}


def table_bytes(rows: Sequence[Row], columns: Sequence[str], format: str) -> bytes:
    """Return rows as the content of a file. A column has the same type in every file."""
    if format == PARQUET:
        import pyarrow as pa

        from .tables import parquet_bytes

        types = {str: pa.string(), int: pa.int64(), float: pa.float64()}
        schema = pa.schema([(name, types[_TYPES.get(name, str)]) for name in columns])
        return parquet_bytes(pa.Table.from_pylist(rows, schema=schema))
    if format == JSONL:
        return "".join(f"{dump_json({name: row[name] for name in columns})}\n" for row in rows).encode()
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, columns)
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue().encode()


def read_table(content: bytes, format: str) -> Iterator[Row]:
    """Yield the rows in the content of a file that `table_bytes` made."""
    if format == PARQUET:
        import pyarrow.parquet as pq

        yield from pq.read_table(io.BytesIO(content)).to_pylist()
    elif format == JSONL:
        yield from map(json.loads, io.StringIO(content.decode(), newline="\n"))
    else:
        csv.field_size_limit(max(csv.field_size_limit(), len(content)))  # names of documents may be long
        for row in csv.DictReader(io.StringIO(content.decode(), newline="")):
            numbers = {name: kind(row[name]) if row[name] else None for name, kind in _TYPES.items() if name in row}
            yield {**row, **numbers}


def count_names(folder: Folder, names: Sequence[str], format: str) -> Iterator[list[Row]]:
    """Yield rows with the number of documents and of mentions for each name and label, most documents first.

    Rows come in lists of at most `COUNTED`; without any entity there is one empty list. SQLite sorts on disk, so that
    memory does not grow with the number of names.

    folder, names: The files with the tables of entities.
    """
    with (
        TemporaryDirectory() as scratch,
        closing(sqlite3.connect(Path(scratch) / "entities", isolation_level=None)) as db,
    ):
        try:
            db.execute("CREATE TABLE entities (document TEXT, text TEXT, label TEXT)")
            db.execute("BEGIN")
            for name in names:
                rows = read_table(folder.read(name) or b"", format)
                values = ((row["document"], row["text"], row["label"]) for row in rows)
                db.executemany("INSERT INTO entities VALUES (?, ?, ?)", values)
            db.execute("COMMIT")
            counted, first = db.execute(_COUNT), True
            while (found := counted.fetchmany(COUNTED)) or first:
                yield [dict(zip(COUNTED_COLUMNS, row, strict=True)) for row in found]
                first = False
        except sqlite3.Error as error:
            reason = f"The entities cannot be counted: {error}"
            remedy = f"Free disk space in {gettempdir()}, or set TMPDIR to another directory."
            raise RemedyError(reason, remedy) from error
