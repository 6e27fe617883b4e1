"""OntoNotes in the columns of CoNLL-2012 (`*_gold_conll`), as the papers' English corpus comes.

    #begin document (nw/wsj/24/wsj_2401); part 000
    nw/wsj/24/wsj_2401  0  0  Eli  NNP  (TOP(S(NP*  -  -  -  -  (PERSON*  *  -
    nw/wsj/24/wsj_2401  0  1  Broad  NNP  *)  -  -  -  -  *)  *  -
    #end document

Column 4 is the word, column 11 the names in brackets; the columns between the names and the last are one for each
predicate of the sentence, so that sentences differ in width. Blank lines end a sentence. Training, development and test
part are the directories of the CoNLL-2012 release; the words must have been put into its skeletons.

Words are read as they stood in the text: the Treebank writes brackets as `-LRB-` and transcripts their marks as `/.`,
which neither other text nor pretrained vectors have. Chinese files have words for tokens too, as spaCy wants them: a
pipeline that splits characters reads them by their text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from .records import CorpusError, Entity, Event, Sentence

CONLL_2012 = "conll2012"

Note = Callable[[Event, str, int], None]

_BEGIN, _END = "#begin document", "#end document"
_DOCUMENT, _WORD, _NAMES = 0, 3, 10  # columns, counted from 0
_MIN_COLUMNS = 12
_PLACEHOLDER = "[WORD]"
_NEW_TESTAMENT = "pt/"

_SPACES = re.compile(r"[ \t]+")
_BRACKETS = re.compile(r"(?:\([^()*]+)*\*?\)*")
_LABEL = re.compile(r"\(([^()*]+)")
_WRITTEN = {
    **dict(zip(("-LRB-", "-RRB-", "-LSB-", "-RSB-", "-LCB-", "-RCB-"), "()[]{}", strict=True)),
    **{f"/{mark}": mark for mark in ".,?!:;-"},
}


def is_conll_2012(first_line: str) -> bool:
    """Whether a file that begins with this line is of the format."""
    return first_line.startswith(_BEGIN)


@dataclass(frozen=True)
class _Block:
    """The rows of one sentence."""

    rows: Sequence[Sequence[str]]
    line: int
    starts_document: bool

    @property
    def document(self) -> str:
        return self.rows[0][_DOCUMENT]


def read_conll_2012(
    lines: Iterable[tuple[int, str]], *, source: str, note: Note, new_testament: bool = False
) -> Iterator[Sentence]:
    """The sentences of a file. Each part of a document counts as a document.

    new_testament: Read documents whose id begins with `pt/` too. Nobody has annotated names in them, and the papers
        leave them out.

    Other documents were not annotated for names either, but the format writes them like text without any. They are
    kept, since the papers keep them, and noted.
    """
    for document, blocks in groupby(_blocks(lines, source), key=lambda block: block.document):
        first = next(blocks)
        if document.startswith(_NEW_TESTAMENT) and not new_testament:
            note(Event.NEW_TESTAMENT, document, first.line)
            continue
        names = 0
        for block in (first, *blocks):
            spans = _outermost(_read_names(block, source), note, block.line)
            names += len(spans)
            words = tuple(written(row[_WORD]) for row in block.rows)
            yield Sentence(words, spans, (), block.line, block.starts_document)
        if not names:
            note(Event.NAMELESS, document, first.line)


def written(word: str) -> str:
    """A word of the Treebank as the text has it."""
    return _WRITTEN.get(word) or word.replace("\\/", "/").replace("\\*", "*")


def _blocks(lines: Iterable[tuple[int, str]], source: str) -> Iterator[_Block]:
    rows: list[list[str]] = []
    within, starts_document, number = "", True, 0
    for number, line in lines:
        begins = line.startswith(_BEGIN)
        if line.strip() and not begins and not line.startswith(_END):
            rows.append(_split(line, within, source, number))
            continue
        if rows:
            yield _Block(rows, number - len(rows), starts_document)
            rows, starts_document = [], False
        if begins:
            _check_ended(within, source, number)
            within, starts_document = line.removeprefix(_BEGIN).strip(), True
        elif line.strip():
            within = ""
    _check_ended(within, source, number)


def _check_ended(within: str, source: str, number: int) -> None:
    if within:
        remedy = f"Is the file whole? Each document ends with a line `{_END}`."
        raise CorpusError(source, f"there is no end of the document {within}", remedy, line=number)


def _split(line: str, within: str, source: str, number: int) -> list[str]:
    columns = _SPACES.split(line.strip(" \t"))
    if not within:
        remedy = f"Begin each document with a line like `{_BEGIN} (nw/wsj/24/wsj_2401); part 000`."
        raise CorpusError(source, "the line stands outside a document", remedy, line=number)
    if len(columns) < _MIN_COLUMNS:
        remedy = "CoNLL-2012 has the word in column 4, its names in column 11 and coreference in the last."
        reason = f"the line has {len(columns)} columns, fewer than {_MIN_COLUMNS}"
        raise CorpusError(source, reason, remedy, line=number)
    if columns[_WORD] == _PLACEHOLDER:
        remedy = "Put the words of OntoNotes (LDC2013T19) in by skeleton2conll of the CoNLL-2012 release."
        raise CorpusError(source, f"the file is a skeleton, with {_PLACEHOLDER} for each word", remedy, line=number)
    return columns


def _read_names(block: _Block, source: str) -> list[Entity]:
    """The names of a sentence in brackets, inner ones before those that they stand in."""
    spans: list[Entity] = []
    begun: list[tuple[int, str]] = []
    for index, row in enumerate(block.rows):
        cell = row[_NAMES]
        if _BRACKETS.fullmatch(cell) is None:
            raise _malformed(f"'{cell[:60]}' in column 11 is no name in brackets", source, block.line + index)
        begun += [(index, label) for label in _LABEL.findall(cell)]
        for _ in range(cell.count(")")):
            if not begun:
                raise _malformed(f"'{cell}' in column 11 ends a name that has not begun", source, block.line + index)
            start, label = begun.pop()
            spans.append(Entity(start, index + 1, label))
    if begun:
        start, label = begun[-1]
        raise _malformed(f"the name '({label}' does not end in its sentence", source, block.line + start)
    return spans


def _malformed(reason: str, source: str, line: int) -> CorpusError:
    remedy = "Write a name as (LABEL* on its first word, * within and *) on its last, or as (LABEL) on its only one."
    return CorpusError(source, reason, remedy, line=line)


def _outermost(spans: Sequence[Entity], note: Note, line: int) -> tuple[Entity, ...]:
    """The names that stand in no other. OntoNotes marks no others, but the notation could."""
    kept: list[Entity] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if kept and span.start < kept[-1].end:
            note(Event.OVERLAP, span.label, line + span.start)
        else:
            kept.append(span)
    return tuple(kept)
