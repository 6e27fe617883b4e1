"""Text formats of vectors: word2vec's (a first line `rows width`) and GloVe's (no such line), compressed or not.

Only the ASCII space separates values: Chinese vectors files have rows for U+3000 and other white space. Strings may
contain spaces: a line with more fields than expected is split from its right end. NumPy converts the values, megabytes
at a time; no Python code runs per value.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import numpy as np
from tqdm import tqdm  # type: ignore[import-untyped,unused-ignore]

from ..errors import InputError
from ..inputs import open_file
from ..types import FloatArray

_BOM = b"\xef\xbb\xbf"
_CHUNK = 1 << 22
_BIG_FILE = 1 << 25
_HEADER = re.compile(rb"([0-9]{1,18}) ([0-9]{1,18})")
_NUMBER = re.compile(rb"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?(nan|inf|infinity)", re.IGNORECASE)
_DECIMAL = re.compile(rb"[-+]?[0-9]*\.[0-9]+([eE][-+]?[0-9]+)?")


class RowFilter:
    """Selection of a vectors source's rows, and counts of duplicate and unreadable ones.

    width (int | None): Width that the rows must have; None for any.
    normalise, keep (Callable): As for `read_vectors`.
    """

    def __init__(
        self,
        path: Path,
        width: int | None,
        normalise: Callable[[str], str] | None,
        keep: Callable[[str], bool] | None,
    ) -> None:
        self.path, self.width, self.normalise, self.keep = path, width, normalise, keep
        self.selected: dict[str, str] = {}
        """The normalised string of each selected row, with its string in the source."""
        self.rows_read = self._duplicates = self._nameless = 0
        self._first_duplicate = ""
        self.promised: int | None = None
        """The number of rows that the first line says, if it says one."""

    def check_width(self, actual: int) -> None:
        """Refuse a source whose rows are not as wide as the config says."""
        if self.width is not None and actual != self.width:
            reason = f"vectors of width {actual}, but width {self.width} is wanted"
            remedy = f"Set the width in the config to {actual}, or give vectors of width {self.width}."
            raise InputError(str(self.path), reason, remedy)

    def select(self, name: str, place: str) -> bool:
        """Count the next row, and return whether it is selected."""
        self.rows_read += 1
        string = self.normalise(name) if self.normalise else name
        if self.keep is not None and not self.keep(string):
            return False
        if string not in self.selected:
            self.selected[string] = name
            return True
        if self.selected[string] == name:
            self._duplicates += 1
            self._first_duplicate = self._first_duplicate or f"{name!r} in {place}"
        return False

    def skip_nameless(self) -> None:
        """Count a row without a readable string: not UTF-8, or a key that is not in spaCy's string store."""
        self.rows_read += 1
        self._nameless += 1

    def warnings(self) -> Iterator[str]:
        """Yield the warnings for the caller of `read_vectors`."""
        if self.promised not in (None, self.rows_read):
            yield f"its first line promises {self.promised} rows, but it has {self.rows_read}."
        if self._duplicates:
            yield (
                f"{self._duplicates} rows repeat an earlier string, the first of them {self._first_duplicate}. "
                f"The first row of each string was used."
            )
        if self._nameless:
            yield f"{self._nameless} rows were left out, because their string cannot be read."


def read_text_vectors(selection: RowFilter) -> FloatArray:
    """Read the rows that are selected, in the order of the file. *Shape:* (rows, width)"""
    path = str(selection.path)
    chunks = _chunks(selection.path)
    lines = next(chunks, [])
    if not lines:
        raise InputError(path, "the file is empty", "Give a file with a string and its values on each line.")
    first = lines[0] = lines[0].removeprefix(_BOM)
    _refuse_other_formats(selection.path, lines)
    header = _HEADER.fullmatch(first.strip())
    width = int(header[2]) if header else _infer_width(selection.path, first)
    selection.check_width(width)
    if header:
        selection.promised = int(header[1])
        lines[0] = b""  # blank lines are passed over
    tables, number = [], 1
    for chunk in chain([lines], chunks):
        tables.append(_read_rows(chunk, number, width, selection))
        number += len(chunk)
    if not selection.rows_read:
        reason = f"no vectors after the first line, `{first.decode().strip()}`"
        raise InputError(path, reason, "Give a file with a string and its values on each line.")
    joined = np.empty((sum(map(len, tables)), width), dtype=np.float32)
    end = len(joined)
    while tables:  # freed one by one, so that the peak of memory is one table, not two
        last = tables.pop()
        joined[end - len(last) : end] = last
        end -= len(last)
    return joined


def _chunks(path: Path) -> Iterator[list[bytes]]:
    """Yield the lines of a file, some megabytes at a time. Only a line feed ends them, never a Unicode line end."""
    with open_file(path) as (stream, packed):
        size = path.stat().st_size
        # tqdm: None shows the bar on a terminal only.
        hidden = None if size > _BIG_FILE else True
        with tqdm(
            total=size, desc=f"Reading {path.name}", unit="B", unit_scale=True, leave=False, disable=hidden
        ) as bar:
            while lines := stream.readlines(_CHUNK):
                yield lines
                bar.update(packed.tell() - bar.n)


def _refuse_other_formats(path: Path, lines: list[bytes]) -> None:
    if any(b"\0" in line for line in lines):
        remedy = (
            "Use the .vec file beside a fastText model. Save word2vec's binary format as text with gensim: "
            "`KeyedVectors.load_word2vec_format(path, binary=True).save_word2vec_format(new_path)`."
        )
        raise InputError(str(path), "a binary file, or text that is not UTF-8", remedy)


def _infer_width(path: Path, line: bytes) -> int:
    """Count the numbers at the end of the first line, which is a row where there is no header."""
    fields = line.rstrip(b" \r\n").split(b" ")[1:]
    width = 0
    while width < len(fields) and _NUMBER.fullmatch(fields[-1 - width]):
        width += 1
    if not width:
        raise _broken(path, 1, "expected a string and its values between spaces", line)
    return width


def _read_rows(lines: list[bytes], first: int, width: int, selection: RowFilter) -> FloatArray:
    """Parse lines, of which the first has this number in the file. *Shape:* (selected rows, width)"""
    tails: dict[int, bytes] = {}
    for number, line in enumerate(lines, first):
        stripped = line.rstrip(b" \r\n")
        if not stripped:
            continue
        name, _, tail = stripped.partition(b" ")
        if not name or tail.count(b" ") != width - 1 or b"  " in stripped:
            name, tail = _split(stripped, width, selection.path, number)
        try:
            if selection.select(name.decode("utf8"), f"line {number}"):
                tails[number] = tail
        except UnicodeDecodeError:
            selection.skip_nameless()
    # Every tail has `width` parts that are not empty. A part is converted to one or more numbers, or ends the
    # conversion, so the count is right only if each part is one number.
    flat = _parse(b" ".join(tails.values()))
    if flat.size != len(tails) * width:
        for number, tail in tails.items():
            for part in tail.split(b" "):
                if _parse(part + b" 0").size != 2:
                    raise _broken(selection.path, number, f"{_excerpt(part)} is not a number", tail)
    table = flat.reshape(len(tails), width)
    is_finite = np.isfinite(table).all(axis=1)
    if not is_finite.all():
        number, tail = list(tails.items())[int(np.argmin(is_finite))]
        raise _broken(selection.path, number, "a value is not finite (NaN or infinite)", tail)
    return table


def _split(line: bytes, width: int, path: Path, number: int) -> tuple[bytes, bytes]:
    """Split a line whose string contains spaces into it and the text of its values; raise if the line is broken."""
    name, *values = line.rsplit(b" ", width)
    before, _, surplus = name.rpartition(b" ")
    if not all(values) or (name.endswith(b" ") and name.strip()):
        raise _broken(path, number, "two spaces in a row", line)
    if len(values) < width or (before and _DECIMAL.fullmatch(surplus)):
        count = sum(_NUMBER.fullmatch(part) is not None for part in line.split(b" ")[1:])
        raise _broken(path, number, f"expected {width} values, but found {count}", line)
    if not name:
        raise _broken(path, number, "there is no string before the values", line)
    return name, b" ".join(values)


def _parse(text: bytes) -> FloatArray:
    """Parse numbers up to the first text that is not one."""
    with warnings.catch_warnings():
        # NumPy warns about such text; the caller compares counts instead, and names the line.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return np.fromstring(text, dtype=np.float32, sep=" ")
        except ValueError:
            return np.zeros(0, dtype=np.float32)


def _broken(path: Path, number: int, reason: str, line: bytes) -> InputError:
    return InputError(str(path), f"{reason}: {_excerpt(line)}", "Repair or remove the line.", line=number)


def _excerpt(line: bytes) -> str:
    text = line.decode("utf8", errors="replace").strip("\r\n")
    return repr(text if len(text) <= 60 else text[:57] + "...")
