"""Paragraphs of raw text from text files (one per line), JSONL, `.spacy` files, directories and standard input.

They are streamed, so only one is in memory, except that a `.spacy` file is read as a whole.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path

from spacy.language import Language
from spacy.tokens import Doc

from ..errors import InputError
from ..inputs import STDIN, TEXT, DamagedText, check_text, find_files, format_of, parse_object, read_lines, suffix_of
from .docbins import read_docs

_TEXT, _JSONL, _SPACY = ".txt", ".jsonl", ".spacy"


def find_texts(inputs: Sequence[str | Path]) -> tuple[list[str], list[str]]:
    """Return the files to read, in order, and the files in directories that are left out for their endings.

    A file that is named several times is read as often. Of directories, `.txt`, `.jsonl` and `.spacy` files at any
    depth are read, also compressed ones; hidden files are neither read nor listed.
    """
    remedy = f"Name the files themselves, or give them one of the endings {_TEXT}, {_JSONL} or {_SPACY}."
    files, left_out = find_files(inputs, lambda path: suffix_of(path) in (_TEXT, _JSONL, _SPACY), "text", remedy)
    return [file.address for file in files], left_out


def comes_once(source: str | Path) -> bool:
    """Return whether a source can be read only once: standard input, or a pipe."""
    return str(source) == STDIN or (Path(source).exists() and not Path(source).is_file())


def read_texts(source: str | Path) -> Iterator[str]:
    """Yield the paragraphs of a file, or of standard input for `-`. Some may be empty or blank. Refuses tables."""
    format = format_of(source)
    if format == "spacy":
        for doc in read_docs(Path(source)):
            yield from doc.text.split("\n")
    elif format == "jsonl":
        yield from _json_texts(source)
    elif format != TEXT:
        raise InputError(str(source), "is a table", "Write its texts to a file, one on each line.")
    else:
        yield from (line for _, line in read_lines(source))


def read_all(sources: Sequence[str]) -> Generator[str]:
    """Yield the paragraphs of several files, stripped of white space, without blank ones."""
    return (text.strip() for source in sources for text in read_texts(source) if text.strip())


def make_docs(nlp: Language, texts: Iterable[str]) -> Iterator[Doc]:
    """Yield the Docs of the pipeline's tokenizer, for texts of any length."""
    # nlp.make_doc and nlp.pipe refuse texts over nlp.max_length, a million characters, for the sake of components that
    # process a whole Doc at once. Raw text is processed in windows here, or cut.
    return map(nlp.tokenizer, texts)


def _json_texts(source: str | Path) -> Iterator[str]:
    for number, line in read_lines(source):
        if line.strip():
            record = parse_object(line)
            text = record if isinstance(record, DamagedText) else check_text(record.get("text"))
            if isinstance(text, DamagedText):
                raise InputError(str(source), text.reason, 'Write {"text": "..."}.', line=number)
            yield from text.split("\n")
