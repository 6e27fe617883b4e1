"""Convert OntoNotes in the column format of CoNLL-2012 (`*_gold_conll`) to words and tags for `spacy tener convert`.

    #begin document (nw/wsj/24/wsj_2401); part 000
    nw/wsj/24/wsj_2401  0  0  Eli    NNP  (TOP(S(NP*  -  -  -  -  (PERSON*  *  -
    nw/wsj/24/wsj_2401  0  1  Broad  NNP           *)  -  -  -  -        *)  *  -

    #end document

Column 4 contains the word, and column 11 the entities as brackets. A sentence has one further column for each
predicate, so the number of columns differs between sentences. Blank lines separate sentences. Each part of a document
becomes a document.

As in the papers, documents of the New Testament (with ids that begin with `pt/`) are excluded, since they have no
entity annotation. For nested brackets, which the format allows but OntoNotes does not contain, only the outermost
entity is converted.

Words are converted from Treebank notation to plain text, which pretrained vectors expect: `-LRB-` becomes an opening
bracket, and the punctuation `/.` of transcripts becomes a full stop.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from spacy_tener.corpora.columns import DOCUMENT_START
from spacy_tener.errors import InputError
from spacy_tener.inputs import read_lines

BEGIN, END = "#begin document", "#end document"
ENDINGS = (".gold_conll", ".v4_gold_conll", ".v9_gold_conll")
DOCUMENT, WORD, NAMES = 0, 3, 10  # column indices, starting from 0
MIN_COLUMNS = 12
PLACEHOLDER = "[WORD]"
NEW_TESTAMENT = "pt/"
SPACES = re.compile(r"[ \t]+")
BRACKETS = re.compile(r"(?:\([^()*]+)*\*?\)*")
LABEL = re.compile(r"\(([^()*]+)")
PLAIN = {
    **dict(zip(("-LRB-", "-RRB-", "-LSB-", "-RSB-", "-LCB-", "-RCB-"), "()[]{}", strict=True)),
    **{f"/{mark}": mark for mark in ".,?!:;-"},
}


def write_columns(folder: Path, output: Path) -> None:
    """Convert all CoNLL-2012 files below a directory, and write them to a single file."""
    with output.open("w", encoding="utf8", newline="\n") as stream:
        for path in sorted(path for path in folder.rglob("*") if path.suffix in ENDINGS):
            stream.writelines(f"{line}\n" for line in read_columns(path))


def read_columns(path: Path) -> Iterator[str]:
    """Yield the lines `word TAB tag` of a file in IOB2, with blank lines between sentences and a document start marker
    before each document."""
    document, number = "", 0
    labels: list[str] = []  # labels of the open brackets, outermost first
    for number, line in read_lines(path):
        if line.strip() and not line.startswith((BEGIN, END)):
            if not document:
                fix = f"Begin each document with a line like `{BEGIN} (nw/wsj/24/wsj_2401); part 000`."
                raise InputError(str(path), "the line is outside a document", fix, line=number)
            columns = split_columns(path, line, number)
            tag = read_tag(path, columns[NAMES], labels, number)
            if not columns[DOCUMENT].startswith(NEW_TESTAMENT):
                yield f"{plain_word(columns[WORD])}\t{tag}"
            continue
        if labels:
            raise malformed(path, f"the name '({labels[-1]}' does not end in its sentence", number - 1)
        yield ""
        if line.startswith(BEGIN):
            check_end(path, document, number)
            document = line.removeprefix(BEGIN).strip()
            yield from (f"{DOCUMENT_START}\tO", "")
        elif line.startswith(END):
            document = ""
    check_end(path, document, number)


def split_columns(path: Path, line: str, number: int) -> list[str]:
    """Split a line into columns. Raise an error if the file is a skeleton without words."""
    columns = SPACES.split(line.strip(" \t"))
    if len(columns) < MIN_COLUMNS:
        fix = "CoNLL-2012 has the word in column 4, its names in column 11 and coreference in the last."
        raise InputError(str(path), f"the line has {len(columns)} columns, fewer than {MIN_COLUMNS}", fix, line=number)
    if columns[WORD] == PLACEHOLDER:
        fix = "Fill in the words of OntoNotes (LDC2013T19) with skeleton2conll of the CoNLL-2012 release."
        raise InputError(str(path), f"the file is a skeleton, with {PLACEHOLDER} for each word", fix, line=number)
    return columns


def read_tag(path: Path, cell: str, labels: list[str], number: int) -> str:
    """Return the IOB2 tag of a word from its entity column. Updates `labels`, the labels of the open brackets."""
    if BRACKETS.fullmatch(cell) is None:
        raise malformed(path, f"'{cell[:60]}' in column 11 is not a name in brackets", number)
    is_inside = bool(labels)
    labels += LABEL.findall(cell)
    tag = f"{'I' if is_inside else 'B'}-{labels[0]}" if labels else "O"
    for _ in range(cell.count(")")):
        if not labels:
            raise malformed(path, f"'{cell}' in column 11 ends a name that has not begun", number)
        labels.pop()
    return tag


def plain_word(word: str) -> str:
    """Convert a word from Treebank notation to plain text."""
    return PLAIN.get(word) or word.replace("\\/", "/").replace("\\*", "*")


def check_end(path: Path, document: str, number: int) -> None:
    """Raise an error if a document is still open, that is, if its last line is missing."""
    if document:
        fix = f"Check that the file is complete: each document ends with a line `{END}`."
        raise InputError(str(path), f"there is no end of the document {document}", fix, line=number)


def malformed(path: Path, reason: str, number: int) -> InputError:
    fix = "Write a name as (LABEL* on its first word, * within and *) on its last, or as (LABEL) on its only one."
    return InputError(str(path), reason, fix, line=number)
