"""The entities in Docs that a pipeline has processed, with their exact offsets and probabilities."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from spacy.language import Language
from spacy.tokens import Doc, SpanGroup

from .entities import CHAR_OFFSETS, SCORES, EntityOffsets, FoundEntity, offsets_of, read_offsets
from .finding import SCORES_KEY, crf_pipes, span_finders
from .settings import NERSettings


def found_entities(nlp: Language, docs: Iterable[Doc], *, with_spancat: bool = True) -> list[list[FoundEntity]]:
    """Return the entities in Docs that a pipeline has processed.

    with_spancat (bool): Include those of a `spancat`, which may overlap.
    """
    settings = [
        replace(pipe.settings, spans_key=pipe.settings.spans_key or SCORES_KEY) for pipe in crf_pipes(nlp).values()
    ]
    keys = {pipe.key for pipe in span_finders(nlp).values()} if with_spancat else set()
    return [
        sorted(entities_of_doc(doc, settings, keys), key=lambda entity: (entity.start, entity.end, entity.label))
        for doc in docs
    ]


def entities_of_doc(doc: Doc, components: Sequence[NERSettings], keys: Iterable[str] = ()) -> Iterator[FoundEntity]:
    """Yield the entities of `doc.ents`, and others in the groups of `doc.spans` with these keys."""
    groups = [doc.spans[settings.spans_key] for settings in components if settings.spans_key in doc.spans]
    scores = {entity: float(score) for group in reversed(groups) for entity, score in read_offsets(group, SCORES)}
    exact = {
        entity: offsets
        for settings in components
        if settings.view == "characters" and settings.chars_key in doc.spans
        for entity, offsets in sorted(read_offsets(doc.spans[settings.chars_key], CHAR_OFFSETS), key=_overlap_priority)
    }
    for ent in doc.ents:
        entity = offsets_of(ent)
        start, end = exact.get(entity, entity[:2])
        yield FoundEntity(start, end, ent.label_, scores.get(entity))
    spans = {span: score for key in keys if key in doc.spans for span, score in _scored(doc.spans[key])}
    for span in spans.keys() - set(map(offsets_of, doc.ents)):
        yield FoundEntity(*span, spans[span])


def _scored(group: SpanGroup) -> Iterator[tuple[EntityOffsets, float | None]]:
    """Yield the offsets and probabilities of a `spancat`'s spans. It writes no scores in a text shorter than its spans,
    and a later component that writes to its group drops them."""
    scores = group.attrs.get(SCORES, ())
    probabilities = map(float, scores) if len(scores) == len(group) else itertools.repeat(None)
    yield from zip(map(offsets_of, group), probabilities, strict=False)


def _overlap_priority(row: tuple[EntityOffsets, Sequence[int]]) -> tuple[int, int]:
    """Return a sort key for entities in the same tokens: the one in `doc.ents` comes last, which is the longest, or the
    first of the longest."""
    _, (start, end) = row
    return end - start, -start


def reading_score(log_probability: float, characters: int) -> float:
    """Return the score of a task of annotation: the probability of its best reading, to the power of
    1 / sqrt(characters), so that tasks sorted by score are not sorted by length."""
    return math.exp(log_probability / math.sqrt(max(1, characters)))
