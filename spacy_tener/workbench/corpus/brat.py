"""brat's standoff: `x.ann` with a line `T1<TAB>LABEL 0 5<TAB>words` for each entity of the text in `x.txt`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from ...inputs import read_text
from .offsets import RawSpan, RawText
from .records import Event, Notes, RecordError

BRAT = "brat"
ANNOTATIONS, TEXT = ".ann", ".txt"

_OTHER = ("R", "E", "A", "M", "N", "#", "*")  # relations, events, attributes, normalizations, notes, equivalences
_ENTITY = re.compile(r"T[^\t]*\t([^ \t]+) ([0-9]{1,18} [0-9]{1,18}(?:;[0-9]{1,18} [0-9]{1,18})*)(?:\t(.*))?")


def is_brat(path: Path) -> bool:
    """Whether a file is of a pair of brat's: the annotations, or the text beside them."""
    return path.suffix == ANNOTATIONS or (path.suffix == TEXT and path.with_suffix(ANNOTATIONS).is_file())


def parse_brat(path: Path, lines: Iterable[tuple[int, str]], encoding: str, notes: Notes) -> RawText:
    """The text with its entities. What else brat annotates (relations, events, attributes) is passed over.

    lines: of the annotations.
    """
    spans: list[RawSpan] = []
    missing: list[tuple[int, int]] = []
    for number, line in lines:
        if line.startswith(_OTHER) or not line.strip():
            continue
        match = _ENTITY.fullmatch(line)
        if match is None:
            remedy = "An entity is T1<TAB>LABEL 0 5<TAB>words; other lines begin with R, E, A, M, N, # or *."
            raise RecordError(f"'{line[:60]}' is no entity", remedy, line=number)
        label, places, quoted = match.groups()
        pieces = [(int(start), int(end)) for start, end in (place.split() for place in places.split(";"))]
        if len(pieces) > 1:
            notes.add(Event.DISCONTINUOUS, f"{label} '{(quoted or '')[:40]}'", number)
            missing += pieces
        else:
            spans.append(RawSpan(*pieces[0], label, quoted))
    return RawText(read_text(path.with_suffix(TEXT), encoding), tuple(spans), tuple(missing))
