"""Records from text: a text on each line or in each file, JSON on each line, and CSV."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from ...inputs import MAX_LINE_BYTES, suffix_of
from ..damaged import Damaged, checked

Record = tuple[dict[str, Any], int]
"""A row, and how many characters were read for it."""
_KEPT = 1000
"""Characters that are kept of a line that is too long."""


@contextmanager
def as_text(stream: IO[bytes], encoding: str) -> Iterator[io.TextIOWrapper]:
    """Decode a stream. What is not in the encoding becomes halves of surrogate pairs, which `checked` finds."""
    wide = encoding.lower().replace("_", "-").startswith(("utf-16", "utf-32"))  # these know no such halves
    file = io.TextIOWrapper(stream, encoding, errors="replace" if wide else "surrogateescape", newline="\n")
    try:
        yield file
    finally:
        file.detach()  # whoever opened the stream closes it


def read_whole(stream: IO[bytes], source: str, text: str, encoding: str) -> Iterator[Record]:
    """A whole file as one text."""
    with as_text(stream, encoding) as file:
        whole = file.read().removeprefix("\ufeff")
    yield {text: checked(whole, source, encoding), "source": source}, len(whole)


def read_text(stream: IO[bytes], source: str, text: str, encoding: str) -> Iterator[Record]:
    """A text on each line; `source` and `line` say where it stood."""
    for number, line, size in _lines(stream, source, encoding):
        yield {text: line, "source": source, "line": number}, size


def read_jsonl(stream: IO[bytes], source: str, text: str, encoding: str) -> Iterator[Record]:
    """An object on each line; lines that are blank are none."""
    for number, line, size in _lines(stream, source, encoding):
        if line and not line.isspace():
            yield _json_row(line, f"{source}:{number}", text), size


def _json_row(line: str, where: str, text: str) -> dict[str, Any]:
    if isinstance(line, Damaged):
        return {text: line}
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        return {text: Damaged(line, f"{where}: the line is not JSON ({error})")}
    return row if isinstance(row, dict) else {text: Damaged(line, f"{where}: the line is no JSON object")}


def _lines(stream: IO[bytes], source: str, encoding: str) -> Iterator[tuple[int, str, int]]:
    """The lines, numbered from 1, without their ends, and their lengths. Of one that is too long, the beginning."""
    with as_text(stream, encoding) as file:
        for number in itertools.count(1):
            line = file.readline(MAX_LINE_BYTES)
            if not line:
                return
            if len(line) == MAX_LINE_BYTES and not line.endswith("\n"):
                while (rest := file.readline(MAX_LINE_BYTES)) and not rest.endswith("\n"):
                    pass
                yield number, Damaged(line[:_KEPT], f"{source}:{number}: over {MAX_LINE_BYTES} characters"), _KEPT
                continue
            kept = line.removesuffix("\n").removesuffix("\r")
            kept = kept.removeprefix("\ufeff") if number == 1 else kept
            yield number, checked(kept, f"{source}:{number}", encoding), len(line)


def read_csv(stream: IO[bytes], source: str, text: str, encoding: str) -> Iterator[Record]:
    """Rows of a CSV file whose first row names the columns, or of one with tabs if its name says so.

    Values stay strings: an article's number may begin with zeros.
    """
    csv.field_size_limit(MAX_LINE_BYTES)
    with as_text(stream, encoding) as file:
        rows = csv.reader(file, delimiter="\t" if suffix_of(source) == ".tsv" else ",")
        header: list[str] | None = None
        while True:
            try:
                fields = next(rows, None)
            except csv.Error as error:
                yield {text: Damaged("", f"{source}:{rows.line_num}: the row is not CSV ({error})")}, 0
                continue
            if fields is None:
                return
            if header is None:
                header = [name.removeprefix("\ufeff") for name in fields]
            elif fields:
                yield _csv_row(header, fields, f"{source}:{rows.line_num}", text, encoding), sum(map(len, fields))


def _csv_row(header: list[str], fields: list[str], where: str, text: str, encoding: str) -> dict[str, Any]:
    row: dict[str, Any] = dict(zip(header, fields, strict=False))
    if len(fields) != len(header):
        reason = f"{where}: the row has {len(fields)} fields, and the header {len(header)}"
        return {**row, text: Damaged(",".join(fields), reason)}
    return {**row, text: checked(row[text], where, encoding)} if text in row else row
