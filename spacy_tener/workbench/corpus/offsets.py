"""Entities given by character offsets: checked against their text, trimmed, and made free of overlaps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from .records import AnnotatedText, EntitySpan, Event, Notes, RecordError

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
    """A text as a file gives it. missing: characters whose annotation is unknown."""

    text: str
    spans: tuple[RawSpan, ...]
    missing: tuple[tuple[int, int], ...] = ()


def resolve_spans(raw: RawText, notes: Notes, line: int, *, units: str, overlap: str) -> AnnotatedText:
    """The text with entities that are in bounds, have a label, touch no white space and do not overlap.

    A span that is left out for a longer one leaves the characters it had for itself without annotation: something is
    there, but not `O`. So do the spans in several pieces.

    units: What offsets count: `codepoint`, or `utf16` as JavaScript does (an emoji is two).
    overlap: `error`, or `longest` to keep the longest of spans that overlap, the first of several as long.
    """
    checked = [_checked(span, raw.text) for span in _in_codepoints(raw, units)]
    spans = _distinct(_stripped(checked, raw.text, notes, line), notes, line)
    kept = longest(spans)
    if overlap == "error" and len(kept) < len(spans):
        left, right = next((left, right) for left, right in pairwise(spans) if left.end > right.start)
        remedy = "Take one of them out, or keep the longest with `--overlap longest`."
        raise RecordError(f"{_shown(left, raw.text)} and {_shown(right, raw.text)} overlap", remedy)
    dropped = [span for span in spans if span not in kept]
    for span in dropped:
        notes.add(Event.OVERLAP, _shown(span, raw.text), line)
    missing = (*((span.start, span.end) for span in dropped), *raw.missing)
    return AnnotatedText(raw.text, tuple(kept), missing, line)


def _in_codepoints(raw: RawText, units: str) -> Iterable[RawSpan]:
    if units == "codepoint" or raw.text.isascii():
        return raw.spans
    widths = (2 if ord(character) > 0xFFFF else 1 for character in raw.text)
    codepoint = {unit: index for index, unit in enumerate(accumulate(widths, initial=0))}
    for span in raw.spans:
        if span.start not in codepoint or span.end not in codepoint:
            reason = f"span {span.start}-{span.end} is outside of the text or cuts a character in two"
            raise RecordError(reason, "Check the offsets, and whether they count UTF-16 units.")
    return [replace(span, start=codepoint[span.start], end=codepoint[span.end]) for span in raw.spans]


def _checked(span: RawSpan, text: str) -> EntitySpan:
    where = f"span {span.start}-{span.end}"
    if not 0 <= span.start < span.end <= len(text):
        reason = f"{where} is empty or outside of the text, which has {len(text)} characters"
        raise RecordError(reason, "Offsets count from 0, and the end is behind the last character.")
    if not span.label.strip():
        raise RecordError(f"{where} has an empty label", "Give it a label or take it out.")
    covered = text[span.start : span.end]
    if span.quoted is not None and _letters(span.quoted) != _letters(covered):
        reason = f"{where} covers '{covered[:60]}' but is said to be '{span.quoted[:60]}'"
        raise RecordError(reason, "Check the offsets; if they count UTF-16 units, say `--offsets utf16`.")
    return EntitySpan(span.start, span.end, span.label)


def _letters(text: str) -> str:
    """The text without its white space, which annotation tools escape or fold in what they quote."""
    return "".join(text.replace("\\n", " ").split())


def _stripped(spans: Iterable[EntitySpan], text: str, notes: Notes, line: int) -> Iterator[EntitySpan]:
    for span in spans:
        covered = text[span.start : span.end]
        start = span.end - len(covered.lstrip())
        end = span.start + len(covered.rstrip())
        if start >= end:
            notes.add(Event.BLANK, _shown(span, text), line)
            continue
        if (start, end) != (span.start, span.end):
            notes.add(Event.TRIMMED, _shown(span, text), line)
        yield EntitySpan(start, end, span.label)


def _distinct(spans: Iterable[EntitySpan], notes: Notes, line: int) -> list[EntitySpan]:
    seen: dict[EntitySpan, None] = {}
    for span in spans:
        if span in seen:
            notes.add(Event.DUPLICATE, f"{span.label} {span.start}-{span.end}", line)
        seen[span] = None
    return sorted(seen, key=lambda span: (span.start, span.end))


def longest(spans: list[EntitySpan]) -> list[EntitySpan]:
    """The longest of spans in the order of their places that overlap, the first of several as long."""
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


def _shown(span: EntitySpan, text: str) -> str:
    return f"{span.label} {span.start}-{span.end} '{text[span.start : span.end][:40]}'"
