"""Parse pretrained word vectors in the text formats of word2vec and GloVe. The files can be compressed.

A word2vec file starts with a header line that contains the number of vectors and their width. GloVe files have no
header. Each other line contains a string and the values of its vector, separated by ASCII spaces. The string can itself
contain spaces or be another white space character, such as U+3000 in Chinese files.

The files can have several gigabytes. NumPy therefore parses the values of many lines in a single call. `read_vectors`
in `pretrained_vectors.py` uses this module.
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
# Number of bytes to parse at once.
_CHUNK = 1 << 22
# Show a progress bar for files that are larger than this number of bytes.
_BIG_FILE = 1 << 25
_HEADER = re.compile(rb"([0-9]{1,18}) ([0-9]{1,18})")
_NUMBER = re.compile(rb"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?(nan|inf|infinity)", re.IGNORECASE)
_DECIMAL = re.compile(rb"[-+]?[0-9]*\.[0-9]+([eE][-+]?[0-9]+)?")


class RowFilter:
    """A filter that decides which pretrained vectors to load, and collects warnings about their file.

    path (Path): The file or directory, for messages.
    width (int | None): The required vector width, or None for any width.
    normalise (Callable[[str], str] | None): Function that normalizes each string.
    keep (Callable[[str], bool] | None): Function that returns whether to load the vector for a normalized string. None
        to load all vectors.

    The attribute `selected` maps each normalized string to the original string in the file. The attribute `promised` is
    the number of vectors in the file's header, or None if there is no header.
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
        self.rows_read = self._duplicates = self._nameless = 0
        self._first_duplicate = ""
        self.promised: int | None = None

    def check_width(self, actual: int) -> None:
        """Raise an InputError if the vectors in the file do not have the required width."""
        if self.width is not None and actual != self.width:
            reason = f"the vectors have the width {actual}, but the config requires {self.width}"
            fix = f"Set the width in the config to {actual}, or use vectors of width {self.width}."
            raise InputError(str(self.path), reason, fix)

    def select(self, name: str, place: str) -> bool:
        """Return whether to load the next vector.

        The first vector for each string is loaded, and duplicates are counted.

        name (str): The vector's string.
        place (str): The position in the file, such as "line 2", for warnings.
        """
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
        """Count a vector that is skipped because its string is invalid UTF-8 or missing in spaCy's string store."""
        self.rows_read += 1
        self._nameless += 1

    def warnings(self) -> Iterator[str]:
        """Yield warnings about duplicate or invalid strings, and about a wrong number of vectors in the header."""
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
    """Load pretrained vectors from a text file. *Shape:* (selected vectors, width)

    selection (RowFilter): The file path, and the filter that selects vectors.
    """
    path = str(selection.path)
    chunks = _chunks(selection.path)
    lines = next(chunks, [])
    if not lines:
        raise InputError(path, "the file is empty", "Use a file with a string and its vector on each line.")
    first = lines[0] = lines[0].removeprefix(_BOM)
    _refuse_other_formats(selection.path, lines)
    header = _HEADER.fullmatch(first.strip())
    width = int(header[2]) if header else _infer_width(selection.path, first)
    selection.check_width(width)
    if header:
        selection.promised = int(header[1])
        lines[0] = b""  # The header is replaced by an empty line, which is skipped.
    tables, number = [], 1
    for chunk in chain([lines], chunks):
        tables.append(_read_rows(chunk, number, width, selection))
        number += len(chunk)
    if not selection.rows_read:
        reason = f"no vectors after the first line, `{first.decode().strip()}`"
        raise InputError(path, reason, "Use a file with a string and its vector on each line.")
    joined = np.empty((sum(map(len, tables)), width), dtype=np.float32)
    end = len(joined)
    # Copy and free one array at a time. `np.concatenate` would need twice the memory.
    while tables:
        last = tables.pop()
        joined[end - len(last) : end] = last
        end -= len(last)
    return joined


def _chunks(path: Path) -> Iterator[list[bytes]]:
    """Yield chunks of about 4 MB from a file. Each chunk is a list of lines.

    Lines are split at line feeds only, since strings can contain Unicode line separators.
    """
    with open_file(path) as (stream, packed):
        size = path.stat().st_size
        # If `disable` is None, tqdm shows the progress bar only in a terminal.
        hidden = None if size > _BIG_FILE else True
        with tqdm(
            total=size, desc=f"Reading {path.name}", unit="B", unit_scale=True, leave=False, disable=hidden
        ) as bar:
            while lines := stream.readlines(_CHUNK):
                yield lines
                bar.update(packed.tell() - bar.n)


def _refuse_other_formats(path: Path, lines: list[bytes]) -> None:
    if any(b"\0" in line for line in lines):
        fix = (
            "For fastText, use the .vec file instead of the .bin file. Convert word2vec's binary format with gensim: "
            "`KeyedVectors.load_word2vec_format(path, binary=True).save_word2vec_format(new_path)`."
        )
        raise InputError(str(path), "a binary file, or text that is not UTF-8", fix)


def _infer_width(path: Path, line: bytes) -> int:
    """Return the vector width in a file without a header.

    The width is the number of numeric fields at the end of the first line.
    """
    fields = line.rstrip(b" \r\n").split(b" ")[1:]
    width = 0
    while width < len(fields) and _NUMBER.fullmatch(fields[-1 - width]):
        width += 1
    if not width:
        raise _broken(path, 1, "expected a string and its values, separated by spaces", line)
    return width


def _read_rows(lines: list[bytes], first: int, width: int, selection: RowFilter) -> FloatArray:
    """Parse lines from a vectors file, and return the selected vectors. *Shape:* (selected vectors, width)

    lines (list[bytes]): Consecutive lines in the file.
    first (int): The line number of the first line.
    """
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
    # Parse the values of all lines in a single call. Each line has `width` fields. If a field is not a number, the
    # number of parsed values is wrong. In this case, parse the fields one by one to find the invalid line.
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
    """Split a line into its string, which may contain spaces, and its values.

    Raises an InputError if the line is invalid.
    """
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
    """Parse numbers separated by spaces. Parsing stops at the first field that is not a number."""
    with warnings.catch_warnings():
        # NumPy warns about invalid fields. The warning is not needed, since `_read_rows` reports invalid lines.
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
