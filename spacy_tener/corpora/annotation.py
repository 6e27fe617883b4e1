"""Annotated sentences and texts of a corpus, checks of their offsets, and notes on corrections."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import Any, TypeVar

from ..errors import InputError, RemedyError

SUGGESTED = "suggested"
"""Key of records whose entities are a model's suggestions that nobody has corrected."""
SEE_HELP = "`python -m spacy tener convert --help` names the formats."

COLUMN_FORMATS = ("columns", "weibo")
TEXT_FORMATS = JSONL, LABEL_STUDIO, CLUENER = "jsonl", "labelstudio", "cluener"
TOKENS = "tokens"
CORPUS_FORMATS = (*COLUMN_FORMATS, *TEXT_FORMATS, TOKENS)
OVERLAPS = ("error", "longest", "spans")

JsonRecord = dict[str, Any]

_T = TypeVar("_T")


class CorpusError(InputError):
    """An error about the content of a corpus."""


class RecordError(RemedyError):
    """An error in a sentence or record.

    line (int | None): The line, if it is not the first of the record.
    """

    def __init__(self, reason: str, remedy: str, *, line: int | None = None) -> None:
        self.line = line
        super().__init__(reason, remedy)


@dataclass(frozen=True)
class EntitySpan:
    """An entity over `[start, end)`: tokens of a `Sentence`, characters of an `AnnotatedText`.

    label (str): Its label, without white space around it, which would be another label.
    quoted (str | None): The text that the entity covers according to the file. None if the file has none, or after the
        check.
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

    missing (tuple[int, ...]): Indices of tokens with missing annotation.
    spaces (tuple[bool, ...]): Whether a space follows each token; empty where the corpus does not say.
    """

    tokens: tuple[str, ...]
    spans: tuple[EntitySpan, ...]
    missing: tuple[int, ...] = ()
    line: int = 1
    spaces: tuple[bool, ...] = ()

    @property
    def text(self) -> str:
        """The tokens without spaces between them."""
        return "".join(self.tokens)


@dataclass(frozen=True)
class AnnotatedText:
    """A text of a corpus with character offsets.

    spans (tuple[EntitySpan, ...]): The spans of the file; after `resolve_spans` sorted and without overlaps.
    missing (tuple[tuple[int, int], ...]): Ranges of characters with missing annotation, except where entities cover
        them.
    incorrect (tuple[EntitySpan, ...]): Spans known not to be entities of their label. They may overlap.
    overlapping (tuple[EntitySpan, ...]): Spans that `resolve_spans` took out of `spans` for a longer one.
    """

    text: str
    spans: tuple[EntitySpan, ...]
    missing: tuple[tuple[int, int], ...] = ()
    line: int = 1
    incorrect: tuple[EntitySpan, ...] = ()
    overlapping: tuple[EntitySpan, ...] = ()


class Event(Enum):
    """Corrections and omissions that a conversion counts. The value is the message for the user."""

    REPAIRED = "Tags repaired"
    MISALIGNED = "Spans off the token edges, whose tokens are left without annotation"
    TRIMMED = "Spans trimmed of white space at their edges"
    BLANK = "Spans of nothing but white space, left out"
    DUPLICATE = "Spans given twice, read once"
    OVERLAP = "Spans left out for a longer one that they overlap"
    NO_ENTITIES = "Files without a single entity (were they annotated, and are the format and the columns right?)"
    LEFT_OUT = "Records left out (rejected, cancelled or not annotated)"
    SUGGESTED = "Suggestions of a model that nobody has corrected, read as annotation (export them from a tool instead)"
    LISTS = "Records with several lists of entities, read as one (is one a model's?)"
    SEVERAL = "Texts annotated several times, read once (mark the right annotation as ground truth)"
    BINARY = "Records that decide on single spans, whose texts are otherwise without annotation"
    COMMENT = "Comment lines left out"
    STRAY = "Files in directories that are no corpora, left out"


Note = Callable[[Event, str], object]
"""Counts an event in the record that is being read, with an example."""


@dataclass
class Notes:
    """Counts of events in a file with the first examples of each, and errors of records that cannot be read."""

    source: str = ""
    counts: Counter[Event] = field(default_factory=Counter)
    examples: dict[Event, list[str]] = field(default_factory=dict)
    errors: list[CorpusError] = field(default_factory=list)
    n_errors: int = 0

    max_examples = 3
    max_errors = 10

    def add(self, event: Event, detail: str, line: int | None = None) -> None:
        """Count an event. line: None if it concerns the whole file."""
        self.counts[event] += 1
        examples = self.examples.setdefault(event, [])
        if len(examples) < self.max_examples:
            examples.append(detail if line is None else f"line {line}: {detail}")

    def refuse(self, error: RecordError, line: int) -> None:
        """Store the error of a record, so that all errors are reported together."""
        self.n_errors += 1
        if len(self.errors) < self.max_errors:
            self.errors.append(CorpusError(self.source, error.reason, error.remedy, line=error.line or line))

    def raise_errors(self) -> None:
        """Raise the first stored error, with the lines of the others."""
        if not self.errors:
            return
        first, *rest = self.errors
        remedy = first.remedy
        if rest:
            listed = "; ".join(f"line {error.line}: {error.reason}" for error in rest)
            remedy += f" {self.n_errors - 1} more cannot be read: {listed}"
            remedy += "; ..." if self.n_errors > len(self.errors) else "."
        raise CorpusError(self.source, first.reason, remedy, line=first.line)

    def update(self, notes: Notes) -> None:
        """Add the counts and examples of other notes."""
        self.counts.update(notes.counts)
        for event, examples in notes.examples.items():
            total = self.examples.setdefault(event, [])
            total.extend(examples[: self.max_examples - len(total)])


# Character offsets


def resolve_spans(raw: AnnotatedText, note: Note, line: int, overlap: str) -> AnnotatedText:
    """Return the text with entities that are in bounds, have a label, touch no white space and do not overlap.

    A span that is left out for a longer one leaves missing annotation on the characters that the longer one does not
    cover: they are in an entity, so not `O`.

    overlap (str): `error`; `longest` to keep the longest of overlapping spans, the first of equally long ones; or
        `spans`, the same, and nothing is noted as left out, since the Doc keeps the others too.
    """
    spans, incorrect = (cleaned(group, raw.text, note) for group in (raw.spans, raw.incorrect))
    contradictory = spans.keys() & incorrect.keys()
    if contradictory:
        reason = f"{_shown(contradictory.pop(), raw.text)} is both accepted and rejected"
        raise RecordError(reason, "Decide on one of them.")
    selected, dropped = _without_overlaps(spans, lambda span: _shown(span, raw.text), note, overlap)
    missing = (*((span.start, span.end) for span in dropped), *raw.missing)
    return AnnotatedText(
        raw.text, tuple(selected), missing, line, incorrect=tuple(incorrect), overlapping=tuple(dropped)
    )


def _without_overlaps(
    spans: Iterable[EntitySpan], shown: Callable[[EntitySpan], str], note: Note, overlap: str
) -> tuple[list[EntitySpan], list[EntitySpan]]:
    """Return the spans to keep, in order, and those left out for them."""
    ordered = sorted(spans, key=lambda span: (span.start, span.end))
    selected = longest(ordered)
    if overlap == "error" and len(selected) < len(ordered):
        first, second = next(pair for pair in pairwise(ordered) if pair[0].end > pair[1].start)
        remedy = "Remove one of them, or keep the longest with `--overlap longest`, all with `--overlap spans`."
        raise RecordError(f"{shown(first)} and {shown(second)} overlap", remedy)
    dropped = [span for span in ordered if span not in selected]
    if overlap == "longest":
        for span in dropped:
            note(Event.OVERLAP, shown(span))
    return selected, dropped


def cleaned(group: Iterable[EntitySpan], text: str, note: Note) -> dict[EntitySpan, None]:
    """Return spans that are in bounds, have a label and no white space at their edges, without duplicates."""
    spans: dict[EntitySpan, None] = {}
    for written in group:
        span = _stripped(_checked(written, text), text)
        if span.start == span.end:
            note(Event.BLANK, _shown(written, text))
            continue
        if (span.start, span.end) != (written.start, written.end):
            note(Event.TRIMMED, _shown(written, text))
        if span in spans:
            note(Event.DUPLICATE, f"{span.label} {span.start}-{span.end}")
        spans[span] = None
    return spans


def longest(spans: Sequence[EntitySpan]) -> list[EntitySpan]:
    """Return the longest of overlapping spans, the first of equally long ones. Input and output are in text order."""
    if all(span.end <= following.start for span, following in pairwise(spans)):
        return list(spans)
    taken: set[int] = set()
    selected = []
    for span in sorted(spans, key=lambda span: (span.start - span.end, span.start)):
        covered = range(span.start, span.end)
        if taken.isdisjoint(covered):
            taken.update(covered)
            selected.append(span)
    return sorted(selected, key=lambda span: span.start)


def _checked(span: EntitySpan, text: str) -> EntitySpan:
    where = f"span {span.start}-{span.end}"
    if not 0 <= span.start < span.end <= len(text):
        reason = f"{where} is empty or outside of the text, which has {len(text)} characters"
        raise RecordError(reason, "Offsets count from 0, and the end is behind the last character.")
    if not span.label:
        raise RecordError(f"{where} has an empty label", "Give it a label or remove it.")
    covered = text[span.start : span.end]
    if not is_quoted(span, text):
        reason = f"{where} covers '{covered[:60]}' but the file quotes '{(span.quoted or '')[:60]}'"
        raise RecordError(reason, "Check the offsets: they count characters, of which an emoji is one.")
    return span


def is_quoted(span: EntitySpan, text: str) -> bool:
    """Return whether a span covers the text that the file quotes for it."""
    return span.quoted is None or _letters(span.quoted) == _letters(text[span.start : span.end])


def _letters(text: str) -> str:
    """Return the text without white space, which annotation tools escape or collapse in quotations."""
    return "".join(text.replace("\\n", " ").split())


def _stripped(span: EntitySpan, text: str) -> EntitySpan:
    """Return the span without white space at its edges; an empty span if it covers only white space."""
    covered = text[span.start : span.end]
    end = span.start + len(covered.rstrip())
    return EntitySpan(min(end, span.end - len(covered.lstrip())), end, span.label)


def _shown(span: EntitySpan, text: str) -> str:
    return f"{span.label} {span.start}-{span.end} '{text[span.start : span.end][:40]}'"


# Shapes of JSON


def whole_number(value: object) -> int:
    """Return an offset. Raises a RecordError if it is not an integer."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise RecordError(f"an offset is not a whole number: {excerpt(value)}", SEE_HELP)
    return value


def expect(value: object, kind: type[_T], what: str, shape: str) -> _T:
    """Return a value. Raises a RecordError if it does not have the type."""
    if not isinstance(value, kind):
        raise RecordError(f"{what} is not {shape}: {excerpt(value)}", SEE_HELP)
    return value


def excerpt(value: object) -> str:
    """Return the beginning of a value, for a message."""
    return "missing" if value is None else json.dumps(value, ensure_ascii=False)[:60]
