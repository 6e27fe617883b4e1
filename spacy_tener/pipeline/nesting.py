"""Nested entities: their nesting depths, and the gold annotation for each tag sequence.

A model with `depth = n` predicts n tag sequences for each text. Entities in the same sequence do not overlap. The first
sequence contains the outermost entities, as in a model without nested entities.

An entity's depth and its level are different numbers, which `nesting_depths` and `nesting_levels` compute. The depth is
counted from the outside, and is used in scores and reports. The level is the index of the tag sequence that contains
the entity. Level 0 contains the outermost entities, and the other levels are counted from the inside:

    entity          depth  level
    北京大学医学院      0      0
    北京大学            1      2
    北京                2      1
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spacy.tokens import Doc, Span

from ..errors import UserError
from ..types import EntityOffsets


def nesting_depths(entities: Sequence[EntityOffsets]) -> list[int]:
    """Return the nesting depth of each entity. Outermost entities have depth 0.

    Entities are processed from the longest to the shortest, then by start and label. Each entity gets the lowest depth
    at which it does not overlap any previous entity.
    """
    return _assign_levels(entities, sorted(range(len(entities)), key=lambda i: _by_length(entities[i])))


def nesting_levels(entities: Sequence[EntityOffsets]) -> list[int]:
    """Return for each entity the index of the tag sequence that contains it.

    Outermost entities are in sequence 0. Nested entities are numbered from the inside: the innermost entities are in
    sequence 1. As a result, similar entities are in the same sequence. For example, the city in an institute's name has
    the index 1, even if the institute is part of a university's name.
    """
    depths = nesting_depths(entities)
    inner = [i for i, depth in enumerate(depths) if depth]
    order = sorted(range(len(inner)), key=lambda i: _by_length(entities[inner[i]]), reverse=True)
    levels = dict(zip(inner, _assign_levels([entities[i] for i in inner], order), strict=True))
    return [levels[i] + 1 if depth else 0 for i, depth in enumerate(depths)]


def _by_length(entity: EntityOffsets) -> tuple[int, int, str]:
    """Return a sort key: longer entities come first, then the order is by start and label."""
    start, end, label = entity
    return start - end, start, label


def _assign_levels(entities: Sequence[EntityOffsets], order: Iterable[int]) -> list[int]:
    """Assign entities to levels, so that entities at the same level do not overlap. Return each entity's level.

    order (Iterable[int]): Entity indices in the order of assignment. Each entity gets the lowest level at which its
        span is free.
    """
    size = max((end for _, end, _ in entities), default=0)
    levels = [0] * len(entities)
    # Each level is a bytearray with a 1 at every occupied position, because `bytearray.find` is much faster than Python
    # sets.
    occupied: list[bytearray] = []
    for index in order:
        start, end, _ = entities[index]
        level = next((i for i, positions in enumerate(occupied) if positions.find(1, start, end) < 0), len(occupied))
        if level == len(occupied):
            occupied.append(bytearray(size))
        occupied[level][start:end] = b"\1" * (end - start)
        levels[index] = level
    return levels


def all_entities(doc: Doc, key: str | None) -> list[Span]:
    """Return the entities in `doc.ents` and in the span group `key`, without duplicates."""
    group = doc.spans.get(key, ())
    return list({(span.start, span.end, span.label): span for span in (*doc.ents, *group)}.values())


def check_annotation(docs: Iterable[Doc], key: str | None, depth: int) -> None:
    """Raise an error if no Doc has a span group for nested entities, or if entities are nested deeper than `depth`."""
    is_annotated, deepest, text = False, 0, ""
    for doc in docs:
        is_annotated |= key in doc.spans
        annotated = max(_levels(all_entities(doc, key)), default=0) + 1
        if annotated > deepest:
            deepest, text = annotated, doc.text
    _check_depth(text, deepest, depth)
    if not is_annotated:
        raise UserError(
            f"No text of the training data has doc.spans['{key}']",
            "Convert the corpus with `--overlap spans`, or set spans_key to the key of the group with nested entities.",
        )


def _levels(spans: Sequence[Span]) -> list[int]:
    return nesting_levels([(span.start, span.end, span.label_) for span in spans])


def _check_depth(text: str, annotated: int, depth: int) -> None:
    if annotated > depth:
        raise UserError(
            f"Entities have a nesting depth of {annotated}, but the model has a depth of {depth}: {text[:60]!r}",
            f"Set depth = {annotated} in the section of CRFTagger, or remove the innermost entities.",
        )


def split_reference(reference: Doc, key: str | None, depth: int) -> list[Doc]:
    """Split a reference Doc by nesting level. Return a copy for each level, with the level's entities in `doc.ents`.

    If a token has no annotation in `doc.ents`, the annotation is missing at all levels, except where the level has an
    entity. If the Doc does not have the span group `key`, all inner levels have missing annotation.
    """
    if depth == 1:
        return [reference]
    spans = all_entities(reference, key)
    levels = _levels(spans)
    _check_depth(reference.text, max(levels, default=0) + 1, depth)
    missing = {token.i for token in reference if token.ent_iob == 0}
    references = []
    for level in range(depth):
        doc = reference.copy()
        ents = [span for span, span_level in zip(spans, levels, strict=True) if span_level == level]
        unknown = missing.difference(*(range(span.start, span.end) for span in ents))
        if level and key not in reference.spans:
            unknown = set(range(len(doc)))
        doc.set_ents(
            [Span(doc, span.start, span.end, label=span.label) for span in ents],
            missing=[doc[i : i + 1] for i in unknown],
            default="outside",
        )
        references.append(doc)
    return references
