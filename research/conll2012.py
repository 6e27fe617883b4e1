"""OntoNotes in the columns of CoNLL-2012 (`*_gold_conll`), as words and tags that `tener convert` reads.

    #begin document (nw/wsj/24/wsj_2401); part 000
    nw/wsj/24/wsj_2401  0  0  Eli  NNP  (TOP(S(NP*  -  -  -  -  (PERSON*  *  -
    nw/wsj/24/wsj_2401  0  1  Broad  NNP  *)  -  -  -  -  *)  *  -
    #end document

Column 4 is the word, column 11 the names in brackets. After the names there is a column for each predicate of the
sentence, so sentences differ in width. Blank lines end a sentence. Each part of a document counts as a document.

Documents of the New Testament, whose ids begin with `pt/`, are left out, as in the papers: nobody annotated names in
them. Names within names, which the format allows and OntoNotes does not have, are left out too.

Words become plain text: the Treebank writes brackets as `-LRB-`, and transcripts write punctuation as `/.`, which other
text and pretrained vectors do not have.
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
DOCUMENT, WORD, NAMES = 0, 3, 10  # columns, counted from 0
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
    """Write the words and tags of all files below a directory into one file."""
    with output.open("w", encoding="utf8", newline="\n") as stream:
        for path in sorted(path for path in folder.rglob("*") if path.suffix in ENDINGS):
            stream.writelines(f"{line}\n" for line in read_columns(path))


def read_columns(path: Path) -> Iterator[str]:
    """Yield a line `word TAB tag` for each word of a file, in IOB2, with blank lines and document starts between."""
    document, number = "", 0
    labels: list[str] = []  # of the names that are open, the outermost first
    for number, line in read_lines(path):
        if line.strip() and not line.startswith((BEGIN, END)):
            if not document:
                remedy = f"Begin each document with a line like `{BEGIN} (nw/wsj/24/wsj_2401); part 000`."
                raise InputError(str(path), "the line is outside a document", remedy, line=number)
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
    """Return the columns of a line. A skeleton without words is refused."""
    columns = SPACES.split(line.strip(" \t"))
    if len(columns) < MIN_COLUMNS:
        remedy = "CoNLL-2012 has the word in column 4, its names in column 11 and coreference in the last."
        raise InputError(
            str(path), f"the line has {len(columns)} columns, fewer than {MIN_COLUMNS}", remedy, line=number
        )
    if columns[WORD] == PLACEHOLDER:
        remedy = "Fill in the words of OntoNotes (LDC2013T19) with skeleton2conll of the CoNLL-2012 release."
        raise InputError(str(path), f"the file is a skeleton, with {PLACEHOLDER} for each word", remedy, line=number)
    return columns


def read_tag(path: Path, cell: str, labels: list[str], number: int) -> str:
    """Return the tag of a word by its cell of names, and update the labels of the open names."""
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
    """Return a word in Treebank notation as plain text."""
    return PLAIN.get(word) or word.replace("\\/", "/").replace("\\*", "*")


def check_end(path: Path, document: str, number: int) -> None:
    """Refuse a document without its last line."""
    if document:
        remedy = f"Check that the file is complete: each document ends with a line `{END}`."
        raise InputError(str(path), f"there is no end of the document {document}", remedy, line=number)


def malformed(path: Path, reason: str, number: int) -> InputError:
    remedy = "Write a name as (LABEL* on its first word, * within and *) on its last, or as (LABEL) on its only one."
    return InputError(str(path), reason, remedy, line=number)
