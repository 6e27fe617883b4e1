"""Corpora with a token and its tag on each line: `char TAG`, CoNLL-2003, CoNLL-U's look, Weibo.

The first column is the token, the last its tag, unless told otherwise; a first column that numbers the tokens of each
sentence is passed over. A line that holds a tab is split at tabs, any other at runs of spaces. Lines of white space end
a sentence; so does the end of the file. `-DOCSTART-` begins a document. A line with `#` before the tokens of a sentence
is a comment unless it ends in a tag and has the columns of the others. Every other line is data.

Weibo NER writes each character with its position in its word (`科0`, `技1`); the position is taken off.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from .records import Event, Notes, RecordError, Sentence
from .schemes import TagReader, is_tag

DOCUMENT_START = "-DOCSTART-"

# Lazy, so that the digit 3 at position 10 (`310`) is 3, and 1 at position 0 (`10`) is 1.
_POSITIONED = re.compile(r"(.+?)([0-9]{1,4})", re.DOTALL)
_SPACES = re.compile(" +")
# How many of the tokens must be regular, for a file to be taken for one with positions or numbers.
_MOST = 0.95


@dataclass
class Block:
    """The numbered lines of a sentence."""

    lines: list[tuple[int, str]] = field(default_factory=list)
    starts_document: bool = True


def read_blocks(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, Block]]:
    """The lines of each sentence, with the number of the first."""
    block = Block()
    for number, line in lines:
        at_document = line.startswith(DOCUMENT_START)
        if line.strip() and not at_document:
            block.lines.append((number, line))
            continue
        if block.lines:
            yield block.lines[0][0], block
            block = Block(starts_document=False)
        block.starts_document |= at_document
    if block.lines:
        yield block.lines[0][0], block


@dataclass
class ColumnReader:
    """Reads the sentences of one file.

    token, tag: the places of their columns, from 0; negative ones count from the end.
    positions: whether each token ends in its position in its word, as in Weibo NER.
    """

    tags: TagReader
    notes: Notes
    token: int = 0
    tag: int = -1
    positions: bool = False
    width: int = 0
    """How many columns the lines have, once one was read."""

    def __call__(self, block: Block, line: int) -> list[Sentence]:
        rows = [(number, split_line(text)) for number, text in block.lines]
        while rows and self._is_comment(rows[0][1]):
            self.notes.add(Event.COMMENT, " ".join(rows[0][1])[:60], rows[0][0])
            del rows[0]
        if not rows:
            return []
        self.width = self.width or len(rows[0][1])
        for number, columns in rows:
            self._check(columns, number)
        first = rows[0][0]
        tokens = [columns[self.token] for _, columns in rows]
        if self.positions:
            tokens = [_without_position(token, number) for token, (number, _) in zip(tokens, rows, strict=True)]
        spans, missing = self.tags.read([columns[self.tag] for _, columns in rows], line=first)
        return [Sentence(tuple(tokens), spans, missing, first, block.starts_document)]

    def _is_comment(self, columns: Sequence[str]) -> bool:
        unlike = len(columns) < 2 or len(columns) != (self.width or len(columns)) or not is_tag(columns[-1])
        return columns[0].startswith("#") and unlike

    def _check(self, columns: Sequence[str], number: int) -> None:
        if len(columns) < 2:
            remedy = "Each line needs a token and its tag, with a space or a tab between them."
            raise RecordError("the line has one column", remedy, line=number)
        if len(columns) != self.width:
            reason = f"the line has {len(columns)} columns, the lines before it {self.width}"
            raise RecordError(reason, "Give every line the same columns.", line=number)
        for name, place in (("token", self.token), ("tag", self.tag)):
            if not -self.width <= place < self.width:
                reason = f"the line has {self.width} columns, and none for the {name}"
                raise RecordError(reason, f"Name a column that there is (--{name}-column).", line=number)
        if not columns[self.token]:
            which = "first column" if self.token == 0 else "column"
            remedy = "Begin the line with the token, or take it out."
            raise RecordError(f"the {which}, the token, is empty", remedy, line=number)


def split_line(line: str) -> list[str]:
    if "\t" in line:
        # A column of blanks alone is a token that is one.
        return [column.strip(" ") or column for column in line.rstrip("\t ").split("\t")]
    columns = _SPACES.split(line.rstrip(" "))
    if line.startswith("  ") and len(columns) == 2:
        return [" ", columns[1]]  # the token is itself a space
    return columns


def has_positions(tokens: Iterable[str]) -> bool:
    """Whether the tokens carry positions that begin at 0 and go up by one, but for the odd slip."""
    previous, regular, total = -1, 0, 0
    for token in tokens:
        match = _POSITIONED.fullmatch(token)
        position = int(match[2]) if match else previous
        regular += match is not None and position in (0, previous + 1)
        total += 1
        previous = position
    return total > 0 and regular >= _MOST * total


def has_indices(lines: Iterable[tuple[int, str]]) -> bool:
    """Whether the first of three columns or more numbers the tokens of each sentence, from 0 or from 1, but for the
    odd slip."""
    longest, regular, total = 0, 0, 0
    for _, block in read_blocks(lines):
        rows = [split_line(line) for _, line in block.lines]
        while rows and rows[0][0].startswith("#"):
            del rows[0]
        begin = 0 if rows and rows[0][0] == "0" else 1
        regular += sum(len(row) > 2 and row[0] == str(index) for index, row in enumerate(rows, begin))
        total += len(rows)
        longest = max(longest, len(rows))
    return longest > 1 and regular >= _MOST * total


def _without_position(token: str, number: int) -> str:
    match = _POSITIONED.fullmatch(token)
    if match is None:
        remedy = "Write each as a character and a number (科0), or read the file with the format 'columns'."
        raise RecordError(f"'{token[:60]}' does not end in its position in the word", remedy, line=number)
    return match[1]
