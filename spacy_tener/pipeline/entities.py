"""Entities that were found: their types, and writing them to the Doc."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from spacy.attrs import ENT_IOB
from spacy.tokens import Doc, Span, SpanGroup

from .settings import NERSettings
from .units import BEGIN, INSIDE, MISSING, Alignment, DocView

CHAR_OFFSETS = "char_offsets"
"""In the attributes of a group of `doc.spans`: start and end of each span's entity, in characters of the Doc."""


SCORES = "scores"
"""In the attributes of a group of `doc.spans`: the probability of each span, as `spancat` has it."""

PLACES = "places"
"""In the attributes of our groups: start and end of each span in characters, and its label. They hold when a component
has merged tokens since, and tell the group from one that another component wrote under the same key."""

Place = tuple[int, int, str]


@dataclass(frozen=True)
class FoundEntity:
    """An entity that a pipeline found in a text.

    start, end: Offsets in characters of `doc.text`, whatever the units of the component's view are.
    probability: None where the component that found it gives none.
    """

    start: int
    end: int
    label: str
    probability: float | None


class UnitEntity(NamedTuple):
    """An entity over the units of a view, between `predict` and `set_annotations`.

    probability: 1 where the settings ask for none.
    """

    start: int
    end: int
    label: str
    probability: float = 1.0


def set_entities(view: DocView, entities: Sequence[UnitEntity], settings: NERSettings) -> None:
    """Add the entities to those that the Doc already has; tokens whose annotation was missing become outside."""
    doc, preset, missing = view.doc, set[int](), []
    annotated = doc.has_annotation(ENT_IOB)
    if annotated:
        iob = doc.to_array(ENT_IOB)
        preset.update(np.flatnonzero((iob == BEGIN) | (iob == INSIDE)).tolist())
        missing = np.flatnonzero(iob == MISSING).tolist()
        # Decoding repeats preset entities: the Doc has them already.
        entities = [each for each in entities if view.token_span(each.start, each.end, "expand")[0] not in preset]
    taken, spans, scores = set(preset), [], {}
    # Longest first: where two entities come to share a token, the longer one keeps it.
    for entity in sorted(entities, key=lambda entity: entity.start - entity.end):
        start, end = view.token_span(entity.start, entity.end, settings.alignment_mode)
        tokens = range(start, end)
        if start < end and taken.isdisjoint(tokens):
            taken.update(tokens)
            spans.append(Span(doc, start, end, label=entity.label))
            scores[start, end, entity.label] = entity.probability
    if annotated:
        outside = [doc[i : i + 1] for i in missing if i not in taken]
        doc.set_ents(spans, outside=outside, default="unmodified")
    else:
        doc.set_ents(spans, default="outside")
    if settings.spans_key:
        _set_scored_spans(doc, scores, settings.spans_key)
    if settings.view == "characters" and settings.chars_key:
        given = [ent for ent in doc.ents if ent.start in preset]
        _set_char_spans(view, entities, given, settings.chars_key, settings.alignment_mode)


def place_of(span: Span) -> Place:
    """Return start and end in characters, and the label."""
    return span.start_char, span.end_char, span.label_


def read_places(group: SpanGroup, attribute: str) -> list[tuple[Place, Any]]:
    """Return the places of the spans of a group that `tener_ner` wrote, with an attribute of each; nothing for another
    component's group."""
    places, values = group.attrs.get(PLACES, ()), group.attrs.get(attribute, ())
    return [((start, end, label), value) for (start, end, label), value in zip(places, values, strict=False)]


def _set_scored_spans(doc: Doc, scores: dict[tuple[int, int, str], float], key: str) -> None:
    """Write `doc.ents` and their probabilities to a group of `doc.spans`, in the form of spaCy's `spancat`.

    A preset entity is certain, unless an earlier run of the component found it and left its probability here.
    """
    earlier: dict[Place, float] = {}
    if key in doc.spans:
        if PLACES not in doc.spans[key].attrs and len(doc.spans[key]):
            warnings.warn(
                f"doc.spans['{key}'] is another component's, and is replaced: give tener_ner a spans_key of its own.",
                stacklevel=2,
            )
        earlier = {place: float(score) for place, score in read_places(doc.spans[key], SCORES)}
    found = [scores.get((e.start, e.end, e.label_), earlier.get(place_of(e), 1.0)) for e in doc.ents]
    _write_group(doc, key, list(doc.ents), {SCORES: np.array(found, dtype=np.float64)})


def _set_char_spans(
    view: DocView, new: Iterable[UnitEntity], preset: Iterable[Span], key: str, alignment: Alignment
) -> None:
    """Write all entities of the Doc to a group of `doc.spans`, which holds spans of tokens, with their exact offsets.

    A preset entity that an earlier run of the component found keeps the offsets that it had.
    """
    doc = view.doc
    earlier: dict[tuple[int, int, str], list[tuple[int, int]]] = defaultdict(list)
    if key in doc.spans:
        for (_, _, label), (start, end) in read_places(doc.spans[key], CHAR_OFFSETS):
            first, last = view.token_span(start, end, alignment)
            earlier[first, last, label].append((start, end))
    found = {(*view.char_span(entity.start, entity.end), entity.label) for entity in new}
    for ent in preset:
        for offsets in earlier.get((ent.start, ent.end, ent.label_), [(ent.start_char, ent.end_char)]):
            found.add((*offsets, ent.label_))
    rows = sorted(found)
    spans = [Span(doc, *view.token_span(start, end, "expand"), label=label) for start, end, label in rows]
    _write_group(doc, key, spans, {CHAR_OFFSETS: [[start, end] for start, end, _ in rows]})


def _write_group(doc: Doc, key: str, spans: list[Span], attrs: dict[str, Any]) -> None:
    places = [list(place_of(span)) for span in spans]
    doc.spans[key] = SpanGroup(doc, name=key, spans=spans, attrs={**attrs, PLACES: places})
