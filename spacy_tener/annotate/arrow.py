"""Conversion between records and Arrow tables.

Columns of input tables keep their types. For other input, such as JSONL, Arrow infers the types from the first rows. If
a value in a later row does not fit its column's type, the column is null in this row, and the value is written as JSON
to the column `rest`. Used by `output`, to write Parquet, and by `Annotator`, to annotate tables.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from .answers import AnnotateSettings, Answer, Record
from .encoding import dump_json, encodable

REST = "rest"
# Metadata of a column whose values are written as JSON: objects, and values without a common Arrow type.
_JSON = {"format": "json"}


def added_fields(settings: AnnotateSettings) -> list[pa.Field]:
    """Return the Arrow fields of the added columns, which are the same in all batches."""
    entity = [("start", pa.int32()), ("end", pa.int32()), ("label", pa.string()), ("text", pa.string())]
    if settings.probability:
        entity.append(("probability", pa.float64()))
    return [pa.field(settings.entities, pa.list_(pa.struct(entity))), pa.field(settings.error, pa.string())]


def annotated_table(
    rows: pa.Table | pa.RecordBatch, settings: AnnotateSettings, answers: Callable[[Sequence[Any]], list[Answer]]
) -> pa.Table:
    """Return a table with the added columns. Columns of the input are unchanged."""
    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    settings.check_columns(table.column_names)
    texts = values_of(table[settings.text]) if settings.text in table.column_names else [None] * len(table)
    columns = [answer.columns(settings) for answer in answers(texts)]
    for field in added_fields(settings):
        table = table.append_column(field, pa.array([row[field.name] for row in columns], type=field.type))
    return table


def values_of(column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column as Python objects.

    Arrow allows strings with invalid UTF-8, whose invalid bytes become lone surrogates. Python has no times with
    nanoseconds, so these become strings. Durations in nanoseconds become integers.
    """
    plain = _without_nanoseconds(column.type)
    if plain != column.type:
        column = column.cast(plain)
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        values = [
            None if raw is None else raw.decode(errors="surrogateescape")
            for raw in column.cast(pa.large_string()).cast(pa.large_binary()).to_pylist()
        ]
    except OverflowError:  # a date after the year 9999, which Python cannot represent
        values = column.cast(pa.string()).to_pylist()
    return values


def _without_nanoseconds(data_type: pa.DataType) -> pa.DataType:
    """Return a data type with strings and integers in place of times and durations in nanoseconds, at any depth."""
    inner = _without_nanoseconds
    if pa.types.is_dictionary(data_type):
        return inner(data_type.value_type) if inner(data_type.value_type) != data_type.value_type else data_type
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        return (pa.list_ if pa.types.is_list(data_type) else pa.large_list)(inner(data_type.value_type))
    if pa.types.is_struct(data_type):
        return pa.struct([(field.name, inner(field.type)) for field in data_type])
    if pa.types.is_map(data_type):
        return pa.map_(data_type.key_type, inner(data_type.item_type))
    if getattr(data_type, "unit", "") != "ns":
        return data_type
    return pa.int64() if pa.types.is_duration(data_type) else pa.string()


def rows_of_table(table: pa.Table) -> list[Record]:
    """Return the rows of a table as records."""
    columns = [values_of(table[name]) for name in table.column_names]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def schema_of_rows(rows: Sequence[Record], settings: AnnotateSettings) -> pa.Schema:
    """Infer the schema of a file's records, without the added columns, from its first rows."""
    rows = [encodable(row) for row in rows]
    names = list(dict.fromkeys([*(name for row in rows for name in row), settings.text]))
    settings.check_columns(names, settings.prefix + REST)
    fields = {name: _field(name, [row.get(name) for row in rows]) for name in names}
    return pa.schema([*(fields | {settings.text: pa.field(settings.text, pa.string())}).values()])


def table_of_rows(rows: Sequence[Record], schema: pa.Schema, settings: AnnotateSettings) -> pa.Table:
    """Return annotated rows as a table with the columns of a schema, the added columns, and the column `rest`."""
    names = {*schema.names}
    records = [encodable({name: value for name, value in row.items() if name not in settings.added}) for row in rows]
    rest: list[Record] = [{name: value for name, value in row.items() if name not in names} for row in records]
    arrays = [_array(field, [row.get(field.name) for row in records], rest) for field in schema]
    added = added_fields(settings)
    for field in added:
        values = [row[field.name] for row in rows]
        # An error may quote invalid UTF-8. Entities only come from valid texts.
        arrays.append(pa.array(encodable(values) if field.name == settings.error else values, type=field.type))
    arrays.append(pa.array([dump_json(row) if row else None for row in rest], type=pa.string()))
    return pa.Table.from_arrays(arrays, schema=pa.schema([*schema, *added, (settings.prefix + REST, pa.string())]))


def parquet_bytes(table: pa.Table) -> bytes:
    """Return a table as the content of a Parquet file."""
    file = io.BytesIO()
    pq.write_table(table, file, compression="zstd")
    return file.getvalue()


def _field(name: str, values: Sequence[Any]) -> pa.Field:
    """Return the Arrow field for a column of values: JSON if they have no common type, or are objects.

    A struct column would need the same keys in all later rows.
    """
    try:
        inner = found = pa.array(values).type
    except (pa.ArrowException, OverflowError):
        return pa.field(name, pa.string(), metadata=_JSON)
    while pa.types.is_list(inner):
        inner = inner.value_type
    if pa.types.is_struct(inner) or (inner is not found and pa.types.is_null(inner)):
        return pa.field(name, pa.string(), metadata=_JSON)
    return pa.field(name, pa.string() if pa.types.is_null(found) else found)


def _array(field: pa.Field, values: list[Any], rest: list[Record]) -> pa.Array:
    """Return a column. If a value does not fit the type of the column, add it to the row in `rest` and use null."""
    if field.metadata:
        return pa.array([None if value is None else dump_json(value) for value in values], type=field.type)
    try:
        array = pa.array(values, type=field.type)
        if _equal(array.to_pylist(), values):
            return array
    except (pa.ArrowException, OverflowError):
        pass
    fitting = [value if _round_trips(value, field.type) else None for value in values]
    for row, value, fits in zip(rest, values, fitting, strict=True):
        if fits is None and value is not None:
            row[field.name] = value
    return pa.array(fitting, type=field.type)


def _round_trips(value: Any, type: pa.DataType) -> bool:
    """Return whether a value is unchanged after a conversion to an Arrow type and back."""
    if isinstance(value, str):
        return bool(pa.types.is_string(type))
    try:
        return _equal(pa.scalar(value, type=type).as_py(), value)
    except (pa.ArrowException, OverflowError):
        return False


def _equal(a: Any, b: Any) -> bool:
    """Return whether two values are equal, where NaN equals NaN, and True does not equal 1."""
    if isinstance(a, list) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(_equal, a, b))
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b or (a != a and b != b))
