"""The files that a user names: compressed or not, one, a directory of them, or standard input."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from .errors import InputError, RemedyError

STDIN = "-"
COMPRESSED = frozenset({".gz", ".bz2", ".xz", ".zst"})
MAX_LINE_BYTES = 1 << 26
"""A line longer than this (64 MiB) is a file of another kind, and is refused before it fills the memory."""


def _zstd(packed: IO[bytes]) -> Any:
    try:
        import pyarrow as pa
    except ImportError as error:
        raise RemedyError("Reading .zst needs pyarrow", "pip install 'spacy_tener[annotate]'") from error
    return pa.CompressedInputStream(pa.PythonFile(packed, mode="r"), "zstd")


_DECOMPRESSORS: dict[bytes, Callable[[IO[bytes]], Any]] = {
    b"\x1f\x8b": lambda packed: gzip.GzipFile(fileobj=packed),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": lzma.LZMAFile,
    b"\x28\xb5\x2f\xfd": _zstd,
}
_ZIP = b"PK\x03\x04"
_BUFFER = 1 << 20


def suffix_of(path: str | Path) -> str:
    """The ending that names the format, without that of the compression."""
    path = Path(path)
    return Path(path.stem).suffix if path.suffix in COMPRESSED else path.suffix


def walk(directory: Path, is_wanted: Callable[[Path], bool]) -> tuple[list[Path], list[Path]]:
    """The wanted files at any depth below a directory, and the others; both sorted. Hidden ones are neither."""
    files = [
        path
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(directory).parts)
    ]
    wanted = [path for path in files if is_wanted(path)]
    return wanted, [path for path in files if path not in set(wanted)]


@contextmanager
def open_file(path: str | Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """The bytes of a file, decompressed whatever its name says, and the file as it is on the disk.

    Whatever goes wrong while it is open is a `InputError`.
    """
    try:
        with open(path, "rb") as file, decompressed(file, str(path)) as stream:
            yield stream, file
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        remedy = "Check the path, and that the file is whole."
        raise InputError(str(path), f"cannot be read: {reason}", remedy) from error


@contextmanager
def decompressed(file: io.BufferedReader, name: str) -> Iterator[IO[bytes]]:
    """The bytes of an open file, decompressed whatever its name says; the file itself where it is not compressed."""
    start = file.peek(_BUFFER)
    if start.startswith(_ZIP):
        raise InputError(name, "is a zip archive", "Unpack it, and name the file inside.")
    decompress = next((unpack for magic, unpack in _DECOMPRESSORS.items() if start.startswith(magic)), None)
    if decompress is None:
        yield file
    else:
        with io.BufferedReader(cast(io.RawIOBase, decompress(file)), _BUFFER) as stream:
            yield stream


def read_lines(path: str | Path, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """The lines of a file, or of standard input for `-`, numbered from 1, without their ends and a byte order mark."""
    if str(path) == STDIN:
        yield from _decode(sys.stdin.buffer, STDIN, encoding)
        return
    with open_file(path) as (stream, _):
        yield from _decode(stream, str(path), encoding)


def read_text(path: str | Path, encoding: str = "utf-8") -> str:
    """A whole file, with its line ends as they are."""
    with open_file(path) as (stream, _):
        return _decode_all(stream.read(), str(path), encoding).removeprefix("\ufeff")


def check_encoding(encoding: str) -> str:
    try:
        " ".encode(encoding)  # which refuses what is no encoding of text, as hex
        return codecs.lookup(encoding).name
    except (LookupError, UnicodeError) as error:
        raise RemedyError(f"Unknown encoding '{encoding}'", "Use utf-8, gb18030, big5, utf-16, ...") from error


def _decode(stream: IO[bytes], source: str, encoding: str) -> Iterator[tuple[int, str]]:
    if check_encoding(encoding).startswith(("utf-16", "utf-32")):
        # A line feed is not one byte there.
        stream, encoding = io.BytesIO(_decode_all(stream.read(), source, encoding).encode()), "utf-8"
    number = 0
    while raw := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(raw) > MAX_LINE_BYTES:
            remedy = "Corpora have a token or a JSON record on each line: is this such a file?"
            raise InputError(source, f"the line is longer than {MAX_LINE_BYTES} bytes", remedy, line=number)
        yield number, _text(raw, source, number, encoding)


def _decode_all(data: bytes, source: str, encoding: str) -> str:
    try:
        return _checked(data.decode(encoding), encoding)
    except UnicodeError as error:
        raise InputError(source, f"it is not {encoding.upper()} ({error})", "Name its encoding.") from error


def _checked(text: str, encoding: str) -> str:
    """The text, unless its encoding, as UTF-7 does, let halves of surrogate pairs through: no Doc can hold them."""
    if encoding != "utf-8":
        text.encode("utf-8")
    return text


def _text(raw: bytes, source: str, number: int, encoding: str) -> str:
    try:
        text = _checked(raw.decode(encoding), encoding).removesuffix("\n").removesuffix("\r")
    except UnicodeError as error:
        place = f"byte {error.start + 1} of the line" if isinstance(error, UnicodeDecodeError) else "the line"
        reason = f"{place} is not {encoding.upper()}"
        remedy = "Save the file as UTF-8, or name its encoding where there is an option for it (gb18030, utf-16, ...)."
        raise InputError(source, reason, remedy, line=number) from error
    if number == 1:
        text = text.removeprefix("\ufeff")
    if "\0" in text:
        raise InputError(source, "the line holds a NUL byte", "Save the file as plain text.", line=number)
    if "\r" in text:
        remedy = "Write line ends as \\n or \\r\\n."
        raise InputError(source, "the line holds a carriage return before its end", remedy, line=number)
    return text
