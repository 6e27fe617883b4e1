"""One part of an output: annotated, written, counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..reading.parts import Part
from ..writing.encoding import JSONL, PARQUET, jsonl_bytes, spacy_bytes
from ..writing.folders import open_folder
from ..writing.record import Counts
from .job import Job

if TYPE_CHECKING:
    import pyarrow as pa


def make(job: Job, name: str, part: Part, schema: pa.Schema | None) -> Counts:
    """Annotate a part and write it.

    schema: That of the part's rows, where they become a table.
    """
    content, counts = _table(job, part, schema) if job.format == PARQUET else _rows(job, part)
    open_folder(job.output).write(name, content)
    return counts


def _table(job: Job, part: Part, schema: pa.Schema | None) -> tuple[bytes, Counts]:
    import pyarrow as pa

    from ..tables import values_of
    from ..writing.columns import as_table, parquet_bytes

    settings = job.annotator.settings
    if part.rows:
        table = as_table(job.annotator(part.rows), schema, settings)
    else:
        table = job.annotator(pa.concat_tables(part.tables))
    texts = values_of(table[settings.text]) if settings.text in table.column_names else []
    entities = len(table) and sum(map(len, table[settings.entities].to_pylist()))
    errors = len(table) - table[settings.error].null_count
    return parquet_bytes(table), Counts(len(table), _characters(texts), entities, errors)


def _rows(job: Job, part: Part) -> tuple[bytes, Counts]:
    settings = job.annotator.settings
    rows = job.annotator(part.rows or _rows_of_tables(part.tables))
    counts = Counts(
        len(rows),
        _characters([row.get(settings.text) for row in rows]),
        sum(len(row[settings.entities]) for row in rows),
        sum(row[settings.error] is not None for row in rows),
    )
    return (jsonl_bytes(rows) if job.format == JSONL else spacy_bytes(rows, job.annotator.nlp, settings)), counts


def _rows_of_tables(tables: Sequence[pa.Table]) -> list[dict[str, Any]]:
    from ..tables import rows_of

    return [row for table in tables for row in rows_of(table)]


def _characters(texts: Sequence[Any]) -> int:
    return sum(len(text) for text in texts if isinstance(text, str))
