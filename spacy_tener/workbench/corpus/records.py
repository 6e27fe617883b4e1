"""What the readers hand on: annotated sentences and texts, what was noteworthy about them, and what stops a reader."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from ...errors import RemedyError


class CorpusError(RemedyError):
    """A corpus that cannot be read or written as asked: where, why, and what to do about it."""

    def __init__(self, source: str, reason: str, remedy: str, *, line: int | None = None) -> None:
        self.source = source
        self.line = line
        super().__init__(reason, remedy, place=source if line is None else f"{source}:{line}")


@dataclass(frozen=True)
class Entity:
    """An entity over `[start, end)`: tokens in a `Sentence`, characters in an `AnnotatedText`."""

    start: int
    end: int
    label: str


@dataclass(frozen=True)
class Sentence:
    """One sentence of a corpus that comes in tokens (or characters), one a line."""

    tokens: tuple[str, ...]
    spans: tuple[Entity, ...]
    missing: tuple[int, ...] = ()
    """The tokens whose annotation is unknown."""
    line: int = 1
    starts_document: bool = False


@dataclass(frozen=True)
class AnnotatedText:
    """One text of a corpus that comes with character offsets. Its entities are sorted and do not overlap."""

    text: str
    spans: tuple[Entity, ...]
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
    NEW_TESTAMENT = "Documents of the New Testament left out, in which nobody annotated names (--include-nt keeps them)"
    NAMELESS = "Documents without a single name, kept (were they annotated?)"
    LEFT_OUT = "Records left out (rejected, cancelled or not annotated)"
    SEVERAL = "Records annotated several times, of which one annotation was read"


@dataclass
class Notes:
    """How often each event happened, and the first places where it did."""

    counts: Counter[Event] = field(default_factory=Counter)
    examples: dict[Event, list[str]] = field(default_factory=dict)

    max_examples = 3

    def add(self, event: Event, detail: str, line: int) -> None:
        self.counts[event] += 1
        examples = self.examples.setdefault(event, [])
        if len(examples) < self.max_examples:
            examples.append(f"line {line}: {detail}")

    def update(self, other: Notes, *, source: str = "") -> None:
        """Add what another account has.

        source: The file that it speaks of, where it is one of several.
        """
        prefix = f"{source}, " if source else ""
        self.counts.update(other.counts)
        for event, examples in other.examples.items():
            mine = self.examples.setdefault(event, [])
            mine.extend(prefix + example for example in examples[: self.max_examples - len(mine)])
