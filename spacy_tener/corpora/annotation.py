"""Data classes for annotated sentences and texts, checks of character offsets, and a log of corrections.

The parsers of all formats (`columns`, `json_records`, `label_studio`) return `Sentence` or `AnnotatedText`. They report
corrections to `Notes` and errors in single records as `RecordError`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import Any, TypeVar

from ..errors import InputError, RemedyError

# Key that `tener suggest` adds to its records. Their entities are predictions that nobody has corrected yet.
SUGGESTED = "suggested"
SEE_HELP = "See `python -m spacy tener convert --help` for the supported formats."

COLUMN_FORMATS = ("columns", "weibo")
TEXT_FORMATS = JSONL, LABEL_STUDIO, CLUENER = "jsonl", "labelstudio", "cluener"
TOKENS = "tokens"
CORPUS_FORMATS = (*COLUMN_FORMATS, *TEXT_FORMATS, TOKENS)
OVERLAPS = ("error", "longest", "spans")

JsonRecord = dict[str, Any]

_T = TypeVar("_T")


class CorpusError(InputError):
    """An error in the content of a corpus, with the file and the line."""


class RecordError(RemedyError):
    """An error in one sentence or record. The reader of the file collects these errors and reports them together.

    line (int | None): Line of the error, or None for the first line of the record.
    """

    def __init__(self, reason: str, remedy: str, *, line: int | None = None) -> None:
        self.line = line
        super().__init__(reason, remedy)


@dataclass(frozen=True)
class EntitySpan:
    """An entity from `start` up to, but not including, `end`. Offsets count tokens in a `Sentence`, and characters in
    an `AnnotatedText`.

    label (str): Entity type. Surrounding whitespace is removed, since `"PER "` and `"PER"` would be different labels.
    quoted (str | None): Text of the entity as quoted in the file, to check the offsets. None if the file doesn't quote
        it, or once the offsets are checked.
    """

    start: int
    end: int
    label: str
    quoted: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", self.label.strip())


@dataclass(frozen=True)
class Sentence:
    """A tokenized sentence of a corpus.

    tokens (tuple[str, ...]): Tokens of the sentence.
    spans (tuple[EntitySpan, ...]): Entities, with token offsets.
    missing (tuple[int, ...]): Indices of tokens with missing annotation.
    line (int): Line on which the sentence begins.
    spaces (tuple[bool, ...]): Whether each token is followed by a space. Empty if the format has no such information.
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
    """A text of a corpus with entities as character offsets.

    text (str): The text.
    spans (tuple[EntitySpan, ...]): Entities as written in the file. `resolve_spans` sorts them and removes overlaps.
    missing (tuple[tuple[int, int], ...]): Character ranges with missing annotation. Entities take precedence over them.
    line (int): Line on which the record begins.
    incorrect (tuple[EntitySpan, ...]): Negative examples: spans that an annotator rejected. They may overlap.
    overlapping (tuple[EntitySpan, ...]): Entities that `resolve_spans` removed from `spans` because a longer entity
        overlaps them.
    """

    text: str
    spans: tuple[EntitySpan, ...]
    missing: tuple[tuple[int, int], ...] = ()
    line: int = 1
    incorrect: tuple[EntitySpan, ...] = ()
    overlapping: tuple[EntitySpan, ...] = ()


class Event(Enum):
    """Types of corrections and omissions that a conversion counts. The value is the message for the user."""

    REPAIRED = "Tags repaired"
    MISALIGNED = "Entities whose boundaries are not token boundaries; their tokens get missing annotation"
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


# Function that records an event in the current record, with a description of the example.
Note = Callable[[Event, str], object]


@dataclass
class Notes:
    """Numbers of corrections and omissions in one file, with the first examples of each, and errors in its records.

    source (str): Name of the file.
    counts (Counter[Event]): Number of events of each type.
    examples (dict[Event, list[str]]): The first `max_examples` examples of each type.
    errors (list[CorpusError]): The first `max_errors` errors in records.
    n_errors (int): Number of all errors in records.
    """

    source: str = ""
    counts: Counter[Event] = field(default_factory=Counter)
    examples: dict[Event, list[str]] = field(default_factory=dict)
    errors: list[CorpusError] = field(default_factory=list)
    n_errors: int = 0

    max_examples = 3
    max_errors = 10

    def add(self, event: Event, detail: str, line: int | None = None) -> None:
        """Count an event and store its description as an example.

        line (int | None): Line of the event, or None if it concerns the whole file.
        """
        self.counts[event] += 1
        examples = self.examples.setdefault(event, [])
        if len(examples) < self.max_examples:
            examples.append(detail if line is None else f"line {line}: {detail}")

    def refuse(self, error: RecordError, line: int) -> None:
        """Store the error of a record, so that all errors of a file can be reported together.

        line (int): First line of the record, used if the error has no line itself.
        """
        self.n_errors += 1
        if len(self.errors) < self.max_errors:
            self.errors.append(CorpusError(self.source, error.reason, error.remedy, line=error.line or line))

    def raise_errors(self) -> None:
        """Raise the first stored error. Its message also lists the other errors with their lines."""
        if not self.errors:
            return
        first, *rest = self.errors
        remedy = first.remedy
        if rest:
            listed = "; ".join(f"line {error.line}: {error.reason}" for error in rest)
            remedy += f" {self.n_errors - 1} more records cannot be parsed: {listed}"
            remedy += "; ..." if self.n_errors > len(self.errors) else "."
        raise CorpusError(self.source, first.reason, remedy, line=first.line)

    def update(self, notes: Notes) -> None:
        """Add the counts and examples of another log to this one."""
        self.counts.update(notes.counts)
        for event, examples in notes.examples.items():
            total = self.examples.setdefault(event, [])
            total.extend(examples[: self.max_examples - len(total)])


# Character offsets


def resolve_spans(raw: AnnotatedText, note: Note, line: int, overlap: str) -> AnnotatedText:
    """Return a text whose entities are valid: within the text, labelled, without whitespace at their boundaries, and
    not overlapping.

    If an entity is removed because a longer one overlaps it, its remaining characters get missing annotation. They
    belong to an entity, so they must not become O.

    raw (AnnotatedText): Text with entities as written in the file.
    note (Note): Function that records corrections.
    line (int): Line on which the record begins.
    overlap (str): What to do if entities overlap. `error` raises a RecordError. `longest` keeps the longest entity, or
        the first among entities of equal length. `spans` does the same but doesn't report the others as left out, since
        the caller stores them in `doc.spans`.
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
    """Return the entities to keep, in text order, and the entities that overlap a longer one."""
    ordered = sorted(spans, key=lambda span: (span.start, span.end))
    selected = longest(ordered)
    if overlap == "error" and len(selected) < len(ordered):
        first, second = next(pair for pair in pairwise(ordered) if pair[0].end > pair[1].start)
        remedy = "Remove one of them, or use `--overlap longest` to keep the longest, or `--overlap spans` to keep all."
        raise RecordError(f"{shown(first)} and {shown(second)} overlap", remedy)
    dropped = [span for span in ordered if span not in selected]
    if overlap == "longest":
        for span in dropped:
            note(Event.OVERLAP, shown(span))
    return selected, dropped


def clean_spans(group: Iterable[EntitySpan], text: str, note: Note) -> dict[EntitySpan, None]:
    """Return valid entities without whitespace at their boundaries and without duplicates.

    The result is a dictionary without values, because sets don't keep the order.
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
    """Return the longest entities among overlapping ones, or the first if they are equally long.

    spans (Sequence[EntitySpan]): Entities in text order. The result has the same order.
    """
    if all(span.end <= following.start for span, following in pairwise(spans)):
        return list(spans)
    covered_indices: set[int] = set()
    selected = []
    # Greedy selection by decreasing length, as spaCy's `filter_spans` does it.
    for span in sorted(spans, key=lambda span: (span.start - span.end, span.start)):
        covered = range(span.start, span.end)
        if covered_indices.isdisjoint(covered):
            covered_indices.update(covered)
            selected.append(span)
    return sorted(selected, key=lambda span: span.start)


def _check_span(span: EntitySpan, text: str) -> EntitySpan:
    """Return the entity if its offsets, its label and its quoted text are valid. Raises a RecordError otherwise."""
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
    """Return whether the text that the file quotes for an entity equals the text at its offsets.

    Whitespace is ignored, because annotation tools escape it or collapse it when they quote a text.
    """
    return span.quoted is None or _without_whitespace(span.quoted) == _without_whitespace(text[span.start : span.end])


def _without_whitespace(text: str) -> str:
    """Return the text without whitespace. `\\n`, as some tools escape line breaks, counts as whitespace."""
    return "".join(text.replace("\\n", " ").split())


def _strip_whitespace(span: EntitySpan, text: str) -> EntitySpan:
    """Return the entity without leading and trailing whitespace. An entity of nothing but whitespace becomes empty."""
    covered = text[span.start : span.end]
    end = span.start + len(covered.rstrip())
    return EntitySpan(min(end, span.end - len(covered.lstrip())), end, span.label)


def _describe_span(span: EntitySpan, text: str) -> str:
    """Return label, offsets and text of an entity for a message."""
    return f"{span.label} {span.start}-{span.end} '{text[span.start : span.end][:40]}'"


# Shapes of JSON


def check_offset(value: object) -> int:
    """Return a value as an offset. Raises a RecordError if it isn't an integer."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise RecordError(f"an offset is not an integer: {excerpt(value)}", SEE_HELP)
    return value


def expect(value: object, expected_type: type[_T], name: str, shape: str) -> _T:
    """Return a value if it has the expected type. Raises a RecordError otherwise.

    expected_type (type): Expected type.
    name (str): Name of the value in messages, such as `'text'`.
    shape (str): Description of the type in messages, such as `a string`.
    """
    if not isinstance(value, expected_type):
        raise RecordError(f"{name} is not {shape}: {excerpt(value)}", SEE_HELP)
    return value


def excerpt(value: object) -> str:
    """Return the beginning of a JSON value for a message."""
    return "missing" if value is None else json.dumps(value, ensure_ascii=False)[:60]
