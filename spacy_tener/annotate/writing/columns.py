"""Rows without a schema, such as those of JSONL, as tables: all parts of an output have the same columns and types."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..settings import Settings
from ..tables import added_fields, output_schema
from .json_values import as_json, encodable

REST = "rest"


def schema_of(rows: Sequence[dict[str, Any]], settings: Settings) -> pa.Schema:
    """The types of rows before they are annotated, by some of them. What has no type of its own becomes JSON."""
    names = dict.fromkeys(name for row in rows for name in row) | {settings.text: None}
    types = {name: _type([row.get(name) for row in rows]) for name in names} | {settings.text: pa.string()}
    return pa.schema([pa.field(name, types[name]) for name in names])


def _type(values: Sequence[Any]) -> pa.DataType:
    if any(isinstance(value, dict) for value in values):
        return pa.string()
    try:
        found = pa.array([encodable(value) for value in values]).type
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return pa.string()
    simple = not pa.types.is_nested(found) or (pa.types.is_list(found) and not pa.types.is_nested(found.value_type))
    return found if simple and not pa.types.is_null(found) else pa.string()


def as_table(rows: Sequence[dict[str, Any]], schema: pa.Schema, settings: Settings) -> pa.Table:
    """Annotated rows as a table. What does not fit into a column's type, or has no column, is in `rest` as JSON."""
    rest: list[dict[str, Any]] = [
        {name: value for name, value in row.items() if name not in schema.names and name not in settings.added}
        for row in rows
    ]
    arrays = [_array([row.get(field.name) for row in rows], field, rest) for field in schema]
    added = added_fields(settings)
    arrays += [pa.array([_sayable(row[field.name]) for row in rows], type=field.type) for field in added]
    arrays.append(pa.array([encodable(as_json(row)) if row else None for row in rest], type=pa.string()))
    return pa.Table.from_arrays(arrays, schema=output_schema_of_rows(schema, settings))


def output_schema_of_rows(schema: pa.Schema, settings: Settings) -> pa.Schema:
    """The schema of annotated rows, from that of the rows."""
    return pa.schema([*output_schema(schema, settings), pa.field(settings.prefix + REST, pa.string())])


def _sayable(value: Any) -> Any:
    """An error may repeat what no UTF-8 can hold; entities are of texts that it can."""
    return encodable(value) if isinstance(value, str) else value


def _array(values: list[Any], field: pa.Field, rest: list[dict[str, Any]]) -> pa.Array:
    values = [encodable(value) for value in values]
    if pa.types.is_string(field.type):
        return pa.array([_string(value) for value in values], type=field.type)
    try:
        return pa.array(values, type=field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array([_fitting(*pair, field, rest) for pair in enumerate(values)], type=field.type)


def _string(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else as_json(value)


def _fitting(place: int, value: Any, field: pa.Field, rest: list[dict[str, Any]]) -> Any:
    try:
        pa.array([value], type=field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        rest[place][field.name] = value
        return None
    return value


def parquet_bytes(table: pa.Table) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file, compression="zstd")
    return file.getvalue()
