"""Decisions of the review page, applied to the corpus."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spacy.pipeline.spancat import DEFAULT_SPANS_KEY
from spacy.tokens import Doc, Span

from ...errors import InputError
from ...pipeline.entities import EntityOffsets, offsets_of
from ..corpus.docs import INCORRECT

_REMEDY = "Name the file that a review's page downloads; `spacy tener convert` reads that of `suggest --format page`."


@dataclass
class Applied:
    """The result of applying decisions.

    changed (int): The number of decisions that changed the annotation.
    unchanged (int): The number of decisions that it agreed with already.
    misfits (list[str]): The decisions that could not be applied, each with the reason.
    """

    changed: int = 0
    unchanged: int = 0
    misfits: list[str] = field(default_factory=list)


def read_decisions(path: Path) -> list[dict[str, Any]]:
    """Read a file of decisions: a list of texts, each with its decisions."""
    try:
        records = json.loads(path.read_text(encoding="utf8"))
        for record in records:
            _ = str(record["text"]), int(record["doc"])
            for decision, side in itertools.product(record["decisions"], ("gold", "entities")):
                if not _are_apart(_entities(decision[side])):
                    raise ValueError(decision)
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror or error}", "Check the path.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(str(path), "is not a file of decisions", _REMEDY) from error
    return list(records)


def apply_decisions(docs: Sequence[Doc], records: Iterable[Mapping[str, Any]]) -> Applied:
    """Change the entities of Docs that decisions are about, and nothing else.

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
    before = {offsets_of(ent): ent for ent in doc.ents}
    fitting: list[tuple[list[EntityOffsets], list[EntityOffsets], bool]] = []
    for decision in decisions:
        gold, decided = _entities(decision["gold"]), _entities(decision["entities"])
        rest = [entity for entity in before if entity not in decided]
        is_applied = set(decided) <= before.keys() and not any(_overlap(a, b) for a in rest for b in gold)
        if is_applied or set(gold) <= before.keys():
            fitting.append((gold, decided, is_applied))
        else:
            applied.misfits.append(_misfit(doc, gold or decided, "the annotation has changed"))
    # Remove entities first, since a new one may overlap another decision's, or be the same once more.
    removed = {entity for gold, _, _ in fitting for entity in gold}
    after = {entity: ent for entity, ent in before.items() if entity not in removed}
    for gold, decided, is_applied in fitting:
        aligned = [before.get(entity) or doc.char_span(*entity) for entity in decided]
        spans = [span for span in aligned if span is not None]
        taken = {i for entity, ent in after.items() if entity not in decided for i in range(ent.start, ent.end)}
        reason = "it does not align with tokens" if None in aligned else ""
        if not reason and any(i in taken for span in spans for i in range(span.start, span.end)):
            reason = "another entity is there"
        if reason:
            gold_spans = [before[entity] for entity in gold if entity in before]
            spans = [span for span in gold_spans if taken.isdisjoint(range(span.start, span.end))]
            applied.misfits.append(_misfit(doc, decided or gold, reason))
        else:
            applied.changed += not is_applied
            applied.unchanged += is_applied
        after |= {offsets_of(span): span for span in spans}
    _set_entities(doc, set(before.values()), list(after.values()))


def _set_entities(doc: Doc, before: set[Span], after: list[Span]) -> None:
    """Set the changed entities. Other tokens keep their annotation, also if it is missing."""
    covered = {token for ent in after for token in range(ent.start, ent.end)}
    gone = [doc[i : i + 1] for ent in before for i in range(ent.start, ent.end) if i not in covered]
    new = [ent for ent in after if ent not in before]
    if new or gone:
        doc.set_ents(new, outside=gone, default="unmodified")
        _set_groups(doc, before - {*after}, new)


def _set_groups(doc: Doc, gone: Set[Span], new: Sequence[Span]) -> None:
    """Let the groups that `convert` writes agree with the changed entities: the one of all entities, which may overlap,
    and that of spans known to be incorrect."""
    removed, added = ({offsets_of(ent) for ent in ents} for ents in (gone, new))
    if DEFAULT_SPANS_KEY in doc.spans:
        rest = [span for span in doc.spans[DEFAULT_SPANS_KEY] if offsets_of(span) not in removed | added]
        doc.spans[DEFAULT_SPANS_KEY] = sorted([*rest, *new])
    if INCORRECT in doc.spans:
        doc.spans[INCORRECT] = [span for span in doc.spans[INCORRECT] if offsets_of(span) not in added]


def _overlap(a: EntityOffsets, b: EntityOffsets) -> bool:
    return a[0] < b[1] and b[0] < a[1]


def _are_apart(entities: Sequence[EntityOffsets]) -> bool:
    """Return whether entities have characters and labels, and do not overlap."""
    apart = not any(_overlap(a, b) for a, b in itertools.combinations(entities, 2))
    return apart and all(0 <= start < end and label for start, end, label in entities)


def _entities(written: Any) -> list[EntityOffsets]:
    return [(int(start), int(end), str(label)) for start, end, label in written]


def _misfit(doc: Doc, entities: Sequence[EntityOffsets], reason: str) -> str:
    shown = ", ".join(f"{doc.text[start:end]} {label}" for start, end, label in entities)
    return f"'{doc.text[:40]}': {shown}: {reason}"
