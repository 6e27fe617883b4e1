"""Vectors as text: word2vec's (a first line `rows width`) or GloVe's (no such line), plain or packed.

Only the ASCII space separates values: a Chinese vectors file has rows for U+3000 and its cousins, and strings that hold
spaces themselves, so a line that is not of the plain sort is read from its right end. Values are converted by NumPy,
megabytes at a time; no Python function sees a single one.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from tqdm import tqdm  # type: ignore[import-untyped,unused-ignore]

from ...inputs import open_file
from ...types import FloatArray
from .names import RowNames, check_width

_BOM = b"\xef\xbb\xbf"
_CHUNK = 1 << 22
_BIG_FILE = 1 << 25
_HEADER = re.compile(rb"([0-9]+) ([0-9]+)")
_FLORET_HEADER = re.compile(rb"([0-9]+ ){6}\S+ \S+")
_NUMBER = re.compile(rb"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?(nan|inf|infinity)", re.IGNORECASE)
_DECIMAL = re.compile(rb"[-+]?[0-9]*\.[0-9]+([eE][-+]?[0-9]+)?")


def _chunks(path: Path) -> Iterator[list[bytes]]:
    """The lines of a file, some megabytes at a time. Lines end in a line feed only, never in a Unicode line end."""
    size = path.stat().st_size
    # None: shown on a terminal only.
    hidden = None if size > _BIG_FILE else True
    with (
        open_file(path) as (stream, packed),
        tqdm(total=size, desc=f"Reading {path.name}", unit="B", unit_scale=True, leave=False, disable=hidden) as bar,
    ):
        while lines := stream.readlines(_CHUNK):
            yield lines
            bar.update(packed.tell() - bar.n)


def read_text(path: Path, width: int | None, names: RowNames) -> FloatArray:
    """Read the rows that `names` takes, in its order. *Shape* [rows, width]"""
    chunks = _chunks(path)
    lines = next(chunks, [])
    if not lines:
        raise ValueError(f"{path} is empty: expected a line per string, with its values.")
    lines[0] = lines[0].removeprefix(_BOM)
    _refuse_other_formats(path, lines)
    header = _HEADER.fullmatch(lines[0].strip())
    actual = int(header[2]) if header else _infer_width(path, lines[0])
    check_width(path, actual, width)
    names.promised = int(header[1]) if header else None
    reader = _LineReader(path, actual, names, line=1 if header else 0)
    tables = [reader.read(lines[1:] if header else lines)]
    tables.extend(reader.read(lines) for lines in chunks)
    if not names.rows_read:
        raise ValueError(f"{path} has a first line `{lines[0].decode().strip()}` but no vectors.")
    return _join(tables, actual)


def _refuse_other_formats(path: Path, lines: list[bytes]) -> None:
    if any(b"\0" in line for line in lines):
        raise ValueError(
            f"{path} is a binary file, or text that is not UTF-8. Save word2vec's binary format as text with gensim: "
            f"`KeyedVectors.load_word2vec_format(path, binary=True).save_word2vec_format(new_path)`."
        )
    if _FLORET_HEADER.fullmatch(lines[0].strip()):
        raise ValueError(
            f"{path} is a table of floret, whose rows belong to no strings. Make a directory of it with "
            f"`python -m spacy init vectors LANG {path.name} DIRECTORY --mode floret`, and give that."
        )


def _infer_width(path: Path, line: bytes) -> int:
    """Without a header the first line tells: a string, then numbers to its end."""
    fields = line.rstrip(b" \r\n").split(b" ")[1:]
    width = 0
    while width < len(fields) and _NUMBER.fullmatch(fields[-1 - width]):
        width += 1
    if not width:
        raise ValueError(f"{path}, line 1: expected a string and its values between spaces, but got {_excerpt(line)}.")
    return width


def _excerpt(line: bytes) -> str:
    text = line.decode("utf8", errors="replace").strip("\r\n")
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _join(tables: list[FloatArray], width: int) -> FloatArray:
    joined = np.empty((sum(map(len, tables)), width), dtype=np.float32)
    end = len(joined)
    while tables:  # freed one by one, so that the peak is one table and not two
        last = tables.pop()
        joined[end - len(last) : end] = last
        end -= len(last)
    return joined


class _LineReader:
    """Turns lines into rows; knows the number of the last line that it read."""

    def __init__(self, path: Path, width: int, names: RowNames, *, line: int) -> None:
        self.path = path
        self.width = width
        self.names = names
        self.line = line

    def read(self, lines: list[bytes]) -> FloatArray:
        """*Shape* [rows that were taken, width]"""
        tails: list[bytes] = []
        numbers: list[int] = []
        for number, line in enumerate(lines, self.line + 1):
            stripped = line.rstrip(b" \r\n")
            if not stripped:
                continue
            name, tail = self._split(stripped, number)
            try:
                taken = self.names.take(name.decode("utf8"), f"line {number}")
            except UnicodeDecodeError:
                self.names.skip_nameless()
                continue
            if taken:
                tails.append(tail)
                numbers.append(number)
        self.line += len(lines)
        return self._to_numbers(tails, numbers)

    def _split(self, line: bytes, number: int) -> tuple[bytes, bytes]:
        """The string, and the text of exactly `width` values that one space separates."""
        name, _, tail = line.partition(b" ")
        if name and tail.count(b" ") == self.width - 1 and b"  " not in line:
            return name, tail
        # From here on a rare line: the string holds spaces itself, or the line is broken.
        name, *values = line.rsplit(b" ", self.width)
        before, _, surplus = name.rpartition(b" ")
        if not all(values) or (name.endswith(b" ") and name.strip()):
            raise self._broken(number, "two spaces in a row", line)
        if len(values) < self.width or (before and _DECIMAL.fullmatch(surplus)):
            found = sum(_NUMBER.fullmatch(part) is not None for part in line.split(b" ")[1:])
            raise self._broken(number, f"expected {self.width} values, but found {found}", line)
        if not name:
            raise self._broken(number, "there is no string before the values", line)
        return name, b" ".join(values)

    def _to_numbers(self, tails: list[bytes], numbers: list[int]) -> FloatArray:
        # Every tail has `width` parts that are not empty, and each part gives at least one number or stops the
        # conversion: the count is right only if each part is one number.
        flat = _parse(b" ".join(tails))
        if flat.size != len(tails) * self.width:
            raise self._first_broken(tails, numbers)
        table = flat.reshape(len(tails), self.width)
        finite = np.isfinite(table).all(axis=1)
        if not finite.all():
            row = int(np.argmin(finite))
            raise self._broken(numbers[row], "a value is not finite (NaN or infinite)", tails[row])
        return table

    def _first_broken(self, tails: list[bytes], numbers: list[int]) -> ValueError:
        parts = ((number, part, tail) for number, tail in zip(numbers, tails, strict=True) for part in tail.split(b" "))
        number, part, tail = next(found for found in parts if _parse(found[1] + b" 0").size != 2)
        return self._broken(number, f"{_excerpt(part)} is not a number", tail)

    def _broken(self, number: int, reason: str, line: bytes) -> ValueError:
        return ValueError(f"{self.path}, line {number}: {reason}: {_excerpt(line)}. Repair or remove the line.")


def _parse(text: bytes) -> FloatArray:
    """All numbers up to the first thing that is none."""
    with warnings.catch_warnings():
        # NumPy warns about such a thing; here the number of values tells, and the error can name the line.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return np.fromstring(text, dtype=np.float32, sep=" ")
        except ValueError:
            return np.zeros(0, dtype=np.float32)
