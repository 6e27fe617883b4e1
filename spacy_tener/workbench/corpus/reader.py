"""A corpus file of any known format, as sentences or texts with their entities."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from ...errors import RemedyError, check_choice
from ...inputs import STDIN, check_encoding, read_lines
from .brat import ANNOTATIONS, BRAT, is_brat, parse_brat
from .columns import DOCUMENT_START, ColumnReader, has_indices, has_positions, read_blocks, split_line
from .conll2012 import CONLL_2012, Conll2012Reader, is_conll_2012, read_documents
from .json_records import PARSERS, detect
from .json_values import check_record, read_records
from .offsets import OVERLAPS, UNITS, RawText, resolve_spans
from .records import AnnotatedText, Event, Notes, RecordError, Sentence
from .schemes import AUTO, SCHEMES, TagReader
from .tokens import TOKENS, parse_tokens, read_tag_names

COLUMN_FORMATS = ("columns", "weibo")
FORMATS = (*COLUMN_FORMATS, *PARSERS, TOKENS, BRAT, CONLL_2012)

Item = Sentence | AnnotatedText

_SAMPLE_LINES = 1000
# A column may hold a bracket, but not with what begins a record behind it.
_JSON_START = re.compile(r"""\s*(\{\s*("|$)|\[\s*(\{|\]|$|"\S.*\{|\[\s*("|$)))""")


@dataclass(frozen=True)
class ReadOptions:
    """How to read a corpus.

    format: One of `FORMATS`, or `auto` to tell by the first lines.
    scheme: One of `SCHEMES`, or `auto` to tell by the tags.
    offsets: What character offsets count: one of `UNITS`.
    overlap: What to do with spans that overlap: one of `OVERLAPS`.
    new_testament: Whether to read the documents of the New Testament in `conll2012`, which have no names annotated.
    encoding: Of the files' text.
    token_column, tag_column: Where `columns` has its tokens and tags, from 1, or from -1 for the last; None for the
        first, or the second where the first numbers the tokens, and the last.
    tag_names: The names of the numbers that `tokens` has for tags. See `read_tag_names`.
    """

    format: str = AUTO
    scheme: str = AUTO
    offsets: str = "codepoint"
    overlap: str = "error"
    new_testament: bool = False
    encoding: str = "utf-8"
    token_column: int | None = None
    tag_column: int | None = None
    tag_names: str = ""

    def __post_init__(self) -> None:
        check_choice("corpus format", self.format, (AUTO, *FORMATS))
        check_choice("tag scheme", self.scheme, (AUTO, *SCHEMES))
        check_choice("unit of offsets", self.offsets, UNITS)
        check_choice("way to read overlaps", self.overlap, OVERLAPS)
        if 0 in (self.token_column, self.tag_column):
            raise RemedyError("There is no column 0", "Columns count from 1, or from -1 for the last.")
        check_encoding(self.encoding)


class CorpusReader:
    """Iterates over the sentences (of columns and tokens) or texts (of the other formats) of one file.

    The file is read as a stream, so `format`, `scheme` and `notes` speak of what has been read so far; after the last
    sentence they hold for the whole file. Records that cannot be read are passed over, and told in one error at the
    end. Standard input (`-`) can be read once.
    """

    def __init__(self, path: Path | str, options: ReadOptions | None = None) -> None:
        self.path = path
        self.options = options or ReadOptions()
        self._begin()

    def _begin(self) -> None:
        self.format = self.options.format
        self.items = 0
        """How many sentences or texts were read."""
        self._tags = TagReader(self.options.scheme)
        self._notes = Notes(str(self.path))
        self._tag_names: tuple[str, ...] | None = None

    @property
    def scheme(self) -> str | None:
        """The tag scheme; None for a file without entity tags."""
        return self._tags.scheme if self.format in (*COLUMN_FORMATS, TOKENS) else None

    @property
    def notes(self) -> Notes:
        notes = Notes(self._notes.source)
        notes.update(self._notes)
        notes.update(self._tags.repairs)
        return notes

    def note(self, event: Event, detail: str, line: int | None) -> None:
        self._notes.add(event, detail, line)

    def __iter__(self) -> Iterator[Item]:
        self._begin()
        entities = 0
        for item in self._read():
            self.items += 1
            entities += len(item.spans)
            yield item
        self._notes.raise_errors()
        if self.items and not entities:
            self._notes.add(Event.NO_ENTITIES, f"{self.items:,} sentences or texts read as '{self.format}'")

    def _read(self) -> Iterator[Item]:
        """What can be read; the rest is noted."""
        line = 1
        try:
            records, parse = self._open()
            for line, record in records:
                try:
                    items = parse(record, line)
                except RecordError as error:
                    self._notes.refuse(error, line)
                else:
                    yield from items
        except RecordError as error:  # after which nothing can be read
            self._notes.refuse(error, line)

    def _open(self) -> tuple[Iterable[tuple[int, Any]], Callable[[Any, int], Iterable[Item]]]:
        """The records of the file with their lines, and what makes sentences or texts of each."""
        path, options = Path(self.path), self.options
        if self.format == BRAT or (self.format == AUTO and str(self.path) != STDIN and is_brat(path)):
            self.format = BRAT
            return [(1, path.with_suffix(ANNOTATIONS))], self._brat
        lines = read_lines(self.path, options.encoding)
        sample: list[tuple[int, str]] = []
        if self.format in (AUTO, *COLUMN_FORMATS):
            sample = _sample(lines)
            lines = chain(sample, lines)
        if self.format == AUTO:
            self.format = detect_columns((line for _, line in sample), options.token_column is None) or AUTO
        if self.format == CONLL_2012:
            return read_documents(lines), Conll2012Reader(self._notes, options.new_testament)
        if self.format not in COLUMN_FORMATS:
            return read_records(lines), self._json
        token, tag = options.token_column, options.tag_column
        reader = ColumnReader(
            self._tags,
            self._notes,
            token=int(has_indices(sample)) if token is None else token - (token > 0),
            tag=-1 if tag is None else tag - (tag > 0),
            positions=self.format == "weibo",
        )
        return read_blocks(lines), reader

    def _brat(self, path: Path, line: int) -> list[Item]:
        encoding = self.options.encoding
        raw = parse_brat(path, read_lines(path, encoding), encoding, self._notes)
        return self._texts([raw], line)

    def _json(self, value: object, line: int) -> list[Item]:
        record = check_record(value)
        if self.format == AUTO:
            self.format = detect(record)
        if self.format == TOKENS:
            return [self._tokens(record, line)]
        texts = PARSERS[self.format](record, partial(self.note, line=line))
        return self._texts(texts, line)

    def _texts(self, texts: Iterable[RawText], line: int) -> list[Item]:
        units, overlap = self.options.offsets, self.options.overlap
        return [resolve_spans(raw, self._notes, line, units=units, overlap=overlap) for raw in texts]

    def _tokens(self, record: dict[str, Any], line: int) -> Sentence:
        if self._tag_names is None:
            self._tag_names = read_tag_names(self.options.tag_names, self.path)
        tokens, tags = parse_tokens(record, self._tag_names)
        spans, missing = self._tags.read(tags, line=line, step=0)
        return Sentence(tokens, spans, missing, line, self.items == 0)


def _sample(lines: Iterator[tuple[int, str]]) -> list[tuple[int, str]]:
    """As many of the first lines as it takes to tell the format. Of JSON, whose lines may be long, that is one."""
    sample = []
    for number, line in islice(lines, _SAMPLE_LINES):
        sample.append((number, line))
        if _JSON_START.match(line):
            break
    return sample


def detect_columns(lines: Iterable[str], positions: bool = True) -> str | None:
    """Which of the formats that are not JSON a file has, by its first lines; None for a file of JSON.

    positions: whether the tokens may carry positions, so that it can be Weibo.
    """
    data = [line for line in lines if line.strip() and not line.startswith(DOCUMENT_START)]
    if data and _JSON_START.match(data[0]):
        return None
    if data and is_conll_2012(data[0]):
        return CONLL_2012
    return "weibo" if positions and has_positions(split_line(line)[0] for line in data) else "columns"
