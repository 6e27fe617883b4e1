"""Conversion between records and Arrow tables.

`output` uses this module to write Parquet files, and the `Annotator` uses it to annotate tables.

Tables keep their column types. For records from other formats, such as JSONL, the column types are inferred from the
first records. If a later value does not have its column's type, the value is replaced by null and saved as JSON in the
additional column `rest`.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from .answers import AnnotateSettings, Answer, Record
from .encoding import dump_json, encodable

# Name of the output column for values that do not have their column's type.
REST = "rest"
# Field metadata that marks a column with JSON strings. Dicts and values of different types are stored in such a column.
_JSON = {"format": "json"}


def added_fields(settings: AnnotateSettings) -> list[pa.Field]:
    """Return the Arrow fields of the output columns `entities` and `error`."""
    entity = [("start", pa.int32()), ("end", pa.int32()), ("label", pa.string()), ("text", pa.string())]
    if settings.probability:
        entity.append(("probability", pa.float64()))
    return [pa.field(settings.entities, pa.list_(pa.struct(entity))), pa.field(settings.error, pa.string())]


def annotated_table(
    rows: pa.Table | pa.RecordBatch, settings: AnnotateSettings, answers: Callable[[Sequence[Any]], list[Answer]]
) -> pa.Table:
    """Append the columns `entities` and `error` to a table.

    answers (Callable[[Sequence[Any]], list[Answer]]): The function that annotates the texts.
    """
    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    settings.check_columns(table.column_names)
    texts = values_of(table[settings.text]) if settings.text in table.column_names else [None] * len(table)
    columns = [answer.columns(settings) for answer in answers(texts)]
    for field in added_fields(settings):
        table = table.append_column(field, pa.array([row[field.name] for row in columns], type=field.type))
    return table


def values_of(column: pa.ChunkedArray) -> list[Any]:
    """Return a column's values as Python objects.

    Timestamps and times with nanosecond precision become strings, and durations in nanoseconds become integers, because
    `datetime` types have no nanoseconds. Bytes that are not valid UTF-8 become lone surrogates.
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
    except OverflowError:  # `datetime` cannot represent dates after the year 9999
        values = column.cast(pa.string()).to_pylist()
    return values


def _without_nanoseconds(data_type: pa.DataType) -> pa.DataType:
    """Replace nanosecond types in an Arrow data type: timestamps and times by strings, durations by integers.

    Types inside lists, structs, maps and dictionaries are replaced, too.
    """
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
    """Return a table's rows as records."""
    columns = [values_of(table[name]) for name in table.column_names]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def schema_of_rows(rows: Sequence[Record], settings: AnnotateSettings) -> pa.Schema:
    """Infer the Arrow schema of the input columns from the first records."""
    rows = [encodable(row) for row in rows]
    names = list(dict.fromkeys([*(name for row in rows for name in row), settings.text]))
    settings.check_columns(names, settings.prefix + REST)
    fields = {name: _field(name, [row.get(name) for row in rows]) for name in names}
    return pa.schema([*(fields | {settings.text: pa.field(settings.text, pa.string())}).values()])


def table_of_rows(rows: Sequence[Record], schema: pa.Schema, settings: AnnotateSettings) -> pa.Table:
    """Convert annotated records to a table.

    The table has the input columns of the schema, the columns `entities` and `error`, and the column `rest` with the
    values that do not fit the schema.
    """
    names = {*schema.names}
    records = [encodable({name: value for name, value in row.items() if name not in settings.added}) for row in rows]
    rest: list[Record] = [{name: value for name, value in row.items() if name not in names} for row in records]
    arrays = [_array(field, [row.get(field.name) for row in records], rest) for field in schema]
    added = added_fields(settings)
    for field in added:
        values = [row[field.name] for row in rows]
        # Error messages can quote text with invalid UTF-8. Entities come from valid texts and need no conversion.
        arrays.append(pa.array(encodable(values) if field.name == settings.error else values, type=field.type))
    arrays.append(pa.array([dump_json(row) if row else None for row in rest], type=pa.string()))
    return pa.Table.from_arrays(arrays, schema=pa.schema([*schema, *added, (settings.prefix + REST, pa.string())]))


def parquet_bytes(table: pa.Table) -> bytes:
    """Serialize a table in the Parquet format."""
    file = io.BytesIO()
    pq.write_table(table, file, compression="zstd")
    return file.getvalue()


def _field(name: str, values: Sequence[Any]) -> pa.Field:
    """Infer a column's Arrow field from its values.

    Values of different types are stored as JSON strings. So are dicts, because later records may have other keys than
    the fields of an Arrow struct.
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
    """Convert a column's values to an Arrow array.

    Values that do not have the column's type are replaced by null.

    rest (list[Record]): One dict per record, to which the replaced values are added.
    """
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
    """Return whether a value can be converted to an Arrow type without loss."""
    if isinstance(value, str):
        return bool(pa.types.is_string(type))
    try:
        return _equal(pa.scalar(value, type=type).as_py(), value)
    except (pa.ArrowException, OverflowError):
        return False


def _equal(a: Any, b: Any) -> bool:
    """Return whether two values are equal. In contrast to `==`, NaN is equal to NaN, and True is not equal to 1."""
    if isinstance(a, list) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(_equal, a, b))
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b or (a != a and b != b))
