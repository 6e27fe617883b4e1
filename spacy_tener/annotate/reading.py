"""Records of files (text, JSONL, CSV, Parquet, `.spacy`), read in parts of bounded size, the same at each call."""

from __future__ import annotations

import csv
import gzip
import itertools
import lzma
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from spacy.tokens import DocBin
from spacy.vocab import Vocab

from ..errors import InputError, RemedyError
from ..inputs import (
    FORMATS,
    MAX_LINE_LENGTH,
    DamagedText,
    check_decoded,
    check_encoding,
    decode_lines,
    decode_whole,
    decompressed,
    find_files,
    format_of,
    is_remote,
    open_raw,
    open_text,
    parse_object,
    size_and_version,
    suffix_of,
)

if TYPE_CHECKING:
    import pyarrow as pa

PART_CHARACTERS = 1_000_000
"""Characters (bytes of tables) after which a part ends, whatever its number of texts."""
_TABLE_ROWS, _TABLE_BYTES = 256, 1 << 18  # most rows and bytes of the pieces in which Parquet is read

Row = dict[str, Any]


@dataclass(frozen=True)
class Source:
    """A file to read. size: in bytes, compressed if the file is. version: changes when the file does."""

    address: str
    size: int
    version: str

    @property
    def format(self) -> str:
        """The format, by the ending of the name."""
        return format_of(self.address)


def find_sources(inputs: Sequence[str], output: str | None = None) -> tuple[list[Source], list[str]]:
    """Return the files to read, in order, and those in directories that are left out: files with unknown endings, and
    files below a directory whose name begins with an underscore, as the tables of entities in an output.

    output: The directory of the output. Its files are skipped where it lies in a directory of inputs.
    """
    remedy = f"Name the files themselves, or give them one of the endings {', '.join(FORMATS)}."
    files, left_out = find_files(inputs, lambda path: suffix_of(path) in FORMATS, "text", remedy)
    files = [file for file in files if not (output and file.found and _is_below(file.address, output))]
    beside = [
        file.address for file in files if file.found and any(name[0] == "_" for name in Path(file.name).parts[:-1])
    ]
    sources = [Source(file.address, *size_and_version(file.address)) for file in files if file.address not in beside]
    return sources, [*left_out, *beside]


def _is_below(address: str, directory: str) -> bool:
    if is_remote(address) or is_remote(directory):
        return address.startswith(directory.rstrip("/") + "/")
    return Path(directory).resolve() in Path(address).resolve().parents


@dataclass(frozen=True)
class ReadOptions:
    """Options of reading.

    encoding: The encoding of text files, JSONL and CSV.
    whole_files: Read a text file as one text, instead of one per line.
    part_size: Most texts of a part.
    """

    encoding: str = "utf-8"
    whole_files: bool = False
    part_size: int = 10_000

    def __post_init__(self) -> None:
        check_encoding(self.encoding)
        if self.part_size < 1:
            raise RemedyError(f"part_size = {self.part_size}", "Give 1 or more.")


@dataclass
class Part:
    """Records that are annotated and written together. position: Bytes of the input read up to its last record."""

    number: int
    rows: list[Row] = field(default_factory=list)
    tables: list[pa.Table] = field(default_factory=list)
    position: int = 0
    size: int = 0

    def __len__(self) -> int:
        return len(self.rows) + sum(map(len, self.tables))

    @property
    def columns(self) -> list[str]:
        """The names of the columns of all records that could be read, or if none could, of all."""
        of_rows = (str(name) for row in self._readable or self.rows for name in row)
        return list(dict.fromkeys([*of_rows, *(name for table in self.tables for name in table.column_names)]))

    @property
    def _readable(self) -> list[Row]:
        return [row for row in self.rows if not any(isinstance(value, DamagedText) for value in row.values())]

    def without_records(self) -> Part:
        return Part(self.number, position=self.position)

    def take(self, piece: Row | pa.Table, size: int, most: int) -> pa.Table | None:
        """Add a row, or the rows of a table up to `most` rows in the part. Returns the rest of the table, if any."""
        if isinstance(piece, dict):
            self.rows.append(piece)
            self.size += size
            return None
        room = most - len(self)
        taken = piece.slice(0, room)
        self.tables.append(taken)
        self.size += taken.nbytes
        return piece.slice(room) if len(piece) > room else None

    def goes_with(self, piece: Row | pa.Table) -> bool:
        """Return whether a piece fits the others in the part: a row to rows, a table to tables of the same columns."""
        if isinstance(piece, dict):
            return not self.tables
        return not self.rows and (not self.tables or self.tables[0].schema.equals(piece.schema))


def read_parts(sources: Sequence[Source], options: ReadOptions, text: str) -> Iterator[Part]:
    """Yield all records in parts. text: The name of the text's column, also for files that have no columns."""
    part = Part(0)
    for piece, size, position in _pieces(sources, options, text):
        rest = piece
        while rest is not None:
            if len(part) >= options.part_size or part.size >= PART_CHARACTERS or not part.goes_with(rest):
                yield part
                part = Part(part.number + 1)
            rest = part.take(rest, size, options.part_size)
            part.position = position
    if len(part):
        yield part


def _pieces(sources: Sequence[Source], options: ReadOptions, text: str) -> Iterator[tuple[Any, int, int]]:
    """Yield the rows and small tables of all files, each with its size and the bytes of the input read so far."""
    before = 0
    for source in sources:
        try:
            with open_raw(source.address) as file:
                for piece, size in _read(source, file, options, text):
                    yield piece, size, before + min(_tell(file), source.size)
        except RemedyError:
            raise
        except Exception as error:
            if not _is_damage(error):
                reason = f"cannot be read: {getattr(error, 'strerror', None) or error}"
                remedy = "Check the address, then run the same command again: it resumes."
                raise InputError(source.address, reason, remedy) from error
            reason = f"{source.address}: the file is damaged from here on ({error})"
            yield {text: DamagedText("", reason), "source": source.address}, 0, before + source.size
        before += source.size


def _read(source: Source, file: IO[bytes], options: ReadOptions, text: str) -> Iterator[tuple[Any, int]]:
    if source.format == "parquet":
        yield from _read_parquet(file)
        return
    with decompressed(file, source.address) as stream:
        if source.format == "spacy":
            yield from _read_spacy(stream, text)
        elif source.format == "csv":
            yield from _read_csv(stream, source.address, text, options.encoding)
        elif source.format == "jsonl":
            for number, line in decode_lines(stream, options.encoding):
                if line and not line.isspace():
                    row = parse_object(line)
                    if isinstance(row, DamagedText):
                        row = {text: _placed(row, f"{source.address}:{number}")}
                    yield row, len(line)
        elif options.whole_files:
            whole = decode_whole(stream, options.encoding)
            yield {text: _placed(whole, source.address), "source": source.address}, len(whole)
        else:
            for number, line in decode_lines(stream, options.encoding):
                place = f"{source.address}:{number}"
                yield {text: _placed(line, place), "source": source.address, "line": number}, len(line) + 1


def _placed(text: str, place: str) -> str:
    """Return a text. If it is damaged, add its file and line to the reason."""
    return DamagedText(text, f"{place}: {text.reason}") if isinstance(text, DamagedText) else text


def _read_csv(stream: IO[bytes], source: str, text: str, encoding: str) -> Iterator[tuple[Row, int]]:
    """Yield the rows of a CSV file, or of a TSV file if its name ends so. The first row names the columns.

    Values stay strings, since an identifier may begin with zeros. In TSV, quotes have no special meaning.
    """
    csv.field_size_limit(MAX_LINE_LENGTH)
    with open_text(stream, encoding) as file:
        if suffix_of(source) == ".tsv":
            rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        else:
            rows = csv.reader(file, strict=True)
        header: list[str] | None = None
        while True:
            place = f"{source}:{rows.line_num + 1}"
            try:
                fields = next(rows, None)
            except csv.Error as error:
                yield {text: DamagedText("", f"{place}: the row that begins here is not CSV ({error})")}, 0
                continue
            if fields is None:
                return
            if header is None:
                names = check_decoded(",".join(fields), encoding, "header")
                if isinstance(names, DamagedText):
                    raise InputError(source, names.reason, "Name its encoding, as gb18030.", line=rows.line_num)
                header = _distinct(fields) if fields else None
            elif fields:
                yield _csv_row(header, fields, place, text, encoding), sum(map(len, fields))


def _distinct(names: list[str]) -> list[str]:
    """Return the names of columns, with repeated ones numbered as in pandas: `tag`, `tag.1`."""
    found: dict[str, None] = {}
    for name in names:
        numbered = (f"{name}.{number}" for number in itertools.count(1))
        found[name if name not in found else next(each for each in numbered if each not in {*names, *found})] = None
    return list(found)


def _csv_row(header: list[str], fields: list[str], place: str, text: str, encoding: str) -> Row:
    row: Row = dict(zip(header, fields, strict=False))
    if len(fields) != len(header):
        reason = f"{place}: the row has {len(fields)} fields, and the header {len(header)}"
        return {**row, text: DamagedText(",".join(fields), reason)}
    return {**row, text: _placed(check_decoded(row[text], encoding, "text"), place)} if text in row else row


def _read_spacy(file: IO[bytes], text: str) -> Iterator[tuple[Row, int]]:
    """Yield each Doc's text, and the columns in its `user_data`. A file is one piece, and is read whole.

    A column of the text's own name comes as `user_data.text`, but from a Doc without a token: such has the text that
    could not be read.
    """
    for doc in DocBin().from_bytes(file.read()).get_docs(Vocab()):
        row = {name: value for name, value in doc.user_data.items() if isinstance(name, str)}
        if len(doc) and text in row:
            row[f"user_data.{text}"] = row.pop(text)
        yield {text: doc.text, **row}, len(doc.text)


def parquet_columns(source: Source) -> list[str]:
    """Return the names of the columns of a Parquet file; none if it is damaged, which reading it reports."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with open_raw(source.address) as file:
            names: list[str] = pq.read_schema(file).names
    except (pa.ArrowException, OSError):
        return []
    return names


def _read_parquet(file: IO[bytes]) -> Iterator[tuple[pa.Table, int]]:
    """Yield small tables and their sizes in bytes, in order. Unlike rows, tables keep the types of their columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    parquet = pq.ParquetFile(file)
    schema = parquet.schema_arrow.remove_metadata()
    for batch in parquet.iter_batches(batch_size=_TABLE_ROWS):
        for table in _halves(pa.Table.from_batches([batch.replace_schema_metadata()], schema)):
            yield table, table.nbytes


def _halves(table: pa.Table) -> Iterator[pa.Table]:
    """Yield a table in pieces of at most `_TABLE_BYTES`, or of one larger row."""
    if len(table) <= 1 or table.nbytes <= _TABLE_BYTES:
        yield table
    else:
        middle = len(table) // 2
        yield from _halves(table.slice(0, middle))
        yield from _halves(table.slice(middle))


def _tell(file: IO[bytes]) -> int:
    with suppress(OSError, ValueError):
        return file.tell()
    return 0


def _is_damage(error: Exception) -> bool:
    """Return whether an error means a damaged file, rather than a file that cannot be reached."""
    if isinstance(error, OSError):
        return error.errno is None
    return isinstance(error, (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, ValueError, KeyError, TypeError))
