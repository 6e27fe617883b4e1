"""Predicted entities, and writing them to `doc.ents` and `doc.spans`."""

from __future__ import annotations

import itertools
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from spacy.attrs import ENT_IOB
from spacy.tokens import Doc, Span

from .settings import NERSettings
from .units import BEGIN, INSIDE, MISSING, DocView

CHAR_OFFSETS = "char_offsets"
"""Key in a span group's `attrs`: the character offsets of each span's entity."""
CHAR_SCORES = "char_scores"
"""The same for the probabilities of these entities."""


SCORES = "scores"
"""Key in a span group's `attrs`: the probability of each span, as in `spancat`."""

PLACES = "places"
"""Key in a span group's `attrs`: the character offsets and label that each entity has in `doc.ents`. They stay valid if
a later component merges tokens, and only groups written by `tener_ner` have them."""

EntityOffsets = tuple[int, int, str]
"""Start and end of an entity in characters of the text, and its label."""


@dataclass(frozen=True)
class FoundEntity:
    """An entity that a pipeline found in a text.

    start, end (int): Character offsets in `doc.text`, in either view.
    probability (float | None): None if the component gives none.
    """

    start: int
    end: int
    label: str
    probability: float | None

    @property
    def offsets(self) -> EntityOffsets:
        """Start, end and label."""
        return self.start, self.end, self.label


class UnitEntity(NamedTuple):
    """An entity in units of the view, as `predict` passes it to `set_annotations`.

    probability (float): 1 if the settings do not need it.
    """

    start: int
    end: int
    label: str
    probability: float = 1.0


def set_entities(
    view: DocView, entities: Sequence[UnitEntity], settings: NERSettings, *, overlapping: bool = False
) -> None:
    """Add the entities to those that the Doc already has. All other tokens without annotation become outside.

    overlapping (bool): Write entities within others, too, to `doc.spans`. `doc.ents` has the longest.
    """
    doc, preset, held = view.doc, set[int](), set[tuple[int, int, str]]()
    annotated = doc.has_annotation(ENT_IOB)
    if annotated:
        iob = doc.to_array(ENT_IOB)
        preset.update(np.flatnonzero((iob == BEGIN) | (iob == INSIDE)).tolist())
        missing = iob == MISSING
        # Decoding repeats preset entities, which the Doc has already. Others may be in the same tokens.
        if overlapping:
            held.update((ent.start, ent.end, ent.label_) for ent in doc.ents)
            repeated = {certain.offsets for certain in certain_entities(view)}
            entities = [e for e in entities if (*view.char_span(e.start, e.end), e.label) not in repeated]
        else:
            firsts = [view.token_span(entity.start, entity.end, "expand")[0] for entity in entities]
            entities = [entity for entity, first in zip(entities, firsts, strict=True) if first not in preset]
    taken, spans, scores = set(preset), [], {}
    # Longest first: of two entities that share a token, the longer one is kept.
    for entity in sorted(entities, key=lambda entity: entity.start - entity.end):
        start, end = view.token_span(entity.start, entity.end, settings.alignment_mode)
        tokens = range(start, end)
        if start < end and taken.isdisjoint(tokens):
            taken.update(tokens)
            spans.append(Span(doc, start, end, label=entity.label))
            scores[start, end, entity.label] = entity.probability
        elif overlapping and start < end and (start, end, entity.label) not in held:
            scores.setdefault((start, end, entity.label), entity.probability)
    if annotated:
        missing[[*taken]] = False
        edges = np.flatnonzero(np.diff(missing, prepend=False, append=False)).reshape(-1, 2).tolist()
        doc.set_ents(spans, outside=[doc[start:end] for start, end in edges], default="unmodified")
    else:
        doc.set_ents(spans, default="outside")
    if settings.spans_key:
        _set_scored_spans(doc, scores, settings.spans_key)
    if settings.view == "characters" and settings.chars_key:
        preset_ents = [ent for ent in doc.ents if ent.start in preset]
        _set_char_spans(view, entities, preset_ents, settings.chars_key, settings)


def certain_entities(view: DocView) -> tuple[FoundEntity, ...]:
    """Return the entities that a Doc has, as far as they are units of the view: their probability is 1."""
    if not view.doc.has_annotation(ENT_IOB):
        return ()
    strings = view.doc.vocab.strings
    return tuple(
        FoundEntity(*view.char_span(start, end), strings[label], 1.0) for start, end, label in view.units().entities()
    )


def without_entities(doc: Doc) -> Doc:
    """Return a Doc without entities and blocked tokens: itself, or a copy where it has some."""
    if not doc.has_annotation(ENT_IOB):
        return doc
    copy = doc.copy()
    copy.set_ents([], default="missing")
    return copy


def offsets_of(span: Span) -> EntityOffsets:
    """Return a span's character offsets and label."""
    return span.start_char, span.end_char, span.label_


def spans_of(doc: Doc, entities: Iterable[EntityOffsets]) -> list[Span]:
    """Return the spans of a Doc's whole tokens that hold entities."""
    spans = (doc.char_span(start, end, label, alignment_mode="expand") for start, end, label in entities)
    return [span for span in spans if span is not None]


def read_offsets(doc: Doc, key: str | None, attribute: str) -> list[tuple[EntityOffsets, Any]]:
    """Return the offsets of each entity in a group of `doc.spans` with its value of an attribute; nothing if
    `tener_ner` did not write the group."""
    attrs = doc.spans[key].attrs if key in doc.spans else {}
    entities, values = attrs.get(PLACES, ()), attrs.get(attribute, ())
    return [((start, end, label), value) for (start, end, label), value in zip(entities, values, strict=False)]


def read_exact(doc: Doc, key: str | None) -> list[tuple[EntityOffsets, FoundEntity]]:
    """Return the entities of a group with exact offsets, each with the offsets of its tokens, and with its probability
    if the group has it."""
    entities = read_offsets(doc, key, CHAR_OFFSETS)
    scores: list[float | None] = [float(score) for _, score in read_offsets(doc, key, CHAR_SCORES)]
    return [
        (aligned, FoundEntity(start, end, aligned[2], score))
        for (aligned, (start, end)), score in zip(entities, scores or [None] * len(entities), strict=True)
    ]


def read_scores(doc: Doc, key: str) -> list[tuple[EntityOffsets, float | None]]:
    """Return the offsets and probabilities of a group's spans, which may overlap, of whatever component.

    A `spancat` writes no scores in a text shorter than its spans, and a later component that writes to its group drops
    them.
    """
    group = doc.spans.get(key)
    if group is None or PLACES in group.attrs:
        return read_offsets(doc, key, SCORES)
    scores = group.attrs.get(SCORES, ())
    probabilities: Iterator[float | None] = map(float, scores) if len(scores) == len(group) else itertools.repeat(None)
    return list(zip(map(offsets_of, group), probabilities, strict=False))


def _set_scored_spans(doc: Doc, scores: dict[tuple[int, int, str], float], key: str) -> None:
    """Write `doc.ents`, others in `scores`, and their probabilities to a group of `doc.spans`, in the form of spaCy's
    `spancat`.

    The probability of a preset entity is 1, or what an earlier run of the component wrote to the group.
    """
    if key in doc.spans and PLACES not in doc.spans[key].attrs and len(doc.spans[key]):
        warnings.warn(
            f"doc.spans['{key}'] of another component is overwritten. Set another spans_key for tener_ner.",
            stacklevel=2,
        )
    earlier = {entity: float(score) for entity, score in read_offsets(doc, key, SCORES)}
    places = {(ent.start, ent.end, ent.label_): earlier.get(offsets_of(ent), 1.0) for ent in doc.ents} | scores
    order = sorted(places, key=lambda place: (place[0], -place[1], place[2]))
    spans = [Span(doc, start, end, label=label) for start, end, label in order]
    values = np.array([places[place] for place in order], dtype=np.float64)
    _write_group(doc, key, spans, map(offsets_of, spans), {SCORES: values})


def _set_char_spans(
    view: DocView, new: Iterable[UnitEntity], preset: Iterable[Span], key: str, settings: NERSettings
) -> None:
    """Write all entities of the Doc to a group of `doc.spans`, as spans of tokens with exact character offsets. With a
    `spans_key` it has their probabilities too: several entities may lie in the same tokens.

    A preset entity keeps the offsets that an earlier run of the component wrote.
    """
    doc = view.doc
    earlier: dict[EntityOffsets, list[FoundEntity]] = defaultdict(list)
    for aligned, known in read_exact(doc, key):
        earlier[aligned].append(known)
    in_tokens: dict[EntityOffsets, tuple[EntityOffsets, float]] = {}  # exact offsets -> those of the tokens in doc.ents
    for ent in preset:
        aligned = offsets_of(ent)
        for known in earlier.get(aligned, [FoundEntity(*aligned, 1.0)]):
            in_tokens[known.offsets] = aligned, 1.0 if known.probability is None else known.probability
    for entity in new:
        start, end = view.char_span(entity.start, entity.end)
        first, last = view.token_span(start, end, settings.alignment_mode)
        if first >= last:
            first, last = view.token_span(start, end, "expand")
        aligned = offsets_of(Span(doc, first, last, label=entity.label))
        in_tokens[start, end, entity.label] = aligned, entity.probability
    rows = sorted(in_tokens)
    spans = [Span(doc, *view.token_span(start, end, "expand"), label=label) for start, end, label in rows]
    attrs: dict[str, Any] = {CHAR_OFFSETS: [[start, end] for start, end, _ in rows]}
    if settings.spans_key:
        attrs[CHAR_SCORES] = np.array([in_tokens[row][1] for row in rows], dtype=np.float64)
    _write_group(doc, key, spans, [in_tokens[row][0] for row in rows], attrs)


def _write_group(doc: Doc, key: str, spans: list[Span], places: Iterable[EntityOffsets], attrs: dict[str, Any]) -> None:
    doc.spans[key] = spans
    doc.spans[key].attrs.update({**attrs, PLACES: list(map(list, places))})
