"""Find, open and decode input files. Files can be compressed, use any encoding, or be read from standard input.

    with open_file("texts.jsonl.gz") as (stream, _):
        for number, line in decode_lines(stream, "utf-8"):
            record = parse_object(line)

Text that cannot be decoded or parsed does not raise an exception. It is returned as a `DamagedText` with the reason, so
that each command can choose how to handle the error. Most commands raise an `InputError`. `convert` reports all errors
in a file at once, and `annotate` writes each error to its output.
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

from .errors import InputError, UserError, install, pluralize

STDIN = "-"
PLAIN_TEXT = "text"
# File format for each supported file name suffix.
FORMATS = {
    **dict.fromkeys((".txt", ".text"), PLAIN_TEXT),
    **dict.fromkeys((".jsonl", ".ndjson"), "jsonl"),
    **dict.fromkeys((".csv", ".tsv"), "csv"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    ".spacy": "spacy",
}
COMPRESSED = frozenset({".gz", ".bz2", ".xz", ".zst"})
# Maximum line length in characters. This limits the memory for binary files, which may not contain line breaks.
MAX_LINE_LENGTH = 1 << 26
SAVE_AS_UTF8 = (
    "Save the file as UTF-8. `tener convert` and `tener annotate` support other encodings: `--encoding gb18030`."
)
_SHOWN_CHARACTERS = 1000  # Number of characters to return from a line that is too long.
_BUFFER = 1 << 20
_ZIP = b"PK\x03\x04"
_BYTES_AS_SURROGATES = "spacy_tener.bytes_as_surrogates"


class DamagedText(str):
    """A string that could not be decoded or parsed completely.

    The string contains the part of the input that could be read. The attribute `reason` describes the error.
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

    address (str): File path, or `-` for standard input.
    name (str): File path relative to the input directory. If the user passed the file's own path, the file name.
    found (bool): Whether the file was found in an input directory.
    """

    address: str
    name: str
    found: bool = False


# Functions that find and open files


def suffix_of(path: str | Path) -> str:
    """Return the file name suffix, ignoring a compression suffix such as `.gz`.

    For example, return `.jsonl` for `x.jsonl.gz`.
    """
    path = Path(path)
    return Path(path.stem).suffix if path.suffix in COMPRESSED else path.suffix


def format_of(path: str | Path) -> str:
    """Return the file format that belongs to a file name suffix.

    Files with unknown suffixes are treated as plain text with one text per line, and `.json` files as JSONL. In input
    directories, `.json` files are ignored, since they often contain metadata.
    """
    suffix = suffix_of(path)
    return "jsonl" if suffix == ".json" else FORMATS.get(suffix, PLAIN_TEXT)


def walk(directory: Path, is_wanted: Callable[[Path], bool]) -> tuple[list[Path], list[Path]]:
    """Search a directory tree for files that match a condition. Return these files, and all other files separately.

    Hidden files are ignored.

    directory (Path): The directory.
    is_wanted (Callable[[Path], bool]): The condition.
    RETURNS (tuple[list[Path], list[Path]]): The paths of all matching files, and those of all other files. Both are
        sorted.
    """
    wanted: list[Path] = []
    unwanted: list[Path] = []
    for path in sorted(directory.rglob("*")):
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(directory).parts):
            (wanted if is_wanted(path) else unwanted).append(path)
    return wanted, unwanted


def find_files(
    inputs: Iterable[str | Path], is_wanted: Callable[[Path], bool], what: str, fix: str
) -> tuple[list[InputFile], list[str]]:
    """Find all input files in the given files and directories.

    Directories are searched recursively. If a path is given twice, its files are returned twice. Raises an InputError
    if a directory contains no input files.

    inputs (Iterable[str | Path]): File and directory paths, or `-` for standard input.
    is_wanted (Callable[[Path], bool]): Function that returns whether a file in a directory is an input file.
    what (str): Description of the input files, for the error message.
    fix (str): How to fix the error, for the error message.
    RETURNS (tuple[list[InputFile], list[str]]): The input files, and the paths of all other files in the directories.
    """
    files: list[InputFile] = []
    skipped: list[str] = []
    for address in map(str, inputs):
        # Unlike `Path.is_dir`, this raises no error, for example for a path that is too long.
        if address != STDIN and os.path.isdir(address):
            paths, other_paths = walk(Path(address), is_wanted)
            wanted = [InputFile(str(path), str(path.relative_to(address)), True) for path in paths]
            unwanted = list(map(str, other_paths))
        else:
            wanted, unwanted = [InputFile(address, Path(address).name)], []
        if not wanted:
            raise InputError(address, f"contains no {what} file, only {pluralize(len(unwanted), 'other file')}", fix)
        files += wanted
        skipped += unwanted
    return files, skipped


def size_and_version(address: str) -> tuple[int, str]:
    """Return a file's size in bytes, and its modification time as a string.

    Raises an InputError if the file does not exist or is not accessible, or if it is a pipe or a device.
    """
    try:
        status = os.stat(address)
    except OSError as error:
        raise InputError(address, f"cannot be read: {error.strerror or error}", "Check the path.") from error
    if not stat.S_ISREG(status.st_mode):
        raise InputError(
            address,
            "is a pipe or a device, which can be read only once",
            "Write the content to a file, and pass this file.",
        )
    return status.st_size, str(status.st_mtime_ns)


@contextmanager
def open_file(address: str | Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Open a file, decompress it, and close it when the context exits.

    Raises an InputError if the file cannot be read.

    The context manager yields two streams: the decompressed stream, and the file itself. The position in the file can
    be used to show the progress.
    """
    try:
        with open(address, "rb") as file, decompressed(file, str(address)) as stream:
            yield stream, file
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        fix = "Check the path, and that the file is complete."
        raise InputError(str(address), f"cannot be read: {reason}", fix) from error


@contextmanager
def decompressed(file: IO[bytes], source: str) -> Iterator[IO[bytes]]:
    """Yield a decompressed stream of an open file. If the file is not compressed, its content is unchanged.

    The compression is detected from the first bytes, since standard input has no file name.

    file (IO[bytes]): The open file.
    source (str): File name for error messages.
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
    """Return a stream that decompresses Zstandard. Raises a UserError if pyarrow is not installed."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise UserError(
            "Reading .zst files requires pyarrow, which is not installed", f"Run `{install('pyarrow')}`."
        ) from error
    return pa.CompressedInputStream(pa.PythonFile(packed, mode="r"), "zstd")


_DECOMPRESSORS: dict[bytes, Callable[[IO[bytes]], Any]] = {
    b"\x1f\x8b": lambda packed: gzip.GzipFile(fileobj=packed),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": lzma.LZMAFile,
    b"\x28\xb5\x2f\xfd": _zstd,
}


# Functions that decode text


def check_encoding(encoding: str) -> str:
    """Return Python's canonical name for a text encoding. Raises a UserError if the encoding is unknown."""
    try:
        b" ".decode(encoding, _BYTES_AS_SURROGATES)  # Raises a LookupError for codecs such as hex.
        return codecs.lookup(encoding).name
    except (LookupError, UnicodeError) as error:
        raise UserError(f"Unknown encoding '{encoding}'", "Use utf-8, gb18030, big5, utf-16, ...") from error


def read_lines(path: str | Path, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """Yield the number, starting with 1, and the text of each line in a file.

    Raises an InputError for invalid text.

    path (str | Path): File path, or `-` for standard input.
    encoding (str): The text encoding.
    """
    for number, line in _decode_file(path, encoding):
        reason, fix = "", "Save the file as plain text."
        if isinstance(line, DamagedText):
            reason = line.reason
            fix = SAVE_AS_UTF8
        elif "\0" in line:
            reason = "the line contains a NUL byte"
        elif "\r" in line:
            reason, fix = "the line contains a carriage return before its end", "End lines with \\n or \\r\\n."
        if reason:
            raise InputError(str(path), reason, fix, line=number)
        yield number, line


def _decode_file(path: str | Path, encoding: str) -> Iterator[tuple[int, str]]:
    if str(path) == STDIN:
        with decompressed(sys.stdin.buffer, STDIN) as stream:
            yield from decode_lines(stream, encoding)
    else:
        with open_file(path) as (stream, _):
            yield from decode_lines(stream, encoding)


def decode_lines(stream: IO[bytes], encoding: str) -> Iterator[tuple[int, str]]:
    """Yield the number, starting with 1, and the text of each line in a stream. Line breaks are removed.

    If a line cannot be decoded, or if it is too long, a `DamagedText` is yielded. A byte order mark is skipped.
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
    """Return a stream's decoded content. Line breaks are not changed, and a byte order mark is skipped."""
    with open_text(stream, encoding) as file:
        return check_decoded(file.read(), encoding, "text")


def check_decoded(text: str, encoding: str, what: str = "line") -> str:
    """Check a string that was decoded by `open_text`. Return a `DamagedText` if it contains lone surrogates.

    text (str): The string.
    encoding (str): The text encoding, for the error message.
    what (str): Description of the string, such as "line", for the error message.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return DamagedText(text, f"character {error.start + 1} of the {what} is not {encoding.upper()}")
    return text


@contextmanager
def open_text(stream: IO[bytes], encoding: str) -> Iterator[io.TextIOWrapper]:
    """Decode a stream, as a context manager. A byte order mark is skipped, and invalid bytes become lone surrogates."""
    # Codecs such as utf-16 write a byte order mark, and skip it when decoding. Other codecs do not.
    decoder_reads_mark = bool("".encode(encoding))
    mark = b"" if decoder_reads_mark else "\ufeff".encode(encoding, errors="ignore")
    if mark and cast(io.BufferedReader, stream).peek(len(mark)).startswith(mark):
        stream.read(len(mark))
    file = io.TextIOWrapper(stream, encoding, errors=_BYTES_AS_SURROGATES, newline="\n")
    try:
        yield file
    finally:
        file.detach()  # Detach the wrapper, which would close the stream.


def _bytes_as_surrogates(error: UnicodeError) -> tuple[str, int]:
    """Handle decoding errors by replacing invalid bytes with lone surrogates.

    Python's `surrogateescape` supports only bytes above 127. UTF-16 text can contain other invalid bytes.
    """
    assert isinstance(error, UnicodeDecodeError)
    return "".join(chr(0xDC00 + byte) for byte in error.object[error.start : error.end]), error.end


codecs.register_error(_BYTES_AS_SURROGATES, _bytes_as_surrogates)


def check_text(value: Any) -> str:
    """Check the text in an input record. Return a `DamagedText` if it is not a string or contains lone surrogates."""
    if isinstance(value, DamagedText):
        return value
    if not isinstance(value, str):
        return DamagedText("", "there is no text" if value is None else f"the text is of type {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        return DamagedText(value, f"character {error.start + 1} of the text is a lone surrogate")
    return value


# Functions that parse JSON


def parse_json(text: str) -> Any:
    """Parse a JSON string. Return a `DamagedText` if it is not valid JSON."""
    if isinstance(text, DamagedText):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        return DamagedText(text, json_fault(error))


def parse_object(text: str) -> dict[str, Any] | DamagedText:
    """Parse a JSON object. Return a `DamagedText` if the string is not valid JSON or not an object."""
    value = parse_json(text)
    if isinstance(value, (dict, DamagedText)):
        return value
    return DamagedText(text, "the line is not a JSON object")


def json_fault(error: Exception) -> str:
    """Return an error message for an exception that was raised by `json.loads`."""
    if isinstance(error, json.JSONDecodeError):
        return f"not valid JSON: {error.msg} at column {error.colno}"
    deep = isinstance(error, RecursionError)
    return f"not valid JSON: {'nested too deeply' if deep else 'a number of more than 4,000 digits'}"
