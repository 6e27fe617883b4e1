"""Entities over units, written to the Doc."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from spacy.attrs import ENT_IOB
from spacy.tokens import Doc, Span

from .settings import Settings
from .units import BEGIN, INSIDE, MISSING, DocView

CHAR_ENTS = "char_ents"
"""Name of the extension attribute: every entity that the character view found, as (start_char, end_char, label)."""

if not Doc.has_extension(CHAR_ENTS):
    Doc.set_extension(CHAR_ENTS, default=[])


@dataclass(frozen=True)
class Entity:
    """An entity over the units of a view."""

    start: int
    end: int
    label: str


def annotate(view: DocView, entities: Sequence[Entity], settings: Settings) -> None:
    """Add the entities to those that the Doc already has; tokens of which nothing was known become outside."""
    doc = view.doc
    iob = doc.to_array(ENT_IOB)
    taken = (iob == BEGIN) | (iob == INSIDE)
    # What was preset comes back as it was: it is not news.
    news = [entity for entity in entities if not taken[view.token_span(entity.start, entity.end, "expand")[0]]]
    if settings.view == "characters":
        _keep_exact(view, news)
    found = []
    # Longest first: where two entities come to share a token, the longer one has it.
    for entity in sorted(news, key=lambda entity: entity.start - entity.end):
        start, end = view.token_span(entity.start, entity.end, settings.alignment_mode)
        if start < end and not taken[start:end].any():
            taken[start:end] = True
            found.append(Span(doc, start, end, label=entity.label))
    outside = [doc[start:end] for start, end in _runs((iob == MISSING) & ~taken)]
    doc.set_ents(found, outside=outside, default="unmodified")


def _keep_exact(view: DocView, entities: Iterable[Entity]) -> None:
    """Note entities where the user can find them whatever the tokens are, beside those found there earlier."""
    exact = {(*view.char_span(entity.start, entity.end), entity.label) for entity in entities}
    earlier = {tuple(entity) for entity in view.doc._.get(CHAR_ENTS)}
    view.doc._.set(CHAR_ENTS, sorted(exact | earlier))


def _runs(mask: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Start and end of every unbroken stretch of true."""
    edges = np.flatnonzero(np.diff(mask.astype(np.int8), prepend=0, append=0))
    return [(int(start), int(end)) for start, end in edges.reshape(-1, 2)]
