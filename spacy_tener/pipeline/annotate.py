"""Entities over units, written to the Doc."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from spacy.attrs import ENT_IOB, ENT_TYPE
from spacy.tokens import Doc, Span

from .units import BEGIN, Alignment, CharacterView, TokenView

CHAR_ENTS = "char_ents"
"""Name of the extension attribute: every entity that the character view found, as (start_char, end_char, label)."""

if not Doc.has_extension(CHAR_ENTS):
    Doc.set_extension(CHAR_ENTS, default=[])


@dataclass(frozen=True)
class Entity:
    """An entity over the units of a view, `label` being its type's hash."""

    start: int
    end: int
    label: int


def annotate(view: TokenView | CharacterView, entities: Sequence[Entity], alignment: Alignment) -> None:
    """Add the entities to those that the Doc already has; tokens without any become outside."""
    doc = view.doc
    preset = list(doc.ents)
    taken = np.zeros(len(doc), dtype=bool)
    for span in preset:
        taken[span.start : span.end] = True
    if isinstance(view, CharacterView):
        entities = _keep_characters(view, preset, entities)
        entities = list(_on_tokens(view, entities, alignment))
    found = []
    for entity in entities:
        if not taken[entity.start : entity.end].any():
            taken[entity.start : entity.end] = True
            found.append(Span(doc, entity.start, entity.end, label=entity.label))
    doc.set_ents(preset + found, blocked=_blocked(doc), default="outside")


def _keep_characters(view: CharacterView, preset: Iterable[Span], entities: Sequence[Entity]) -> list[Entity]:
    """Note the exact entities where the user can find them whatever the tokens are. Preset ones are not news."""
    known = {(span.start_char, span.end_char) for span in preset}
    news = [entity for entity in entities if (entity.start, entity.end) not in known]
    strings = view.doc.vocab.strings
    view.doc._.set(CHAR_ENTS, [(entity.start, entity.end, strings[entity.label]) for entity in news])
    return news


def _on_tokens(view: CharacterView, entities: Iterable[Entity], alignment: Alignment) -> Iterable[Entity]:
    """Longest first: where two entities come to share a token, the longer one has it."""
    for entity in sorted(entities, key=lambda entity: entity.start - entity.end):
        start, end = view.token_span(entity.start, entity.end, alignment)
        if start < end:
            yield Entity(start, end, entity.label)


def _blocked(doc: Doc) -> list[Span]:
    """The tokens that may not be part of an entity: B without a type."""
    iob, label = doc.to_array([ENT_IOB, ENT_TYPE]).T
    blocked: NDArray[np.int64] = np.flatnonzero((iob == BEGIN) & (label == 0))
    return [doc[int(i) : int(i) + 1] for i in blocked]
