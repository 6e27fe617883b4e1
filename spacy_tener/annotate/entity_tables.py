"""The table beside annotated records, with a row per entity."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .encoding import dump_json, dump_jsonl, encodable
from .settings import AnnotateSettings, Record

PARQUET, CSV, JSONL = "parquet", "csv", "jsonl"
TABLE_FORMATS = (PARQUET, CSV, JSONL)
ENTITIES = "_entities"
"""Its directory in the output, which Arrow and Spark skip, for the underscore, when they read the output."""


def columns_of(settings: AnnotateSettings) -> list[str]:
    return ["document", "start", "end", "text", "label", *(["probability"] if settings.probability else [])]


def entity_rows(
    part: str, documents: Sequence[Any], entities: Sequence[Sequence[Mapping[str, Any]]]
) -> Iterator[Record]:
    """Yield a row for each entity of a part.

    part (str): The name of the part's file without its ending.
    documents (Sequence[Any]): The document name of each record. A record without one is named by its part and row.
    entities (Sequence[Sequence[Mapping[str, Any]]]): The entities of each record.
    """
    for row, (name, found) in enumerate(zip(documents, entities, strict=True)):
        document = f"{part}:{row}" if name is None else name if isinstance(name, str) else dump_json(name)
        for entity in found:
            yield {"document": encodable(document), **entity}


def table_bytes(rows: Sequence[Record], columns: Sequence[str], format: str) -> bytes:
    """Return rows as the content of a file. A column has the same type in every file."""
    if format == PARQUET:
        import pyarrow as pa

        from .arrow import parquet_bytes

        types = {"start": pa.int64(), "end": pa.int64(), "probability": pa.float64()}
        schema = pa.schema([(name, types.get(name, pa.string())) for name in columns])
        return parquet_bytes(pa.Table.from_pylist(rows, schema=schema))
    if format == JSONL:
        return dump_jsonl({name: row[name] for name in columns} for row in rows).encode()
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, columns)
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue().encode()
