"""What the readers hand on: annotated sentences and texts, what was noteworthy about them, and what is wrong."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from ...errors import InputError, RemedyError


class CorpusError(InputError):
    """A corpus whose content cannot be read as asked."""


class RecordError(RemedyError):
    """A sentence or record that is not of the shape that its format has.

    line: where, if not where the record begins.
    """

    def __init__(self, reason: str, remedy: str, *, line: int | None = None) -> None:
        self.line = line
        super().__init__(reason, remedy)


@dataclass(frozen=True)
class EntitySpan:
    """An entity over `[start, end)`: tokens in a `Sentence`, characters in an `AnnotatedText`."""

    start: int
    end: int
    label: str


@dataclass(frozen=True)
class Sentence:
    """One sentence of a corpus that comes in tokens (or characters)."""

    tokens: tuple[str, ...]
    spans: tuple[EntitySpan, ...]
    missing: tuple[int, ...] = ()
    """The tokens whose annotation is unknown."""
    line: int = 1
    starts_document: bool = False


@dataclass(frozen=True)
class AnnotatedText:
    """One text of a corpus that comes with character offsets. Its entities are sorted and do not overlap."""

    text: str
    spans: tuple[EntitySpan, ...]
    missing: tuple[tuple[int, int], ...] = ()
    """Stretches of characters whose annotation is unknown, where no entity covers them."""
    line: int = 1


class Event(Enum):
    """What a conversion counts, because it did not take the file at its word. The value is what the user reads."""

    REPAIRED = "Tags repaired"
    MISALIGNED = "Spans off the token edges, whose tokens are left without annotation"
    TRIMMED = "Spans trimmed of white space at their edges"
    BLANK = "Spans of nothing but white space, left out"
    DUPLICATE = "Spans given twice, read once"
    OVERLAP = "Spans left out for a longer one that they overlap"
    DISCONTINUOUS = "Spans in several pieces, whose tokens are left without annotation"
    NEW_TESTAMENT = "Documents of the New Testament left out, in which nobody annotated names (--include-nt keeps them)"
    NAMELESS = "Documents without a single name, kept (were they annotated?)"
    NO_ENTITIES = "Files without a single entity (were they annotated, and are the format and the columns right?)"
    LEFT_OUT = "Records left out (rejected, cancelled or not annotated)"
    SEVERAL = "Records annotated several times, of which one annotation was read"
    COMMENT = "Comment lines left out"
    STRAY = "Files in directories that are no corpora, left out"


@dataclass
class Notes:
    """How often each event happened in a file, the first places where it did, and the records that cannot be read."""

    source: str = ""
    counts: Counter[Event] = field(default_factory=Counter)
    examples: dict[Event, list[str]] = field(default_factory=dict)
    errors: list[CorpusError] = field(default_factory=list)
    n_errors: int = 0

    max_examples = 3
    max_errors = 10

    def add(self, event: Event, detail: str, line: int | None = None) -> None:
        """line: None for what concerns the whole file."""
        self.counts[event] += 1
        examples = self.examples.setdefault(event, [])
        if len(examples) < self.max_examples:
            examples.append(detail if line is None else f"line {line}: {detail}")

    def refuse(self, error: RecordError, line: int) -> None:
        """Remember a record that cannot be read, so that all of them are told at once."""
        self.n_errors += 1
        if len(self.errors) < self.max_errors:
            self.errors.append(CorpusError(self.source, error.reason, error.remedy, line=error.line or line))

    def raise_errors(self) -> None:
        """Raise what was refused: the first error, with the places of the others."""
        if not self.errors:
            return
        first, *others = self.errors
        remedy = first.remedy
        if others:
            listed = "; ".join(f"line {error.line}: {error.reason}" for error in others)
            remedy += f" {self.n_errors - 1} more cannot be read: {listed}"
            remedy += "; ..." if self.n_errors > len(self.errors) else "."
        raise CorpusError(self.source, first.reason, remedy, line=first.line)

    def update(self, other: Notes, *, source: str = "") -> None:
        """Add the counts and examples of another account. source: its file, where it is one of several."""
        prefix = f"{source}, " if source else ""
        self.counts.update(other.counts)
        for event, examples in other.examples.items():
            mine = self.examples.setdefault(event, [])
            mine.extend(prefix + example for example in examples[: self.max_examples - len(mine)])
