"""Read records from text, JSONL, CSV, Parquet and `.spacy` files, and from standard input.

The command `annotate` uses `read_parts`, which divides the records into parts. Records that cannot be read completely
are yielded as well, so that the command reports them in its output. The commands `silver`, `suggest` and `explain` use
`stream_records`, which yields single records and raises an error if a record cannot be read.
"""

from __future__ import annotations

import csv
import gzip
import itertools
import lzma
import sys
import zlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from spacy.tokens import DocBin
from spacy.vocab import Vocab

from ..errors import InputError, UserError
from ..inputs import (
    FORMATS,
    MAX_LINE_LENGTH,
    SAVE_AS_UTF8,
    STDIN,
    DamagedText,
    check_decoded,
    check_encoding,
    check_text,
    decode_lines,
    decode_whole,
    decompressed,
    find_files,
    format_of,
    open_text,
    parse_object,
    size_and_version,
    suffix_of,
)
from .answers import TEXT_COLUMN, Record

if TYPE_CHECKING:
    import pyarrow as pa

# Size limit for a part, in characters for records and in bytes for tables. The record that reaches the limit is the
# part's last record.
PART_CHARACTERS = 1_000_000
# Parquet files are read as small tables with at most this many rows and bytes, to limit the memory.
_MAX_TABLE_ROWS, _MAX_TABLE_BYTES = 256, 1 << 18


@dataclass(frozen=True)
class Source:
    """An input file.

    address (str): File path.
    size (int): File size in bytes. For compressed files, this is the compressed size.
    version (str): A string that changes when the file is modified.
    """

    address: str
    size: int
    version: str

    @property
    def format(self) -> str:
        """The file format, which is determined from the file extension."""
        return format_of(self.address)


def find_texts(inputs: Sequence[str | Path], output: Path | None = None) -> tuple[list[str], list[str]]:
    """Find all input files in files and directories.

    A path that is passed twice is returned twice.

    inputs (Sequence[Union[str, Path]]): Files, directories, and `-` for standard input.
    output (Optional[Path]): The output directory. Its files are ignored if it is inside an input directory.
    RETURNS (tuple[list[str], list[str]]): The input files, in the order of `inputs`, and the files in directories that
        were skipped because their extension is not supported.
    """
    fix = f"Pass the paths of the files, or rename the files so that they end in one of {', '.join(FORMATS)}."
    files, left_out = find_files(inputs, lambda path: suffix_of(path) in FORMATS, "text", fix)
    if output:
        written = Path(output).resolve()
        files = [file for file in files if not (file.found and written in Path(file.address).resolve().parents)]
    return [file.address for file in files], left_out


def find_sources(inputs: Sequence[str], output: Path | None = None) -> tuple[list[Source], list[str]]:
    """Find all input files with their size and version. See `find_texts`.

    RETURNS (tuple[list[Source], list[str]]): The input files, and the skipped files.
    """
    addresses, left_out = find_texts(inputs, output)
    return [Source(address, *size_and_version(address)) for address in addresses], left_out


@dataclass(frozen=True)
class ReadOptions:
    """Options for reading files.

    encoding (str): Character encoding of text, JSONL and CSV files.
    whole_files (bool): Read each text file as a single text. By default, each line is a text.
    part_size (int): Maximum number of texts in a part. Each part is written to one output file.
    """

    encoding: str = "utf-8"
    whole_files: bool = False
    part_size: int = 10_000

    def __post_init__(self) -> None:
        check_encoding(self.encoding)
        if self.part_size < 1:
            raise UserError(f"part_size must be at least 1, got {self.part_size}", "Use a larger number.")


class _Chunk(NamedTuple):
    """One record, or a small table from a Parquet file.

    content (Union[Record, pa.Table]): The record or the table.
    size (int): Size in characters for a record, or in bytes for a table.
    location (str): File and line number for error messages.
    """

    content: Record | pa.Table
    size: int
    location: str


@dataclass
class Part:
    """A part of the input, which is written to one output file.

    A part contains either records or tables.

    number (int): Index of the part.
    rows (list[Record]): The records, if they are not read from Parquet files.
    tables (list[pa.Table]): Tables from Parquet files. All tables have the same schema.
    position (int): Number of input bytes up to the end of this part, for the progress bar.
    size (int): Total size in characters for records, or in bytes for tables.
    """

    number: int
    rows: list[Record] = field(default_factory=list)
    tables: list[pa.Table] = field(default_factory=list)
    position: int = 0
    size: int = 0

    def __len__(self) -> int:
        return len(self.rows) + sum(map(len, self.tables))

    @property
    def columns(self) -> list[str]:
        """All column names. Damaged records are only considered if there are no other records."""
        row_columns = (str(name) for row in self.readable or self.rows for name in row)
        return list(dict.fromkeys([*row_columns, *(name for table in self.tables for name in table.column_names)]))

    @property
    def readable(self) -> list[Record]:
        """The records that could be read completely. Empty if the part contains tables."""
        return [row for row in self.rows if not any(isinstance(value, DamagedText) for value in row.values())]

    def take(self, content: Record | pa.Table, size: int, limit: int) -> pa.Table | None:
        """Add a record or a table to the part. If the table exceeds the limit, only its first rows are added.

        size (int): Size of the record in characters.
        limit (int): Maximum number of records in the part.
        RETURNS (pa.Table | None): The table rows that were not added.
        """
        if isinstance(content, dict):
            self.rows.append(content)
            self.size += size
            return None
        room = limit - len(self)
        table = content.slice(0, room)
        self.tables.append(table)
        self.size += table.nbytes
        return content.slice(room) if len(content) > room else None

    def fits(self, content: Record | pa.Table) -> bool:
        """Return whether a record or a table can be added to the part.

        A part cannot contain both records and tables, and all its tables must have the same schema.
        """
        if isinstance(content, dict):
            return not self.tables
        return not self.rows and (not self.tables or self.tables[0].schema.equals(content.schema))


def read_parts(sources: Sequence[Source], options: ReadOptions, text: str) -> Iterator[Part]:
    """Yield all records in parts.

    The division is the same in each call, so that a stopped job can be resumed. If a text cannot be read completely, it
    is a `DamagedText`, which is a string that describes the problem.

    text (str): Name of the text column. For file formats without columns, the column with the text gets this name.
    """
    part = Part(0)
    for chunk, position in _read_sources(sources, options, text):
        rest = chunk.content
        while rest is not None:
            if len(part) >= options.part_size or part.size >= PART_CHARACTERS or not part.fits(rest):
                yield part
                part = Part(part.number + 1)
            rest = part.take(rest, chunk.size, options.part_size)
            part.position = position
    if len(part):
        yield part


def stream_records(addresses: Sequence[str]) -> Generator[Record]:
    """Yield all records with a non-empty text. Raise an error if a record cannot be read completely.

    addresses (Sequence[str]): File paths, or `-` for standard input.
    """
    for address in addresses:
        try:
            with nullcontext(sys.stdin.buffer) if address == STDIN else open(address, "rb") as file:
                for chunk in _read(address, file, ReadOptions(), TEXT_COLUMN):
                    yield from _valid_records(chunk)
        except UserError:
            raise
        except Exception as error:  # there is no common base class for the errors of all file formats
            reason = f"cannot be read: {getattr(error, 'strerror', None) or error}"
            raise InputError(address, reason, "Check the path, and that the file is complete.") from error


def _valid_records(chunk: _Chunk) -> Iterator[Record]:
    """Yield the records in a chunk one by one. Records with an empty text are skipped.

    Raise an error if a text could not be read completely.
    """
    if isinstance(chunk.content, dict):
        records = [chunk.content]
    else:
        from .arrow import rows_of_table

        records = rows_of_table(chunk.content)
    for record in records:
        text = check_text(record.get(TEXT_COLUMN))
        if isinstance(text, DamagedText):
            reason = text.reason if text.reason.startswith(chunk.location) else f"{chunk.location}: {text.reason}"
            fix = f'Each record needs a field "{TEXT_COLUMN}" with a text in UTF-8.'
            raise UserError(reason, SAVE_AS_UTF8 if reason.endswith("is not UTF-8") else fix)
        if text and not text.isspace():
            yield record


def _read_sources(sources: Sequence[Source], options: ReadOptions, text: str) -> Iterator[tuple[_Chunk, int]]:
    """Yield the records in all files, each with the number of bytes that have been read so far.

    If a file is damaged, for example a truncated archive, its last record describes the error. If a file cannot be
    opened or read at all, an error is raised.
    """
    offset = 0
    for source in sources:
        try:
            with open(source.address, "rb") as file:
                for chunk in _read(source.address, file, options, text):
                    yield chunk, offset + min(_position(file), source.size)
        except UserError:
            raise
        except Exception as error:
            if not _is_damage(error):
                reason = f"cannot be read: {getattr(error, 'strerror', None) or error}"
                fix = "Check the path, and run the same command again to resume."
                raise InputError(source.address, reason, fix) from error
            reason = f"{source.address}: the file is damaged from here on ({error})"
            record = {text: DamagedText("", reason), "source": source.address}
            yield _Chunk(record, 0, source.address), offset + source.size
        offset += source.size


def _read(address: str, file: IO[bytes], options: ReadOptions, text: str) -> Iterator[_Chunk]:
    """Yield the records in a file. The file format is determined from the file extension."""
    format = format_of(address)
    if format == "parquet":
        yield from _read_parquet(address, file)
        return
    with decompressed(file, address) as stream:
        if format == "spacy":
            yield from _read_spacy(address, stream, text)
        elif format == "csv":
            yield from _read_csv(address, stream, text, options.encoding)
        elif format == "jsonl":
            yield from _read_jsonl(address, stream, text, options.encoding)
        elif options.whole_files:
            content = decode_whole(stream, options.encoding)
            yield _Chunk({text: _with_location(content, address), "source": address}, len(content), address)
        else:
            for number, line in decode_lines(stream, options.encoding):
                location = f"{address}:{number}"
                yield _Chunk(
                    {text: _with_location(line, location), "source": address, "line": number}, len(line) + 1, location
                )


def _read_jsonl(address: str, stream: IO[bytes], text: str, encoding: str) -> Iterator[_Chunk]:
    for number, line in decode_lines(stream, encoding):
        if line and not line.isspace():
            record, location = parse_object(line), f"{address}:{number}"
            if isinstance(record, DamagedText):
                record = {text: _with_location(record, location)}
            yield _Chunk(record, len(line), location)


def _with_location(text: str, location: str) -> str:
    """If a text is a `DamagedText`, add the file and line number to its problem description.

    Other texts are returned unchanged.
    """
    return DamagedText(text, f"{location}: {text.reason}") if isinstance(text, DamagedText) else text


def _read_csv(address: str, stream: IO[bytes], text: str, encoding: str) -> Iterator[_Chunk]:
    """Yield the rows in a CSV or TSV file. The first row must contain the column names.

    All values are strings, so that IDs keep their leading zeros. Quotation marks have no special meaning in TSV files.
    """
    csv.field_size_limit(MAX_LINE_LENGTH)
    with open_text(stream, encoding) as file:
        if suffix_of(address) == ".tsv":
            rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        else:
            rows = csv.reader(file, strict=True)
        header: list[str] | None = None
        while True:
            location = f"{address}:{rows.line_num + 1}"
            try:
                fields = next(rows, None)
            except csv.Error as error:
                reason = f"{location}: the row that begins here is not CSV ({error})"
                yield _Chunk({text: DamagedText("", reason)}, 0, location)
                continue
            if fields is None:
                return
            if header is None:
                names = check_decoded(",".join(fields), encoding, "header")
                if isinstance(names, DamagedText):
                    raise InputError(
                        address, names.reason, "Set the encoding, for example gb18030.", line=rows.line_num
                    )
                header = _distinct(fields) if fields else None
            elif fields:
                record = _csv_record(header, fields, location, text, encoding)
                yield _Chunk(record, sum(map(len, fields)), location)


def _distinct(names: list[str]) -> list[str]:
    """Make column names unique. As in pandas, a number is appended to repeated names: `tag`, `tag.1`."""
    distinct: dict[str, None] = {}
    for name in names:
        numbered = (f"{name}.{number}" for number in itertools.count(1))
        free = (candidate for candidate in numbered if candidate not in {*names, *distinct})
        distinct[name if name not in distinct else next(free)] = None
    return list(distinct)


def _csv_record(header: list[str], fields: list[str], location: str, text: str, encoding: str) -> Record:
    record: Record = dict(zip(header, fields, strict=False))
    if len(fields) != len(header):
        reason = f"{location}: the row has {len(fields)} fields, and the header {len(header)}"
        return {**record, text: DamagedText(",".join(fields), reason)}
    if text in record:
        record[text] = _with_location(check_decoded(record[text], encoding, "text"), location)
    return record


def _read_spacy(address: str, file: IO[bytes], text: str) -> Iterator[_Chunk]:
    """Yield a record for each Doc in a `.spacy` file. The whole file is read into memory.

    The columns are the text and the items of `Doc.user_data`. An item with the same name as the text column, for
    example `text`, is renamed to `user_data.text`.
    """
    for doc in DocBin().from_bytes(file.read()).get_docs(Vocab()):
        columns = {name: value for name, value in doc.user_data.items() if isinstance(name, str)}
        if text in columns:
            columns[f"user_data.{text}"] = columns.pop(text)
        yield _Chunk({text: doc.text, **columns}, len(doc.text), address)


def parquet_columns(source: Source) -> list[str]:
    """Return the column names in a Parquet file.

    If the file is damaged, the list is empty. The damage is reported when the records are read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        names: list[str] = pq.read_schema(source.address).names
    except (pa.ArrowException, OSError):
        return []
    return names


def _read_parquet(address: str, file: IO[bytes]) -> Iterator[_Chunk]:
    """Yield the records in a Parquet file as small tables, so that the column types are preserved."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    parquet = pq.ParquetFile(file)
    schema = parquet.schema_arrow.remove_metadata()
    for batch in parquet.iter_batches(batch_size=_MAX_TABLE_ROWS):
        for table in _split_table(pa.Table.from_batches([batch.replace_schema_metadata()], schema)):
            yield _Chunk(table, table.nbytes, address)


def _split_table(table: pa.Table) -> Iterator[pa.Table]:
    """Split a table into slices of at most `_MAX_TABLE_BYTES` bytes. A single row can be larger."""
    if len(table) <= 1 or table.nbytes <= _MAX_TABLE_BYTES:
        yield table
    else:
        middle = len(table) // 2
        yield from _split_table(table.slice(0, middle))
        yield from _split_table(table.slice(middle))


def _position(file: IO[bytes]) -> int:
    """Return the current position in a file in bytes, or 0 if the position is unknown, for example in a pipe."""
    with suppress(OSError, ValueError):
        return file.tell()
    return 0


def _is_damage(error: Exception) -> bool:
    """Return whether an error is caused by the file content.

    Errors in accessing the file have an `errno`. For damaged data, decompression libraries raise an OSError without
    `errno`, or another exception.
    """
    if isinstance(error, OSError):
        return error.errno is None
    return isinstance(error, (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, ValueError, KeyError, TypeError))
