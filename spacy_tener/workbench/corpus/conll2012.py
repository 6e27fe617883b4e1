"""OntoNotes in the columns of CoNLL-2012 (`*_gold_conll`), the format of the papers' English corpus.

    #begin document (nw/wsj/24/wsj_2401); part 000
    nw/wsj/24/wsj_2401  0  0  Eli  NNP  (TOP(S(NP*  -  -  -  -  (PERSON*  *  -
    nw/wsj/24/wsj_2401  0  1  Broad  NNP  *)  -  -  -  -  *)  *  -
    #end document

Column 4 is the word, column 11 the names in brackets. After the names there is a column for each predicate of the
sentence, so sentences differ in width. Blank lines end a sentence. Training, development and test part are the
directories of the CoNLL-2012 release, whose skeletons must be filled with the words.

Words are converted to plain text: the Treebank writes brackets as `-LRB-`, and transcripts write punctuation as `/.`,
which other text and pretrained vectors do not have. In Chinese files, too, tokens are words; a pipeline with
characters as tokens reads the text of the Docs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from .columns import DOCUMENT_START, Block, read_blocks
from .records import EntitySpan, Event, Notes, RecordError, Sentence

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
    """Return whether a file that begins with this line has the format."""
    return first_line.startswith(_BEGIN)


def read_documents(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, list[Block]]]:
    """Yield the sentences of each document, with the number of its first line."""
    for _, blocks in groupby(read_blocks(_inside(lines)), key=lambda each: each[1].lines[0][1].split()[_DOCUMENT]):
        document = [block for _, block in blocks]
        yield document[0].lines[0][0], document


@dataclass
class Conll2012Reader:
    """Reads the documents of one file. Each part of a document counts as a document.

    Documents of the New Testament, whose id begins with `pt/`, are left out, as in the papers: names in them are not
    annotated. Names in some other documents are not annotated either, which the format does not mark. They are kept,
    as in the papers, and counted.
    """

    notes: Notes

    def __call__(self, document: list[Block], line: int) -> list[Sentence]:
        name = _split(document[0].lines[0][1], line)[_DOCUMENT]
        if name.startswith(_NEW_TESTAMENT):
            self.notes.add(Event.NEW_TESTAMENT, name, line)
            return []
        sentences = [self._sentence(block) for block in document]
        if not any(sentence.spans for sentence in sentences):
            self.notes.add(Event.NAMELESS, name, line)
        return sentences

    def _sentence(self, block: Block) -> Sentence:
        rows = [_split(text, number) for number, text in block.lines]
        line = block.lines[0][0]
        spans = _read_names([row[_NAMES] for row in rows], line, self.notes)
        return Sentence(tuple(written(row[_WORD]) for row in rows), tuple(spans), (), line, block.starts_document)


def written(word: str) -> str:
    """Return a word in Treebank notation as plain text."""
    return _WRITTEN.get(word) or word.replace("\\/", "/").replace("\\*", "*")


def _inside(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yield the lines of the documents, with `-DOCSTART-` and a blank line in place of their begin and end lines."""
    document, number = "", 0
    for number, line in lines:
        if line.startswith(_BEGIN):
            _check_ended(document, number)
            document = line.removeprefix(_BEGIN).strip()
            yield number, DOCUMENT_START
        elif line.startswith(_END):
            document = ""
            yield number, ""
        elif line.strip() and not document:
            remedy = f"Begin each document with a line like `{_BEGIN} (nw/wsj/24/wsj_2401); part 000`."
            raise RecordError("the line is outside a document", remedy, line=number)
        else:
            yield number, line
    _check_ended(document, number)


def _check_ended(document: str, number: int) -> None:
    if document:
        remedy = f"Check that the file is complete: each document ends with a line `{_END}`."
        raise RecordError(f"there is no end of the document {document}", remedy, line=number)


def _split(line: str, number: int) -> list[str]:
    columns = _SPACES.split(line.strip(" \t"))
    if len(columns) < _MIN_COLUMNS:
        remedy = "CoNLL-2012 has the word in column 4, its names in column 11 and coreference in the last."
        raise RecordError(f"the line has {len(columns)} columns, fewer than {_MIN_COLUMNS}", remedy, line=number)
    if columns[_WORD] == _PLACEHOLDER:
        remedy = "Fill in the words of OntoNotes (LDC2013T19) with skeleton2conll of the CoNLL-2012 release."
        raise RecordError(f"the file is a skeleton, with {_PLACEHOLDER} for each word", remedy, line=number)
    return columns


def _read_names(cells: Sequence[str], line: int, notes: Notes) -> list[EntitySpan]:
    """Return the names of a sentence from their brackets. Names inside of others, which the format allows and OntoNotes
    does not have, are left out and counted."""
    spans: list[EntitySpan] = []
    begun: list[tuple[int, str]] = []
    for index, cell in enumerate(cells):
        if _BRACKETS.fullmatch(cell) is None:
            raise _malformed(f"'{cell[:60]}' in column 11 is not a name in brackets", line + index)
        begun += [(index, label) for label in _LABEL.findall(cell)]
        for _ in range(cell.count(")")):
            if not begun:
                raise _malformed(f"'{cell}' in column 11 ends a name that has not begun", line + index)
            start, label = begun.pop()
            if begun:
                notes.add(Event.OVERLAP, label, line + start)
            else:
                spans.append(EntitySpan(start, index + 1, label))
    if begun:
        start, label = begun[-1]
        raise _malformed(f"the name '({label}' does not end in its sentence", line + start)
    return spans


def _malformed(reason: str, line: int) -> RecordError:
    remedy = "Write a name as (LABEL* on its first word, * within and *) on its last, or as (LABEL) on its only one."
    return RecordError(reason, remedy, line=line)
