"""Word lists as files: jieba's dictionary, and lists with a word on each line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ...errors import InputError
from ...inputs import read_lines, suffix_of, walk

_NUMBER = re.compile(r"\s*([0-9]+)")
_TAG = re.compile("[a-z]+")
_ENDING = ".txt"


class Entry(NamedTuple):
    """One line of a list. A frequency of None: the list has none for it."""

    word: str
    frequency: int | None
    tag: str


def read_dictionary(path: Path) -> Iterator[Entry]:
    """jieba's dictionary: `word frequency tag` on each line."""
    return _read(path, _parse_dictionary)


def read_list(path: Path, tag: str) -> Iterator[Entry]:
    """`word`, or `word<TAB>frequency`, on each line; every word gets the tag."""
    return _read(path, lambda line: _parse_list(line, tag))


def read_user_list(path: Path, tag: str) -> Iterator[Entry]:
    """`word`, `word<TAB>tag`, or jieba's `word frequency tag`, on each line; the given tag for words without one."""
    return _read(path, lambda line: _parse_user_list(line, tag))


def list_files(path: Path) -> list[Path]:
    """The files of a word list: itself, or those below a directory, in the order of their names."""
    if not path.exists():
        raise FileNotFoundError(f"There is no word list at {path}. Give the path of a file, or of a directory of them.")
    if not path.is_dir():
        return [path]
    files, _ = walk(path, lambda file: suffix_of(file) == _ENDING)
    if not files:
        raise FileNotFoundError(
            f"The directory {path} has no word lists: no file in it ends in {_ENDING} (or .txt.gz, ...)."
        )
    return files


def list_name(path: Path) -> str:
    """The file's name without its endings: `THUOCL_law.txt.xz` is `THUOCL_law`."""
    return path.name.removesuffix(suffix_of(path) + path.suffix * (suffix_of(path) != path.suffix))


def _read(path: Path, parse: Callable[[str], Entry]) -> Iterator[Entry]:
    for number, line in read_lines(path):
        try:
            if text := line.strip():
                yield parse(text)
        except ValueError as error:
            raise InputError(str(path), str(error), "Repair or remove the line.", line=number) from error


def _parse_dictionary(line: str) -> Entry:
    fields = line.split(" ")
    if len(fields) != 3:
        raise ValueError(f"expected `word frequency tag`, but got {line[:60]!r}")
    word, frequency, tag = fields
    return Entry(word, _parse_frequency(frequency), tag)


def _parse_list(line: str, tag: str) -> Entry:
    word, *rest = line.split("\t")
    if len(rest) > 1:
        raise ValueError(f"expected `word`, or `word<TAB>frequency`, but got {line[:60]!r}")
    return Entry(word.strip(), _parse_frequency(rest[0]) if rest else None, tag)


def _parse_user_list(line: str, tag: str) -> Entry:
    if "\t" in line:
        word, own, *rest = (part.strip() for part in line.split("\t"))
        if rest:
            raise ValueError(f"expected `word`, or `word<TAB>tag`, but got {line[:60]!r}")
        return Entry(word, None, own or tag)
    word, *numbers = line.rsplit(" ", 2)
    # 'iPhone 15 Pro' is a word: jieba's tags are small letters.
    if len(numbers) == 2 and numbers[0].isdecimal() and _TAG.fullmatch(numbers[1]):
        return Entry(word, int(numbers[0]), numbers[1])
    return Entry(line, None, tag)


def _parse_frequency(text: str) -> int:
    # What follows the number is left alone: THUOCL's lists have `3?` and `125472s`.
    number = _NUMBER.match(text)
    if number is None:
        raise ValueError(f"{text[:60]!r} is not a frequency, which is a whole number")
    return int(number[1])
