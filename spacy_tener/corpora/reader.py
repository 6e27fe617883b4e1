"""Read corpus files in all supported formats.

`CorpusReader` detects the format of a file, and iterates over its sentences or texts:

    reader = CorpusReader("train.char.bmes")
    for sentence in reader:
        print(sentence.tokens, sentence.spans)
    print(reader.format, reader.scheme, reader.notes.counts)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from ..errors import UserError, check_choice
from ..inputs import check_encoding, read_lines
from .annotation import (
    CLUENER,
    COLUMN_FORMATS,
    CORPUS_FORMATS,
    LABEL_STUDIO,
    OVERLAPS,
    TOKENS,
    AnnotatedText,
    Event,
    JsonRecord,
    Note,
    Notes,
    RecordError,
    Sentence,
    resolve_spans,
)
from .columns import (
    AUTO,
    DOCUMENT_START,
    ColumnReader,
    TagReader,
    find_scheme,
    has_indices,
    has_positions,
    read_blocks,
    split_line,
)
from .json_records import check_record, detect, parse_cluener, parse_flat, parse_tokens, read_records
from .label_studio import parse_label_studio

# Formats with tokens contain sentences. Formats with character offsets contain texts.
Item = Sentence | AnnotatedText

_SAMPLE_LINES = 1000
# Detects JSON by its first bracket and the following character. The bracket alone could be a token in a file with
# columns.
_JSON_START = re.compile(r"""\s*(\{\s*("|$)|\[\s*(\{|\]|$|".*"\s*,\s*\{|\[\s*("|$)))""")


@dataclass(frozen=True)
class CorpusOptions:
    """Options for reading a corpus.

    format (str): One of `CORPUS_FORMATS`, or `auto` to detect the format.
    scheme (str): Tag scheme, one of `SCHEMES` or `ALIASES`, or `auto` to detect the scheme.
    overlap (str): What to do with overlapping entities, one of `OVERLAPS`. See `resolve_spans`.
    texts (tuple[str, ...]): Keys of texts in Label Studio tasks to read even if they contain no entities.
    encoding (str): File encoding.
    token_column (int | None): Number of the token column, counted from 1. Negative numbers count from the last column.
        None for the first column, or for the second column if the first contains token numbers.
    tag_column (int | None): Number of the tag column, counted in the same way. None for the last column.
    tag_names (tuple[str, ...]): Tag names, if a file in the format `tokens` contains tags as numbers.
    """

    format: str = AUTO
    scheme: str = AUTO
    overlap: str = "error"
    texts: tuple[str, ...] = ()
    encoding: str = "utf-8"
    token_column: int | None = None
    tag_column: int | None = None
    tag_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_choice("corpus format", self.format, (AUTO, *CORPUS_FORMATS))
        find_scheme(self.scheme)
        check_choice("value", self.overlap, OVERLAPS, "of overlap")
        if 0 in (self.token_column, self.tag_column):
            raise UserError("There is no column 0", "Use 1 for the first column, or -1 for the last column.")
        check_encoding(self.encoding)


class CorpusReader:
    """Iterator over the sentences or texts in a corpus file.

    The file is read while you iterate over the reader, which is possible only once. Afterwards, `format`, `scheme` and
    `notes` describe the file. Invalid sentences and records are skipped. At the end of the file, a CorpusError lists
    them.

    path (Path | str): File path, or `-` for standard input.
    options (CorpusOptions | None): Format and options.
    format (str): File format. `auto` before it is detected.
    items (int): Number of sentences or texts read so far.
    """

    def __init__(self, path: Path | str, options: CorpusOptions | None = None) -> None:
        self.path = path
        self.options = options or CorpusOptions()
        self.format = self.options.format
        self.items = 0
        self._tags = TagReader(self.options.scheme)
        self._notes = Notes(str(self.path))

    @property
    def scheme(self) -> str | None:
        """Return the detected tag scheme. None if the file contains no entity tags."""
        return self._tags.scheme if self.format in (*COLUMN_FORMATS, TOKENS) else None

    @property
    def notes(self) -> Notes:
        """Return the log of corrections and omissions in the lines read so far."""
        notes = Notes(self._notes.source)
        notes.update(self._notes)
        notes.update(self._tags.repairs)
        return notes

    def note(self, event: Event, detail: str, line: int | None) -> None:
        """Count a correction or an omission."""
        self._notes.add(event, detail, line)

    def __iter__(self) -> Iterator[Item]:
        """Yield the sentences or texts. Raises a CorpusError at the end of the file if any is invalid."""
        entities, line = 0, 1
        try:
            records, parse = self._open()
            for line, record in records:
                try:
                    items = parse(record, line)
                except RecordError as error:
                    self._notes.refuse(error, line)
                    continue
                for item in items:
                    self.items += 1
                    entities += len(item.spans) + (len(item.incorrect) if isinstance(item, AnnotatedText) else 0)
                    yield item
        except RecordError as error:
            # The file's JSON is invalid, so the rest of the file cannot be parsed.
            self._notes.refuse(error, line)
        self._notes.raise_errors()
        if self.items and not entities:
            self._notes.add(Event.NO_ENTITIES, f"{self.items:,} sentences or texts read as '{self.format}'")

    def _open(self) -> tuple[Iterable[tuple[int, Any]], Callable[[Any, int], Iterable[Item]]]:
        """Open the file and detect its format.

        RETURNS (tuple[Iterable, Callable]): Unparsed sentences or records with their line numbers, and the function
            that parses them.
        """
        options = self.options
        lines = read_lines(self.path, options.encoding)
        sample: list[tuple[int, str]] = []
        if self.format in (AUTO, *COLUMN_FORMATS):
            sample = _sample(lines)
            lines = chain(sample, lines)
        if self.format == AUTO:
            self.format = detect_columns((line for _, line in sample), options.token_column is None) or AUTO
        if self.format not in COLUMN_FORMATS:
            return read_records(lines), self._parse_record
        token, tag = options.token_column, options.tag_column
        reader = ColumnReader(
            self._tags,
            self._notes,
            token=int(has_indices(sample)) if token is None else token - (token > 0),
            tag=-1 if tag is None else tag - (tag > 0),
            positions=self.format == "weibo",
        )
        return read_blocks(lines), reader

    def _parse_record(self, value: object, line: int) -> list[Item]:
        """Parse a JSON record in any format. With `format = "auto"`, the first record determines the file format."""
        record = check_record(value)
        if self.format == AUTO:
            self.format = detect(record)
        if self.format != TOKENS:
            note = partial(self.note, line=line)
            texts = self._parse_texts(record, note)
            return [resolve_spans(raw, note, line, self.options.overlap) for raw in texts]
        tokens, tags = parse_tokens(record, self.options.tag_names)
        spans, missing = self._tags.read(tags, line=line, step=0)
        return [Sentence(tokens, spans, missing, line)]

    def _parse_texts(self, record: JsonRecord, note: Note) -> list[AnnotatedText]:
        """Parse a JSON record in a format with character offsets."""
        if self.format == LABEL_STUDIO:
            return parse_label_studio(record, note, self.options.texts)
        return parse_cluener(record) if self.format == CLUENER else parse_flat(record, note)


def _sample(lines: Iterator[tuple[int, str]]) -> list[tuple[int, str]]:
    """Return the first lines of a file, to detect its format.

    In a JSON file, only the lines up to the first record are returned, since lines may be long.
    """
    sample = []
    for number, line in islice(lines, _SAMPLE_LINES):
        sample.append((number, line))
        if _JSON_START.match(line):
            break
    return sample


def detect_columns(lines: Iterable[str], positions: bool) -> str | None:
    """Detect whether a file contains columns or JSON.

    lines (Iterable[str]): First lines of the file.
    positions (bool): Whether to detect the format `weibo`, in which tokens end in their position in the word.
    RETURNS (str | None): `columns` or `weibo`. None for JSON.
    """
    data = [line for line in lines if line.strip() and not line.startswith(DOCUMENT_START)]
    if data and _JSON_START.match(data[0]):
        return None
    return "weibo" if positions and has_positions(split_line(line)[0] for line in data) else "columns"
