"""Find and open input files: plain or compressed, in any encoding, or from standard input.

    with open_file("texts.jsonl.gz") as (stream, _):
        for number, line in decode_lines(stream, "utf-8"):
            record = parse_object(line)

Invalid text or JSON doesn't raise an exception here. It is returned as `DamagedText` with the reason, and the caller
decides what to do: most raise an `InputError`, `convert` reports all errors of a file together, and `annotate` writes a
row with the error.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import itertools
import json
import lzma
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from .errors import InputError, RemedyError, counted, install

STDIN = "-"
PLAIN_TEXT = "text"
# Formats by file name suffix.
FORMATS = {
    **dict.fromkeys((".txt", ".text"), PLAIN_TEXT),
    **dict.fromkeys((".jsonl", ".ndjson"), "jsonl"),
    **dict.fromkeys((".csv", ".tsv"), "csv"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    ".spacy": "spacy",
}
COMPRESSED = frozenset({".gz", ".bz2", ".xz", ".zst"})
# Maximum number of characters in a line. Binary files may have much longer lines, which would fill the memory.
MAX_LINE_LENGTH = 1 << 26
SAVE_AS_UTF8 = "Save the file as UTF-8. `tener convert` and `tener annotate` support others: `--encoding gb18030`."
_SHOWN_CHARACTERS = 1000  # Number of characters returned from a line that is too long.
_BUFFER = 1 << 20
_ZIP = b"PK\x03\x04"
_BYTES_AS_SURROGATES = "spacy_tener.bytes_as_surrogates"


class DamagedText(str):
    """A string that could not be read or parsed completely.

    It contains the valid part of the text. `reason` describes the problem.
    """

    reason: str

    def __new__(cls, text: str, reason: str) -> DamagedText:
        new = super().__new__(cls, text)
        new.reason = reason
        return new

    def __reduce__(self) -> tuple[Any, ...]:
        return DamagedText, (str(self), self.reason)


@dataclass(frozen=True)
class InputFile:
    """An input file.

    address (str): Path of the file, or `-` for standard input.
    name (str): Path relative to the input directory. For a file that is itself an input, its file name.
    found (bool): Whether the file was found in an input directory.
    """

    address: str
    name: str
    found: bool = False


# Files


def suffix_of(path: str | Path) -> str:
    """Return the suffix that determines the format, without the suffix of a compression: `.jsonl` for `x.jsonl.gz`."""
    path = Path(path)
    return Path(path.stem).suffix if path.suffix in COMPRESSED else path.suffix


def format_of(path: str | Path) -> str:
    """Return the format of a file by its suffix. Files with unknown suffixes are plain text, with one text on each
    line.

    A `.json` file is read as JSONL if the user passes its path. In directories it is ignored, since it often contains
    metadata.
    """
    suffix = suffix_of(path)
    return "jsonl" if suffix == ".json" else FORMATS.get(suffix, PLAIN_TEXT)


def walk(directory: Path, is_wanted: Callable[[Path], bool]) -> tuple[list[Path], list[Path]]:
    """Return the wanted files and all other files in a directory tree, both sorted. Hidden files are ignored."""
    wanted: list[Path] = []
    unwanted: list[Path] = []
    for path in sorted(directory.rglob("*")):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(directory).parts):
            (wanted if is_wanted(path) else unwanted).append(path)
    return wanted, unwanted


def find_files(
    inputs: Iterable[str | Path], is_wanted: Callable[[Path], bool], what: str, remedy: str
) -> tuple[list[InputFile], list[str]]:
    """Return the input files in the given order, and the ignored files of directories.

    All wanted files in a directory tree are returned. A path that occurs twice is returned twice.

    inputs (Iterable[str | Path]): Paths of files and directories, or `-`.
    is_wanted (Callable[[Path], bool]): Returns whether a file in a directory is an input.
    what (str): Description of the wanted files, for the error about a directory without any.
    remedy (str): How to fix this error.
    """
    files: list[InputFile] = []
    skipped: list[str] = []
    for address in map(str, inputs):
        if address != STDIN and Path(address).is_dir():
            paths, other_paths = walk(Path(address), is_wanted)
            wanted = [InputFile(str(path), str(path.relative_to(address)), True) for path in paths]
            unwanted = list(map(str, other_paths))
        else:
            wanted, unwanted = [InputFile(address, Path(address).name)], []
        if not wanted:
            raise InputError(address, f"no {what} among its {counted(len(unwanted), 'file')}", remedy)
        files += wanted
        skipped += unwanted
    return files, skipped


def size_and_version(address: str) -> tuple[int, str]:
    """Return the size of a file on disk, and a string that changes if the file is modified."""
    try:
        status = os.stat(address)
    except FileNotFoundError as error:
        raise InputError(address, "cannot be read: No such file or directory", "Check the path.") from error
    if not stat.S_ISREG(status.st_mode):
        raise InputError(
            address, "is a pipe or a device, which can be read only once", "Write its content to a file first."
        )
    return status.st_size, str(status.st_mtime_ns)


@contextmanager
def open_file(address: str | Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Open a file and yield its decompressed stream, and the file itself, whose position shows the progress.

    Raises an InputError if the file cannot be read.
    """
    try:
        with open(address, "rb") as file, decompressed(file, str(address)) as stream:
            yield stream, file
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        remedy = "Check the path, and that the file is complete."
        raise InputError(str(address), f"cannot be read: {reason}", remedy) from error


@contextmanager
def decompressed(file: IO[bytes], source: str) -> Iterator[IO[bytes]]:
    """Yield the decompressed stream of an open file, or the file itself if it isn't compressed.

    The compression is detected by the first bytes, since file names may be wrong and standard input has none.
    """
    buffered = file if isinstance(file, io.BufferedReader) else io.BufferedReader(cast(io.RawIOBase, file), _BUFFER)
    start = buffered.peek(_BUFFER)
    if start.startswith(_ZIP):
        raise InputError(source, "is a zip archive", "Extract it, and use the file inside.")
    decompress = next((reader for magic, reader in _DECOMPRESSORS.items() if start.startswith(magic)), None)
    if decompress is None:
        yield buffered
    else:
        with io.BufferedReader(cast(io.RawIOBase, decompress(buffered)), _BUFFER) as stream:
            yield stream


def _zstd(packed: IO[bytes]) -> Any:
    """Return a decompressor for zstandard. Raises a RemedyError if pyarrow isn't installed."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise RemedyError("Reading .zst needs pyarrow", install("pyarrow")) from error
    return pa.CompressedInputStream(pa.PythonFile(packed, mode="r"), "zstd")


_DECOMPRESSORS: dict[bytes, Callable[[IO[bytes]], Any]] = {
    b"\x1f\x8b": lambda packed: gzip.GzipFile(fileobj=packed),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": lzma.LZMAFile,
    b"\x28\xb5\x2f\xfd": _zstd,
}


# Text


def check_encoding(encoding: str) -> str:
    """Return Python's name of a text encoding. Raises a RemedyError if it is unknown."""
    try:
        b" ".decode(encoding, _BYTES_AS_SURROGATES)  # Raises an error for codecs that don't encode text, such as hex.
        return codecs.lookup(encoding).name
    except (LookupError, UnicodeError) as error:
        raise RemedyError(f"Unknown encoding '{encoding}'", "Use utf-8, gb18030, big5, utf-16, ...") from error


def read_lines(path: str | Path, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """Yield the lines of a file, numbered from 1. Raises an InputError for lines that are not valid text.

    path (str | Path): Path of the file, or `-` for standard input.
    """
    for number, line in _decode_file(path, encoding):
        reason, remedy = "", "Save the file as plain text."
        if isinstance(line, DamagedText):
            reason = line.reason
            remedy = SAVE_AS_UTF8
        elif "\0" in line:
            reason = "the line contains a NUL byte"
        elif "\r" in line:
            reason, remedy = "the line contains a carriage return before its end", "End lines with \\n or \\r\\n."
        if reason:
            raise InputError(str(path), reason, remedy, line=number)
        yield number, line


def _decode_file(path: str | Path, encoding: str) -> Iterator[tuple[int, str]]:
    if str(path) == STDIN:
        with decompressed(sys.stdin.buffer, STDIN) as stream:
            yield from decode_lines(stream, encoding)
    else:
        with open_file(path) as (stream, _):
            yield from decode_lines(stream, encoding)


def decode_lines(stream: IO[bytes], encoding: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a stream without line ends and byte order mark, numbered from 1.

    A line that cannot be decoded, or that is too long, is yielded as DamagedText.
    """
    with open_text(stream, encoding) as file:
        for number in itertools.count(1):
            line = file.readline(MAX_LINE_LENGTH)
            if not line:
                return
            if len(line) == MAX_LINE_LENGTH and not line.endswith("\n"):
                while (rest := file.readline(MAX_LINE_LENGTH)) and not rest.endswith("\n"):
                    pass
                yield (
                    number,
                    DamagedText(line[:_SHOWN_CHARACTERS], f"the line is longer than {MAX_LINE_LENGTH} characters"),
                )
                continue
            yield number, check_decoded(line.removesuffix("\n").removesuffix("\r"), encoding)


def decode_whole(stream: IO[bytes], encoding: str) -> str:
    """Return the text of a stream with its original line ends, without a byte order mark."""
    with open_text(stream, encoding) as file:
        return check_decoded(file.read(), encoding, "text")


def check_decoded(text: str, encoding: str, what: str = "line") -> str:
    """Return a text from `open_text`, as DamagedText if some of its bytes could not be decoded."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return DamagedText(text, f"character {error.start + 1} of the {what} is not {encoding.upper()}")
    return text


@contextmanager
def open_text(stream: IO[bytes], encoding: str) -> Iterator[io.TextIOWrapper]:
    """Yield a text stream without a byte order mark. Bytes that cannot be decoded become lone surrogates."""
    decoder_reads_mark = bool("".encode(encoding))  # Encodings such as utf-16 write, and skip, a byte order mark.
    mark = b"" if decoder_reads_mark else "\ufeff".encode(encoding, errors="ignore")
    if mark and cast(io.BufferedReader, stream).peek(len(mark)).startswith(mark):
        stream.read(len(mark))
    file = io.TextIOWrapper(stream, encoding, errors=_BYTES_AS_SURROGATES, newline="\n")
    try:
        yield file
    finally:
        file.detach()  # Otherwise the wrapper would close the stream, which belongs to the caller.


def _bytes_as_surrogates(error: UnicodeError) -> tuple[str, int]:
    """Replace bytes that cannot be decoded with lone surrogates.

    Python's error handler `surrogateescape` does the same, but only for bytes above 127, which isn't enough for UTF-16.
    """
    assert isinstance(error, UnicodeDecodeError)
    return "".join(chr(0xDC00 + byte) for byte in error.object[error.start : error.end]), error.end


codecs.register_error(_BYTES_AS_SURROGATES, _bytes_as_surrogates)


def check_text(value: Any) -> str:
    """Return the text of a record, as DamagedText if it is missing, not a string, or cannot be encoded as UTF-8."""
    if isinstance(value, DamagedText):
        return value
    if not isinstance(value, str):
        return DamagedText("", "there is no text" if value is None else f"the text is of type {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        return DamagedText(value, f"character {error.start + 1} of the text is half of a surrogate pair")
    return value


# JSON


def parse_json(text: str) -> Any:
    """Return a parsed JSON value, or DamagedText if the string isn't valid JSON."""
    if isinstance(text, DamagedText):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        return DamagedText(text, json_fault(error))


def parse_object(text: str) -> dict[str, Any] | DamagedText:
    """Return a parsed JSON object, or DamagedText if the line isn't a JSON object."""
    value = parse_json(text)
    if isinstance(value, (dict, DamagedText)):
        return value
    return DamagedText(text, "the line is not a JSON object")


def json_fault(error: Exception) -> str:
    """Return the reason why a string isn't valid JSON."""
    if isinstance(error, json.JSONDecodeError):
        return f"not valid JSON: {error.msg} at column {error.colno}"
    deep = isinstance(error, RecursionError)
    return f"not valid JSON: {'nested too deeply' if deep else 'a number of more than 4,000 digits'}"
