"""Records as tables of Arrow: the columns that are there stay as they are, and those of the answers have one schema."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from .answers import Answer
from .settings import Settings


def added_fields(settings: Settings) -> list[pa.Field]:
    """The columns that are added, with their types, which are the same in each batch."""
    entity = [("start", pa.int32()), ("end", pa.int32()), ("label", pa.string()), ("text", pa.string())]
    if settings.probability:
        entity.append(("probability", pa.float64()))
    entities = pa.list_(pa.struct(entity))
    types = {
        settings.entities: entities,
        settings.readings: pa.list_(pa.struct([("probability", pa.float64()), ("entities", entities)])),
        settings.error: pa.string(),
    }
    return [pa.field(name, types[name]) for name in settings.added]


def output_schema(schema: pa.Schema, settings: Settings) -> pa.Schema:
    """The schema of annotated records, from that of the records."""
    settings.check_columns(schema.names)
    return pa.schema([*schema, *added_fields(settings)], metadata=schema.metadata)


def annotated_table(
    rows: pa.Table | pa.RecordBatch, settings: Settings, answers: Callable[[Sequence[Any]], list[Answer]]
) -> pa.Table:
    """A table with the answers to its texts as further columns."""
    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    schema = output_schema(table.schema, settings)
    texts = values_of(table[settings.text]) if settings.text in table.column_names else [None] * len(table)
    columns = [each.columns(settings) for each in answers(texts)]
    added = [pa.array([row[field.name] for row in columns], type=field.type) for field in added_fields(settings)]
    return pa.Table.from_arrays([*table.columns, *added], schema=schema)


def values_of(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column. Arrow checks no strings: bytes that are no UTF-8 become halves of surrogate pairs."""
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        values = [
            None if raw is None else raw.decode(errors="surrogateescape")
            for raw in column.cast(pa.large_string()).cast(pa.large_binary()).to_pylist()
        ]
    return values


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """A table as dicts."""
    columns = [values_of(table[name]) for name in table.column_names]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]
