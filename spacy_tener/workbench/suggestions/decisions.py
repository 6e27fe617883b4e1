"""Decisions of the review page, applied to the corpus."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spacy.tokens import Doc, Span

from ...errors import InputError
from ...pipeline.entities import Place, place_of

_AGAIN = "Download them again from the page of the review."


@dataclass
class Applied:
    """The result of applying decisions.

    changed: The number of places whose annotation changed.
    kept: The number of places that already had the decided annotation.
    misfits: The decisions that could not be applied, each with the reason.
    """

    changed: int = 0
    kept: int = 0
    misfits: list[str] = field(default_factory=list)


def read_decisions(path: Path) -> list[dict[str, Any]]:
    """Read a file of decisions: a list of texts, each with its decisions."""
    try:
        records = json.loads(path.read_text(encoding="utf8"))
        for record in records:
            _ = str(record["text"]), int(record["doc"])
            for decision, side in itertools.product(record["decisions"], ("gold", "entities")):
                if not _are_entities(_places(decision[side])):
                    raise ValueError(decision)
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror or error}", "Check the path.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(str(path), "is not a file of decisions", _AGAIN) from error
    return list(records)


def apply_decisions(docs: Sequence[Doc], records: Iterable[Mapping[str, Any]]) -> Applied:
    """Change the entities of Docs in the decided places, and nothing else.

    A record belongs to the Doc with its number, or, if that one has another text, to the only Doc with its text. A
    decision fits if the Doc still has the annotation that was decided on.
    """
    applied = Applied()
    by_text: dict[str, list[int]] = defaultdict(list)
    for number, doc in enumerate(docs):
        by_text[doc.text].append(number)
    for record in records:
        text, number = record["text"], record["doc"]
        numbers = by_text.get(text, [])
        if number not in numbers and len(numbers) != 1:
            reason = f"the corpus has {'no such text' if not numbers else f'this text {len(numbers)} times'}"
            applied.misfits += [f"'{text[:40]}': {reason}" for _ in record["decisions"]]
        else:
            _apply(docs[number if number in numbers else numbers[0]], record["decisions"], applied)
    return applied


def _apply(doc: Doc, decisions: Iterable[Mapping[str, Any]], applied: Applied) -> None:
    entities = {place_of(ent): ent for ent in doc.ents}
    before = set(entities.values())
    fitting: list[tuple[list[Place], list[Place]]] = []
    for decision in decisions:
        gold, wanted = _places(decision["gold"]), _places(decision["entities"])
        others = [place for place in entities if place not in wanted]
        if set(wanted) <= set(entities) and not any(_overlap(place, own) for place in others for own in gold):
            applied.kept += 1
        elif set(gold) <= set(entities):
            fitting.append((gold, wanted))
        else:
            applied.misfits.append(_misfit(doc, gold or wanted, "the annotation has changed"))
    # Remove entities first, since a new one may cover the place of another.
    removed = {place: entities.pop(place) for gold, _ in fitting for place in gold if place in entities}
    for gold, wanted in fitting:
        spans = [doc.char_span(start, end, label) for start, end, label in wanted]
        taken = {token for ent in entities.values() for token in range(ent.start, ent.end)}
        reason = "it does not align with tokens" if None in spans else ""
        made = [span for span in spans if span is not None]
        if not reason and any(token in taken for span in made for token in range(span.start, span.end)):
            reason = "another entity is there"
        if reason:
            made = [
                removed[place] for place in gold if not taken & set(range(removed[place].start, removed[place].end))
            ]
            applied.misfits.append(_misfit(doc, wanted or gold, reason))
        else:
            applied.changed += 1
        entities |= {place_of(span): removed.get(place_of(span), span) for span in made}
    _set_entities(doc, before, list(entities.values()))


def _set_entities(doc: Doc, before: set[Span], after: list[Span]) -> None:
    """Set the changed entities. Other tokens keep their annotation, also if it is missing."""
    covered = {token for ent in after for token in range(ent.start, ent.end)}
    gone = [doc[i : i + 1] for ent in before for i in range(ent.start, ent.end) if i not in covered]
    new = [ent for ent in after if ent not in before]
    if new or gone:
        doc.set_ents(new, outside=gone, default="unmodified")


def _overlap(one: Place, other: Place) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _are_entities(places: Sequence[Place]) -> bool:
    """Return whether places are spans with labels that do not overlap."""
    apart = not any(_overlap(one, other) for one, other in itertools.combinations(places, 2))
    return apart and all(0 <= start < end and label for start, end, label in places)


def _places(written: Any) -> list[Place]:
    return [(int(start), int(end), str(label)) for start, end, label in written]


def _misfit(doc: Doc, places: Sequence[Place], reason: str) -> str:
    shown = ", ".join(f"{doc.text[start:end]} {label}" for start, end, label in places)
    return f"'{doc.text[:40]}': {shown}: {reason}"
