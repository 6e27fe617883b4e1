"""A corpus file of any known format, as sentences or texts with their entities."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path

from .columns import DOCUMENT_START, has_positions, read_columns, split_line
from .conll2012 import CONLL_2012, is_conll_2012, read_conll_2012
from .json_records import PARSERS, RecordError, detect, read_records
from .lines import read_lines
from .offsets import SpanRules, annotate
from .records import AnnotatedText, CorpusError, Event, Notes, Sentence
from .schemes import TagReader, check_scheme

AUTO = "auto"
COLUMN_FORMATS = ("columns", "weibo")
FORMATS = (*COLUMN_FORMATS, *PARSERS, CONLL_2012)

_SAMPLE_LINES = 1000
# A column may hold a bracket, but not with what begins a record behind it.
_JSON_START = re.compile(r"""\s*(\{\s*("|$)|\[\s*(\{|\]|$))""")


@dataclass(frozen=True)
class ReadOptions:
    """How to read a corpus.

    format: One of `FORMATS`, or `auto` to tell by the first lines.
    scheme: One of `SCHEMES`, or `auto` to tell by the tags.
    spans: How to read character offsets.
    new_testament: Whether to read the documents of the New Testament in `conll2012`, which have no names annotated.
    """

    format: str = AUTO
    scheme: str = AUTO
    spans: SpanRules = field(default_factory=SpanRules)
    new_testament: bool = False

    def __post_init__(self) -> None:
        if self.format not in (AUTO, *FORMATS):
            raise ValueError(f"Unknown corpus format '{self.format}'. Use one of: auto, {', '.join(FORMATS)}.")
        if self.scheme != AUTO:
            check_scheme(self.scheme)


class CorpusReader:
    """Iterates over the sentences (of `columns`, `weibo` and `conll2012`) or texts (of the JSON formats) of one file.

    The file is read as a stream, so `format`, `scheme` and `notes` speak of what has been read so far; after the last
    sentence they hold for the whole file. Standard input (`-`) can be read once.
    """

    def __init__(self, path: Path | str, options: ReadOptions) -> None:
        self.path = path
        self.options = options
        self.format = options.format
        self._tags = TagReader(options.scheme, source=str(path))
        self._notes = Notes()

    @property
    def scheme(self) -> str | None:
        """The tag scheme; None for a file without entity tags."""
        return self._tags.scheme if self.format in COLUMN_FORMATS else None

    @property
    def notes(self) -> Notes:
        notes = Notes()
        notes.update(self._notes)
        notes.update(self._tags.repairs)
        return notes

    def note(self, event: Event, detail: str, line: int) -> None:
        self._notes.add(event, detail, line)

    def __iter__(self) -> Iterator[Sentence | AnnotatedText]:
        source = str(self.path)
        self._tags, self._notes = TagReader(self.options.scheme, source=source), Notes()
        lines = read_lines(self.path)
        self.format = self.options.format
        if self.format == AUTO:
            sample = _sample(lines)
            lines = chain(sample, lines)
            self.format = detect_columns(line for _, line in sample) or AUTO
        if self.format in COLUMN_FORMATS:
            yield from read_columns(lines, self._tags, positions=self.format == "weibo", source=source)
        elif self.format == CONLL_2012:
            new_testament = self.options.new_testament
            yield from read_conll_2012(lines, source=source, note=self.note, new_testament=new_testament)
        else:
            yield from self._texts(lines)

    def _texts(self, lines: Iterable[tuple[int, str]]) -> Iterator[AnnotatedText]:
        source = str(self.path)
        for line, record in read_records(lines, source=source):
            if self.format == AUTO:
                self.format = detect(record)
            try:
                raw = PARSERS[self.format](record, partial(self.note, line=line))
            except RecordError as error:
                raise CorpusError(source, error.reason, error.remedy, line=line) from error
            if raw is not None:
                yield annotate(raw, self.options.spans, self._notes, source=source, line=line)


def read_corpus(path: Path | str, options: ReadOptions | None = None) -> CorpusReader:
    """Read a corpus file, or standard input for `-`. See `CorpusReader`."""
    return CorpusReader(path, options or ReadOptions())


def _sample(lines: Iterator[tuple[int, str]]) -> list[tuple[int, str]]:
    """As many of the first lines as it takes to tell the format. Of JSON, whose lines may be long, that is one."""
    sample = []
    for number, line in islice(lines, _SAMPLE_LINES):
        sample.append((number, line))
        if _JSON_START.match(line):
            break
    return sample


def detect_columns(lines: Iterable[str]) -> str | None:
    """Which of the formats that are not JSON a file has, by its first lines; None for a file of JSON."""
    data = [line for line in lines if line.strip() and not line.startswith(DOCUMENT_START)]
    if data and _JSON_START.match(data[0]):
        return None
    if data and is_conll_2012(data[0]):
        return CONLL_2012
    return "weibo" if has_positions(split_line(line)[0] for line in data) else "columns"
