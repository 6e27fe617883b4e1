"""Entities given by character offsets: checked against their text, trimmed, and made free of overlaps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise

from ...errors import RemedyError
from .records import AnnotatedText, CorpusError, Entity, Event, Notes

UNITS = ("codepoint", "utf16")
OVERLAPS = ("error", "longest")


@dataclass(frozen=True)
class RawSpan:
    """An entity as a file gives it, and the text that the file says it covers, if it says so."""

    start: int
    end: int
    label: str
    quoted: str | None = None


@dataclass(frozen=True)
class RawText:
    text: str
    spans: tuple[RawSpan, ...]


@dataclass(frozen=True)
class SpanRules:
    """How offsets are counted, and what happens to spans that overlap.

    units: `codepoint`, or `utf16` as JavaScript counts (an emoji is two).
    overlap: `error`, or `longest` to keep the longest of spans that overlap, the first of several as long.
    """

    units: str = "codepoint"
    overlap: str = "error"

    def __post_init__(self) -> None:
        for value, allowed in ((self.units, UNITS), (self.overlap, OVERLAPS)):
            if value not in allowed:
                raise ValueError(f"'{value}' is not one of: {', '.join(allowed)}.")


def annotate(raw: RawText, rules: SpanRules, notes: Notes, *, source: str, line: int) -> AnnotatedText:
    """The text with entities that are in bounds, have a label, touch no white space and do not overlap.

    A span that is left out for a longer one leaves the characters it had for itself without annotation: something is
    there, but not `O`.
    """

    try:
        _check_text(raw.text)
        checked = [_checked(span, raw.text) for span in _in_codepoints(raw, rules.units)]
        spans = _distinct(_trimmed(checked, raw.text, notes, line), notes, line)
        kept = _longest(spans)
        if rules.overlap == "error":
            _check_overlap(spans, kept, raw.text)
    except _RefusedError as error:
        raise CorpusError(source, error.reason, error.remedy, line=line) from None
    dropped = [span for span in spans if span not in kept]
    for span in dropped:
        notes.add(Event.OVERLAP, _shown(span, raw.text), line)
    return AnnotatedText(raw.text, tuple(kept), tuple((span.start, span.end) for span in dropped), line)


class _RefusedError(RemedyError):
    """Why a text cannot be used; where it stands in its file, the caller knows."""


def _check_text(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        reason = f"character {error.start} of the text is half of a surrogate pair"
        raise _RefusedError(reason, "Write the text as valid JSON.") from None


def _in_codepoints(raw: RawText, units: str) -> Iterable[RawSpan]:
    if units == "codepoint" or raw.text.isascii():
        return raw.spans
    widths = (2 if ord(character) > 0xFFFF else 1 for character in raw.text)
    codepoint = {unit: index for index, unit in enumerate(accumulate(widths, initial=0))}
    return [_converted(span, codepoint) for span in raw.spans]


def _converted(span: RawSpan, codepoint: dict[int, int]) -> RawSpan:
    if span.start not in codepoint or span.end not in codepoint:
        reason = f"span {span.start}-{span.end} is outside of the text or cuts a character in two"
        raise _RefusedError(reason, "Check the offsets, and whether they count UTF-16 units.")
    return RawSpan(codepoint[span.start], codepoint[span.end], span.label, span.quoted)


def _checked(span: RawSpan, text: str) -> Entity:
    where = f"span {span.start}-{span.end}"
    if not 0 <= span.start < span.end <= len(text):
        reason = f"{where} is empty or outside of the text, which has {len(text)} characters"
        raise _RefusedError(reason, "Offsets count from 0, and the end is behind the last character.")
    if not span.label.strip():
        raise _RefusedError(f"{where} has an empty label", "Give it a label or take it out.")
    covered = text[span.start : span.end]
    if span.quoted is not None and _letters(span.quoted) != _letters(covered):
        reason = f"{where} covers '{covered[:60]}' but is said to be '{span.quoted[:60]}'"
        raise _RefusedError(reason, "Check the offsets; if they count UTF-16 units, say `--offsets utf16`.")
    return Entity(span.start, span.end, span.label)


def _letters(text: str) -> str:
    """The text without its white space, which annotation tools escape or fold in what they quote."""
    return "".join(text.replace("\\n", " ").split())


def _trimmed(spans: Iterable[Entity], text: str, notes: Notes, line: int) -> Iterator[Entity]:
    for span in spans:
        covered = text[span.start : span.end]
        start = span.end - len(covered.lstrip())
        end = span.start + len(covered.rstrip())
        if start >= end:
            notes.add(Event.BLANK, _shown(span, text), line)
            continue
        if (start, end) != (span.start, span.end):
            notes.add(Event.TRIMMED, _shown(span, text), line)
        yield Entity(start, end, span.label)


def _distinct(spans: Iterable[Entity], notes: Notes, line: int) -> list[Entity]:
    seen: dict[Entity, None] = {}
    for span in spans:
        if span in seen:
            notes.add(Event.DUPLICATE, f"{span.label} {span.start}-{span.end}", line)
        seen[span] = None
    return sorted(seen, key=lambda span: (span.start, span.end))


def _longest(spans: list[Entity]) -> list[Entity]:
    """The longest of spans that overlap, the first of several as long; sorted."""
    if all(left.end <= right.start for left, right in pairwise(spans)):
        return spans
    taken: set[int] = set()
    kept = []
    for span in sorted(spans, key=lambda span: (span.start - span.end, span.start)):
        covered = range(span.start, span.end)
        if taken.isdisjoint(covered):
            taken.update(covered)
            kept.append(span)
    return sorted(kept, key=lambda span: span.start)


def _check_overlap(spans: list[Entity], kept: list[Entity], text: str) -> None:
    if len(kept) < len(spans):
        left, right = next((left, right) for left, right in pairwise(spans) if left.end > right.start)
        remedy = "Take one of them out, or keep the longest with `--overlap longest`."
        raise _RefusedError(f"{_shown(left, text)} and {_shown(right, text)} overlap", remedy)


def _shown(span: Entity, text: str) -> str:
    return f"{span.label} {span.start}-{span.end} '{text[span.start : span.end][:40]}'"
