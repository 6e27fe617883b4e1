"""Corpora with a token and its tag on each line: `char TAG`, CoNLL-2003, Weibo.

The first column is the token, the last its tag. A line that holds a tab is split at tabs, any other at runs of spaces.
Lines of white space end a sentence; so does the end of the file. `-DOCSTART-` begins a document. Every other line is
data, whatever it starts with.

Weibo NER writes each character with its position in its word (`科0`, `技1`); the position is taken off.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from .records import CorpusError, Sentence
from .schemes import TagReader

DOCUMENT_START = "-DOCSTART-"

# Lazy, so that the digit 3 at position 10 (`310`) is 3, and 1 at position 0 (`10`) is 1.
_POSITIONED = re.compile(r"(.+?)([0-9]{1,4})", re.DOTALL)
_SPACES = re.compile(" +")


def read_columns(
    lines: Iterable[tuple[int, str]], tags: TagReader, *, positions: bool = False, source: str = "<columns>"
) -> Iterator[Sentence]:
    """The sentences of a corpus in columns.

    positions: Whether each token ends in its position in its word, as in Weibo NER.
    """
    width = 0
    for block, starts_document in _blocks(lines):
        rows = [split_line(line) for _, line in block]
        width = width or len(rows[0])
        for (number, _), columns in zip(block, rows, strict=True):
            _check_columns(columns, width, source, number)
        first_line = block[0][0]
        tokens = [columns[0] for columns in rows]
        if positions:
            tokens = [_without_position(token, source, first_line + index) for index, token in enumerate(tokens)]
        spans, missing = tags.read([columns[-1].strip(" ") for columns in rows], line=first_line)
        yield Sentence(tuple(tokens), spans, missing, first_line, starts_document)


def _blocks(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[list[tuple[int, str]], bool]]:
    """The lines of each sentence, and whether the sentence is the first of a document."""
    block: list[tuple[int, str]] = []
    starts_document = True
    for number, line in lines:
        at_document = line.startswith(DOCUMENT_START)
        if line.strip() and not at_document:
            block.append((number, line))
            continue
        if block:
            yield block, starts_document
            block, starts_document = [], False
        starts_document |= at_document
    if block:
        yield block, starts_document


def split_line(line: str) -> list[str]:
    if "\t" in line:
        return line.rstrip("\t ").split("\t")
    columns = _SPACES.split(line.rstrip(" "))
    if line.startswith("  ") and len(columns) == 2:
        return [" ", columns[1]]  # the token is itself a space
    return columns


def has_positions(tokens: Iterable[str]) -> bool:
    """Whether all the tokens carry positions that begin at 0 and go up by one (but for the odd slip)."""
    previous, regular, total = -1, 0, 0
    for token in tokens:
        match = _POSITIONED.fullmatch(token)
        if match is None:
            return False
        position = int(match[2])
        regular += position in (0, previous + 1)
        total += 1
        previous = position
    return total > 0 and regular >= 0.95 * total


def _check_columns(columns: list[str], width: int, source: str, number: int) -> None:
    if len(columns) < 2:
        remedy = "Each line needs a token and its tag, with a space or a tab between them."
        raise CorpusError(source, "the line has one column", remedy, line=number)
    if len(columns) != width:
        reason = f"the line has {len(columns)} columns, the lines before it {width}"
        raise CorpusError(source, reason, "Give every line the same columns.", line=number)
    if not columns[0]:
        remedy = "Begin the line with the token, or take it out."
        raise CorpusError(source, "the first column, the token, is empty", remedy, line=number)


def _without_position(token: str, source: str, number: int) -> str:
    match = _POSITIONED.fullmatch(token)
    if match is None:
        remedy = "Write each as a character and a number (科0), or read the file with the format 'columns'."
        raise CorpusError(source, f"'{token[:60]}' does not end in its position in the word", remedy, line=number)
    return match[1]
