"""Files and standard input as numbered lines of text, whatever wrote them: compressed or not, BOM, CRLF."""

from __future__ import annotations

import bz2
import gzip
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO

from .records import CorpusError

STDIN = "-"
COMPRESSED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}

MAX_LINE_BYTES = 1 << 26
"""A line longer than this (64 MiB) is a file of another kind, and is refused before it fills the memory."""


def read_lines(path: Path | str) -> Iterator[tuple[int, str]]:
    """The lines of a file, or of standard input for `-`, numbered from 1, without their ends and without a BOM."""
    source = str(path)
    try:
        with _open(path) as stream:
            yield from _decode(stream, source)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CorpusError(source, f"cannot be read: {reason}", "Check the path and that the file is whole.") from error


def _open(path: Path | str) -> AbstractContextManager[BinaryIO]:
    if str(path) == STDIN:
        return nullcontext(sys.stdin.buffer)
    stream: BinaryIO = COMPRESSED.get(Path(path).suffix, open)(path, "rb")
    return stream


def _decode(stream: BinaryIO, source: str) -> Iterator[tuple[int, str]]:
    number = 0
    while raw := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(raw) > MAX_LINE_BYTES:
            remedy = "Corpora have a token or a JSON record on each line: is this such a file?"
            raise CorpusError(source, f"the line is longer than {MAX_LINE_BYTES} bytes", remedy, line=number)
        yield number, _text(raw, source, number)


def _text(raw: bytes, source: str, number: int) -> str:
    try:
        text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        reason = f"byte {error.start + 1} of the line is not UTF-8"
        raise CorpusError(source, reason, "Save the file as UTF-8.", line=number) from error
    if "\0" in text:
        raise CorpusError(source, "the line holds a NUL byte", "Save the file as plain UTF-8 text.", line=number)
    text = text.removesuffix("\n").removesuffix("\r")
    if "\r" in text:
        remedy = "Write line ends as \\n or \\r\\n."
        raise CorpusError(source, "the line holds a carriage return before its end", remedy, line=number)
    return text
