"""Data classes for annotated sentences and texts, with functions that validate them.

The parsers for all formats (`columns`, `json_records`, `label_studio`) return a `Sentence` or an `AnnotatedText`. They
count corrections in `Notes`, and raise a `RecordError` for an invalid sentence or JSON record.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import Any, TypeVar

from ..errors import InputError, UserError

# Key that marks the records written by `tener suggest`. The entities in these records are predictions that must still
# be corrected.
SUGGESTED = "suggested"
SEE_HELP = "See `python -m spacy tener convert --help` for the supported formats."

COLUMN_FORMATS = ("columns", "weibo")
TEXT_FORMATS = JSONL, LABEL_STUDIO, CLUENER = "jsonl", "labelstudio", "cluener"
TOKENS = "tokens"
CORPUS_FORMATS = (*COLUMN_FORMATS, *TEXT_FORMATS, TOKENS)
# How overlapping spans are handled, with a description for the help text.
OVERLAPS = {
    "error": "stop with an error",
    "longest": "keep only the longest span",
    "spans": "store all spans in doc.spans",
}

JsonRecord = dict[str, Any]

_T = TypeVar("_T")


class CorpusError(InputError):
    """Error in the content of a corpus file. Contains the file path and the line number."""


class RecordError(UserError):
    """Error in a single sentence or JSON record.

    `CorpusReader` skips the sentence or record, and reports all errors together at the end of the file.

    line (int | None): Line number of the error. None for the first line of the record.
    """

    def __init__(self, reason: str, fix: str, *, line: int | None = None) -> None:
        self.line = line
        super().__init__(reason, fix)


@dataclass(frozen=True)
class EntitySpan:
    """An entity with its offsets and its label.

    The offsets are token indices in a `Sentence`, and character offsets in an `AnnotatedText`.

    start (int): Offset of the first token or character.
    end (int): Offset after the last token or character.
    label (str): Entity type. Surrounding whitespace is removed.
    quoted (str | None): Entity text, if the file contains it. Used to validate the offsets.
    """

    start: int
    end: int
    label: str
    quoted: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", self.label.strip())


@dataclass(frozen=True)
class Sentence:
    """A tokenized sentence in a corpus.

    tokens (tuple[str, ...]): The sentence's tokens.
    spans (tuple[EntitySpan, ...]): Entities, with token indices.
    missing (tuple[int, ...]): Indices of tokens with missing annotation.
    line (int): Line number at which the sentence begins.
    spaces (tuple[bool, ...]): Whether each token is followed by a space. Empty if unknown.
    """

    tokens: tuple[str, ...]
    spans: tuple[EntitySpan, ...]
    missing: tuple[int, ...] = ()
    line: int = 1
    spaces: tuple[bool, ...] = ()

    @property
    def text(self) -> str:
        """Return the concatenated tokens, without spaces between them."""
        return "".join(self.tokens)


@dataclass(frozen=True)
class AnnotatedText:
    """A text in a corpus, with entities as character offsets.

    text (str): The text.
    spans (tuple[EntitySpan, ...]): Entities. They may be unsorted and overlap until `resolve_spans` is called.
    missing (tuple[tuple[int, int], ...]): Character ranges with missing annotation. Entities in these ranges are kept.
    line (int): Line number at which the record begins.
    incorrect (tuple[EntitySpan, ...]): Negative examples: spans that an annotator rejected. They may overlap.
    overlapping (tuple[EntitySpan, ...]): Entities that `resolve_spans` removed from `spans` because they overlap a
        longer entity.
    """

    text: str
    spans: tuple[EntitySpan, ...]
    missing: tuple[tuple[int, int], ...] = ()
    line: int = 1
    incorrect: tuple[EntitySpan, ...] = ()
    overlapping: tuple[EntitySpan, ...] = ()


class Event(Enum):
    """Corrections and omissions that are counted when a corpus is read.

    Each member's value is the message for the user.
    """

    REPAIRED = "Tags repaired"
    MISALIGNED = "Entities whose boundaries are not token boundaries; their tokens get missing annotation"
    SPLIT = "Tokens split at an entity boundary, because only punctuation is attached to the entity"
    TRIMMED = "Entities with whitespace at their boundaries, which is removed"
    BLANK = "Entities that contain only whitespace, left out"
    DUPLICATE = "Duplicate entities, left out"
    OVERLAP = "Entities that overlap a longer entity, left out"
    NO_ENTITIES = "Files without any entities (check that they are annotated, and that format and columns are right)"
    LEFT_OUT = "Records left out (rejected, cancelled or not annotated)"
    SUGGESTED = "Predictions that nobody has corrected, used as annotation (correct and export them with a tool)"
    LISTS = "Records with several lists of entities, merged (check that none of them contains predictions)"
    SEVERAL = "Texts annotated several times, used once (mark the right annotation as ground truth)"
    BINARY = "Records with accepted or rejected spans; the rest of their texts gets missing annotation"
    COMMENT = "Comment lines left out"
    NOT_A_CORPUS = "Files in directories that are not corpora, left out"


# Signature of a function that counts a correction or omission. The second argument describes the event, for the report.
Note = Callable[[Event, str], object]


@dataclass
class Notes:
    """Log of the corrections, omissions and errors in one file.

    source (str): File name.
    counts (Counter[Event]): Number of events per type.
    examples (dict[Event, list[str]]): Descriptions of the first `max_examples` events per type.
    errors (list[CorpusError]): The first `max_errors` errors.
    n_errors (int): Total number of errors.
    """

    source: str = ""
    counts: Counter[Event] = field(default_factory=Counter)
    examples: dict[Event, list[str]] = field(default_factory=dict)
    errors: list[CorpusError] = field(default_factory=list)
    n_errors: int = 0

    max_examples = 3
    max_errors = 10

    def add(self, event: Event, detail: str, line: int | None = None) -> None:
        """Count an event. The first descriptions are stored as examples.

        event (Event): Event type.
        detail (str): Event description.
        line (int | None): Line number of the event. None if the event concerns the whole file.
        """
        self.counts[event] += 1
        examples = self.examples.setdefault(event, [])
        if len(examples) < self.max_examples:
            examples.append(detail if line is None else f"line {line}: {detail}")

    def refuse(self, error: RecordError, line: int) -> None:
        """Store an error in a record, to report all errors in a file together.

        error (RecordError): The error.
        line (int): Line number to use if the error has no line number.
        """
        self.n_errors += 1
        if len(self.errors) < self.max_errors:
            self.errors.append(CorpusError(self.source, error.reason, error.fix, line=error.line or line))

    def raise_errors(self) -> None:
        """Raise a CorpusError for the first stored error, if there is any. The message also lists the other errors."""
        if not self.errors:
            return
        first, *rest = self.errors
        fix = first.fix
        if rest:
            listed = "; ".join(f"line {error.line}: {error.reason}" for error in rest)
            fix += f" {self.n_errors - 1} more records cannot be parsed: {listed}"
            fix += "; ..." if self.n_errors > len(self.errors) else "."
        raise CorpusError(self.source, first.reason, fix, line=first.line)

    def update(self, notes: Notes) -> None:
        """Add the counts and examples from another `Notes` object."""
        self.counts.update(notes.counts)
        for event, examples in notes.examples.items():
            total = self.examples.setdefault(event, [])
            total.extend(examples[: self.max_examples - len(total)])


# Validation of entities with character offsets.


def resolve_spans(raw: AnnotatedText, note: Note, line: int, overlap: str) -> AnnotatedText:
    """Return a copy of an annotated text with valid entities.

    Valid entities are inside the text, have a label, don't begin or end with whitespace, and don't overlap. If an
    entity is removed because it overlaps a longer entity, its remaining characters get missing annotation. They must
    not become O, since they belong to an entity.

    raw (AnnotatedText): Text with the entities as written in the file.
    note (Note): Function that counts corrections.
    line (int): Line number at which the record begins.
    overlap (str): What to do with overlapping entities. `error` raises a RecordError. `longest` keeps the longest
        entity, or the first if several have the same length. `spans` also keeps the longest entity, but doesn't count
        the other entities as omissions, since they are later stored in `doc.spans`.
    """
    spans, incorrect = (clean_spans(group, raw.text, note) for group in (raw.spans, raw.incorrect))
    contradictory = spans.keys() & incorrect.keys()
    if contradictory:
        reason = f"{_describe_span(contradictory.pop(), raw.text)} is both accepted and rejected"
        raise RecordError(reason, "Remove one of the two answers.")
    selected, dropped = _remove_overlaps(spans, lambda span: _describe_span(span, raw.text), note, overlap)
    missing = (*((span.start, span.end) for span in dropped), *raw.missing)
    return AnnotatedText(
        raw.text, tuple(selected), missing, line, incorrect=tuple(incorrect), overlapping=tuple(dropped)
    )


def _remove_overlaps(
    spans: Iterable[EntitySpan], shown: Callable[[EntitySpan], str], note: Note, overlap: str
) -> tuple[list[EntitySpan], list[EntitySpan]]:
    """Select the longest of overlapping entities.

    RETURNS (tuple[list[EntitySpan], list[EntitySpan]]): The selected entities, and the removed entities. Both are in
        text order.
    """
    ordered = sorted(spans, key=lambda span: (span.start, span.end))
    selected = longest(ordered)
    if overlap == "error" and len(selected) < len(ordered):
        first, second = next(pair for pair in pairwise(ordered) if pair[0].end > pair[1].start)
        fix = "Remove one of them, or use `--overlap longest` to keep the longest, or `--overlap spans` to keep all."
        raise RecordError(f"{shown(first)} and {shown(second)} overlap", fix)
    dropped = [span for span in ordered if span not in selected]
    if overlap == "longest":
        for span in dropped:
            note(Event.OVERLAP, shown(span))
    return selected, dropped


def clean_spans(group: Iterable[EntitySpan], text: str, note: Note) -> dict[EntitySpan, None]:
    """Validate entities, and remove duplicates and surrounding whitespace.

    group (Iterable[EntitySpan]): Entities as written in the file.
    text (str): Text that contains the entities.
    note (Note): Function that counts corrections.
    RETURNS (dict[EntitySpan, None]): The entities as an ordered set: dictionary keys, which keep their order.
    """
    spans: dict[EntitySpan, None] = {}
    for raw_span in group:
        span = _strip_whitespace(_check_span(raw_span, text), text)
        if span.start == span.end:
            note(Event.BLANK, _describe_span(raw_span, text))
            continue
        if (span.start, span.end) != (raw_span.start, raw_span.end):
            note(Event.TRIMMED, _describe_span(raw_span, text))
        if span in spans:
            note(Event.DUPLICATE, f"{span.label} {span.start}-{span.end}")
        spans[span] = None
    return spans


def longest(spans: Sequence[EntitySpan]) -> list[EntitySpan]:
    """Select the longest of overlapping entities, or the first if several have the same length.

    spans (Sequence[EntitySpan]): Entities in text order.
    RETURNS (list[EntitySpan]): The selected entities in text order.
    """
    if all(span.end <= following.start for span, following in pairwise(spans)):
        return list(spans)
    covered_indices: set[int] = set()
    selected = []
    # Select spans greedily by decreasing length, as spaCy's `filter_spans` does.
    for span in sorted(spans, key=lambda span: (span.start - span.end, span.start)):
        covered = range(span.start, span.end)
        if covered_indices.isdisjoint(covered):
            covered_indices.update(covered)
            selected.append(span)
    return sorted(selected, key=lambda span: span.start)


def _check_span(span: EntitySpan, text: str) -> EntitySpan:
    """Validate an entity's offsets, label and quoted text, and return the entity. Raises a RecordError if invalid."""
    where = f"span {span.start}-{span.end}"
    if not 0 <= span.start < span.end <= len(text):
        reason = f"{where} is empty or outside of the text, which has {len(text)} characters"
        raise RecordError(reason, "Offsets begin at 0, and the end is the offset after the last character.")
    if not span.label:
        raise RecordError(f"{where} has an empty label", "Add a label or remove the entity.")
    covered = text[span.start : span.end]
    if not is_quoted(span, text):
        reason = f"{where} covers '{covered[:60]}' but the file quotes '{(span.quoted or '')[:60]}'"
        raise RecordError(reason, "Check the offsets. They count code points, not bytes or UTF-16 code units.")
    return span


def is_quoted(span: EntitySpan, text: str) -> bool:
    """Return whether an entity's quoted text equals the text at its offsets.

    Whitespace is ignored, because annotation tools escape or collapse whitespace in quoted text. If the file doesn't
    quote the entity, return True.
    """
    return span.quoted is None or _without_whitespace(span.quoted) == _without_whitespace(text[span.start : span.end])


def _without_whitespace(text: str) -> str:
    """Remove whitespace from a text, including line breaks that are escaped as `\\n`."""
    return "".join(text.replace("\\n", " ").split())


def _strip_whitespace(span: EntitySpan, text: str) -> EntitySpan:
    """Move an entity's boundaries inwards, past leading and trailing whitespace. The result may be empty."""
    covered = text[span.start : span.end]
    end = span.start + len(covered.rstrip())
    return EntitySpan(min(end, span.end - len(covered.lstrip())), end, span.label)


def _describe_span(span: EntitySpan, text: str) -> str:
    """Describe an entity by its label, offsets and text, for a message."""
    return f"{span.label} {span.start}-{span.end} '{text[span.start : span.end][:40]}'"


# Type checks for JSON values.


def check_offset(value: object) -> int:
    """Check that an offset in a JSON file is an integer, and return the offset. Raises a RecordError otherwise."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise RecordError(f"an offset is not an integer: {excerpt(value)}", SEE_HELP)
    return value


def expect(value: object, expected_type: type[_T], name: str, shape: str) -> _T:
    """Check that a value in a JSON file has the expected type, and return the value. Raises a RecordError otherwise.

    value (object): Value to check.
    expected_type (type): Expected type.
    name (str): Value name for the message, such as `'text'`.
    shape (str): Type description for the message, such as `a string`.
    """
    if not isinstance(value, expected_type):
        raise RecordError(f"{name} is not {shape}: {excerpt(value)}", SEE_HELP)
    return value


def excerpt(value: object) -> str:
    """Return the first 60 characters of a value as JSON, for a message."""
    return "missing" if value is None else json.dumps(value, ensure_ascii=False)[:60]
