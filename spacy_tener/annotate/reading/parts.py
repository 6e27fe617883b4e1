"""All records of some files, in order, in parts of bounded size, which are the same with every call."""

from __future__ import annotations

import gzip
import io
import lzma
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, cast

from ...errors import InputError, RemedyError
from ...inputs import check_encoding, decompressed
from ..damaged import Damaged
from .addresses import TEXT, WHOLE, Source
from .docs import read_spacy
from .lines import read_csv, read_jsonl, read_text, read_whole
from .tables import read_parquet

if TYPE_CHECKING:
    import pyarrow as pa

SIZE = 1_000_000
"""Characters of a part (bytes of a table), behind which it ends though it may hold more texts."""

_LINES = {TEXT: read_text, WHOLE: read_whole, "jsonl": read_jsonl, "csv": read_csv}


@dataclass(frozen=True)
class Reading:
    """How files are read.

    encoding: That of text files, JSONL and CSV.
    whole_files: Whether a text file is one text, rather than one on each line.
    part_size: Most texts of a part.
    """

    encoding: str = "utf-8"
    whole_files: bool = False
    part_size: int = 10_000

    def __post_init__(self) -> None:
        check_encoding(self.encoding)
        if self.part_size < 1:
            raise RemedyError(f"part_size = {self.part_size}", "Give each part one text or more.")


@dataclass
class Part:
    """Records that are annotated and written together. position: bytes of the input up to the last of them."""

    number: int
    rows: list[dict[str, Any]] = field(default_factory=list)
    tables: list[pa.Table] = field(default_factory=list)
    position: int = 0
    size: int = 0

    def __len__(self) -> int:
        return len(self.rows) + sum(map(len, self.tables))

    @property
    def columns(self) -> list[str]:
        """The names of all columns of its records."""
        of_rows = (str(name) for row in self.rows for name in row)
        return list(dict.fromkeys([*of_rows, *(name for table in self.tables for name in table.column_names)]))

    def emptied(self) -> Part:
        """The part without its records."""
        return Part(self.number, position=self.position)

    def take(self, piece: dict[str, Any] | pa.Table, size: int, most: int) -> pa.Table | None:
        """Add a row, or as much of a table as there is room for among `most`. Returns the rest of it, if any."""
        if isinstance(piece, dict):
            self.rows.append(piece)
            self.size += size
            return None
        room = most - len(self)
        taken = piece.slice(0, room)
        self.tables.append(taken)
        self.size += taken.nbytes
        return piece.slice(room) if len(piece) > room else None

    def goes_with(self, piece: dict[str, Any] | pa.Table) -> bool:
        """Whether a piece is of the kind of those in the part: a row, or a table of the same columns."""
        if isinstance(piece, dict):
            return not self.tables
        return not self.rows and (not self.tables or self.tables[0].schema.equals(piece.schema))


def read_parts(sources: Sequence[Source], reading: Reading, text: str) -> Iterator[Part]:
    """The parts of all records. text: the column of the text, or what it is called where the file has no columns."""
    part = Part(0)
    for piece, size, position in _pieces(sources, reading, text):
        rest = piece
        while rest is not None:
            if len(part) >= reading.part_size or part.size >= SIZE or not part.goes_with(rest):
                yield part
                part = Part(part.number + 1)
            rest = part.take(rest, size, reading.part_size)
            part.position = position
    if len(part):
        yield part


def _pieces(sources: Sequence[Source], reading: Reading, text: str) -> Iterator[tuple[Any, int, int]]:
    """Rows and small tables of all files, their sizes, and the bytes of the input up to them."""
    before = 0
    for source in sources:
        try:
            with source.open() as file:
                for piece, size in _read(source, file, reading, text):
                    yield piece, size, before + min(_tell(file), source.size)
        except RemedyError:
            raise
        except Exception as error:
            if not _is_damage(error):
                reason = f"cannot be read: {getattr(error, 'strerror', None) or error}"
                remedy = "Check the address. The same command goes on behind what is written."
                raise InputError(source.address, reason, remedy) from error
            reason = f"{source.address}: the file is damaged from here on ({error})"
            yield {text: Damaged("", reason), "source": source.address}, 0, before + source.size
        before += source.size


def _read(source: Source, file: IO[bytes], reading: Reading, text: str) -> Iterator[tuple[Any, int]]:
    if source.format == "parquet":
        yield from read_parquet(file)
        return
    with ExitStack() as stack:
        buffered = file if isinstance(file, io.BufferedReader) else io.BufferedReader(cast(io.RawIOBase, file))
        stream = stack.enter_context(decompressed(buffered, source.address))
        if source.format == "spacy":
            yield from read_spacy(stream, text)
        else:
            kind = WHOLE if source.format == TEXT and reading.whole_files else source.format
            yield from _LINES[kind](stream, source.address, text, reading.encoding)


def _tell(file: IO[bytes]) -> int:
    with suppress(OSError, ValueError):
        return file.tell()
    return 0


def _is_damage(error: Exception) -> bool:
    """Whether a file is not as its format wants, rather than out of reach."""
    if isinstance(error, OSError):
        return error.errno is None
    return isinstance(error, (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, ValueError, KeyError, TypeError))
