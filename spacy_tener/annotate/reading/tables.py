"""Records from Parquet, as tables, so that all their columns keep their types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

from ...errors import RemedyError

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = 256
"""Rows that are taken out of a file at once."""
_SIZE = 1 << 18  # bytes of a table that is not halved


def read_parquet(file: IO[bytes]) -> Iterator[tuple[pa.Table, int]]:
    """Small tables and their sizes in bytes, in order."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise RemedyError("Reading Parquet needs pyarrow", "pip install 'spacy_tener[annotate]'") from error
    parquet = pq.ParquetFile(file)
    schema = parquet.schema_arrow.remove_metadata()
    for batch in parquet.iter_batches(batch_size=ROWS):
        for table in _halves(pa.Table.from_batches([batch.replace_schema_metadata()], schema)):
            yield table, table.nbytes


def _halves(table: pa.Table) -> Iterator[pa.Table]:
    """A table in pieces of bounded size, as far as its rows allow."""
    if len(table) <= 1 or table.nbytes <= _SIZE:
        yield table
    else:
        middle = len(table) // 2
        yield from _halves(table.slice(0, middle))
        yield from _halves(table.slice(middle))
